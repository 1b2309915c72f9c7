// SPDX-License-Identifier: MIT OR Apache-2.0
//! Replays a workload over NBD and verifies every byte that comes back.
//!
//! Purpose: each connection keeps so many requests open and sends the next one when one is answered.
//! All connections take their steps from one place, in the trace's order, and begin again at its end.
//!
//! Invariants: a read that brings anything but a lawful version ends the replay with an error;
//! when a replay ends, in whatever way but a lost connection, everything sent was answered; a
//! FLUSH is sent after every so many writes to the log were answered.
//!
//! Why not at the trace's times: an array of disks is slower than the machine on which the trace
//! was taken, and what a faster cache is worth would not show.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use anyhow::{Context, Result, anyhow};
use larder_core::request::Kind;
use larder_nbd::client::Client;

use super::content;
use super::setup::Scale;
use super::workload::{Step, Verb};
use crate::demo::book::Book;
use crate::demo::clients::{self, Clock, POLL};
use crate::demo::device_file::PAGE_BYTES;
use crate::demo::tally::{Class, Tally};

/// What the connections share.
struct Replay<'a> {
    steps: &'a [Step],
    book: &'a Book,
    scale: &'a Scale,
    next: AtomicU64,
    log_writes: AtomicU64,
}

/// Replays for the scale's window; once a second, `second` receives which second ended and how many
/// reads and writes were answered since the start, and may end the replay.
///
/// # Errors
/// A read returned wrong data, a request failed, or `second` did.
pub fn replay(
    clients: Vec<Client>,
    steps: &[Step],
    book: &Book,
    scale: &Scale,
    second: impl FnMut(u64, u64) -> Result<()>,
) -> Result<Tally> {
    let (next, log_writes) = (AtomicU64::new(0), AtomicU64::new(0));
    let replay = Replay { steps, book, scale, next, log_writes };
    let run = |client, clock: &Clock, tally: &mut Tally| {
        let (open, held, flush_due, data) = (HashMap::new(), None, false, Vec::new());
        Connection { replay: &replay, clock, client, open, held, flush_due, data, tally }.run()
    };
    clients::run(clients, scale.window, run, second, |_| Ok(()))
}

impl Replay<'_> {
    fn step(&self) -> Step {
        let at = self.next.fetch_add(1, Ordering::Relaxed) % self.steps.len() as u64;
        self.steps[at as usize]
    }
}

/// What a request that is open needs when its answer comes.
enum Open {
    /// With the oldest lawful version of each page.
    Read(Step, Vec<u32>),
    Write(Step),
    Flush,
}

struct Connection<'a> {
    replay: &'a Replay<'a>,
    clock: &'a Clock,
    client: Client,
    open: HashMap<u64, (Open, Instant)>,
    /// A write that waits for an overlapping one.
    held: Option<Step>,
    flush_due: bool,
    data: Vec<u8>,
    tally: &'a mut Tally,
}

impl Connection<'_> {
    fn run(mut self) -> Result<()> {
        loop {
            let stopping = self.clock.stopped();
            while !stopping && self.open.len() < self.replay.scale.depth && self.send()? {}
            if !self.open.is_empty() {
                self.receive()?;
            } else if stopping {
                return Ok(());
            } else {
                self.replay.book.wait(POLL);
            }
        }
    }

    /// Sends one request; false if it has to wait for a write of another.
    fn send(&mut self) -> Result<bool> {
        if std::mem::take(&mut self.flush_due) {
            return self.submit(Kind::Flush, (0, 0), Open::Flush);
        }
        let (step, was_held) = match self.held.take() {
            Some(step) => (step, true),
            None => (self.replay.step(), false),
        };
        let range = (step.offset_bytes(), step.len_bytes());
        if step.verb == Verb::Read {
            let oldest = self.replay.book.begin_read(step.range());
            return self.submit(Kind::Read, range, Open::Read(step, oldest));
        }
        let Some(versions) = self.replay.book.begin_write(step.range()) else {
            self.tally.held_writes += u64::from(!was_held);
            self.held = Some(step);
            return Ok(false);
        };
        self.data.resize(step.len_bytes() as usize, 0);
        for (at, into) in self.data.chunks_exact_mut(PAGE_BYTES).enumerate() {
            content::fill(step.page + at as u32, versions[at], into);
        }
        self.submit(Kind::Write { fua: false }, range, Open::Write(step))
    }

    fn submit(&mut self, kind: Kind, (offset, len): (u64, u64), open: Open) -> Result<bool> {
        let data = if matches!(kind, Kind::Write { .. }) { &self.data[..] } else { &[] };
        let sent = Instant::now();
        let cookie = self.client.submit(kind, offset, len, data)?;
        self.open.insert(cookie, (open, sent));
        Ok(true)
    }

    fn receive(&mut self) -> Result<()> {
        let completion = self.client.wait()?;
        let answered = Instant::now();
        let (open, sent) = self.open.remove(&completion.cookie).context("an unknown answer")?;
        let (class, step) = match &open {
            Open::Read(step, _) => (Class::Read, Some(*step)),
            Open::Write(step) => (Class::Write, Some(*step)),
            Open::Flush => (Class::Flush, None),
        };
        let failed = || match step {
            Some(s) => format!("{class:?} of {} bytes at {}", s.len_bytes(), s.offset_bytes()),
            None => "FLUSH".to_owned(),
        };
        let data = completion.result.with_context(failed)?;
        match open {
            Open::Read(step, oldest) => self.verify(&step, &oldest, &data)?,
            Open::Write(step) => self.written(&step),
            Open::Flush => {}
        }
        let bytes = step.map_or(0, |s| s.len_bytes());
        self.clock.answered(self.tally, class, bytes, sent..answered);
        Ok(())
    }

    fn verify(&mut self, step: &Step, oldest: &[u32], data: &[u8]) -> Result<()> {
        let lawful = self.replay.book.end_read(step.range(), oldest);
        for (at, (page, lawful)) in data.chunks_exact(PAGE_BYTES).zip(lawful).enumerate() {
            content::check(step.page + at as u32, lawful, page)
                .map_err(|mismatch| anyhow!("a read returned wrong data: {mismatch}"))?;
        }
        self.tally.verified += oldest.len() as u64;
        Ok(())
    }

    fn written(&mut self, step: &Step) {
        self.replay.book.end_write(step.range());
        if step.verb == Verb::LogWrite {
            let before = self.replay.log_writes.fetch_add(1, Ordering::Relaxed);
            self.flush_due |= (before + 1).is_multiple_of(self.replay.scale.flush_every);
        }
    }
}

#[cfg(test)]
mod tests;
