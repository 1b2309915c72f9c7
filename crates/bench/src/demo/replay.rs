// SPDX-License-Identifier: MIT OR Apache-2.0
//! Replays a workload over NBD and verifies every byte that comes back.
//!
//! Purpose: closed-loop: each connection keeps so many requests open and sends the next one when
//! one is answered. All connections take their steps from one place, in the trace's order, and
//! begin again at its end.
//!
//! Invariants: a read that brings anything but a lawful version ends the replay with an error;
//! when a replay ends, in whatever way but a lost connection, everything sent was answered; a
//! FLUSH is sent after every so many writes to the log were answered.
//!
//! Why not at the trace's times: an array of disks is slower than the machine on which the trace
//! was taken, and what a faster cache is worth would not show.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use larder_core::request::Kind;
use larder_nbd::client::Client;

use super::book::Book;
use super::content::{self, PAGE_BYTES};
use super::tally::{Class, Tally};
use super::workload::{Step, Verb};

/// Time between two looks at whether to stop, where nothing else wakes.
const POLL: Duration = Duration::from_millis(50);

/// How a workload is replayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Requests that each connection keeps open.
    pub depth: usize,
    /// How long is replayed before anything counts.
    pub warm_up: Duration,
    /// How long counts.
    pub measured: Duration,
    /// A FLUSH follows after so many writes to the log.
    pub flush_every: u64,
}

impl Plan {
    /// What counts, since the start.
    #[must_use]
    pub fn window(&self) -> Range<Duration> {
        self.warm_up..self.warm_up + self.measured
    }
}

/// What the connections share.
struct Replay<'a> {
    steps: &'a [Step],
    book: &'a Book,
    plan: Plan,
    start: Instant,
    next: AtomicU64,
    log_writes: AtomicU64,
    answered: AtomicU64,
    stop: AtomicBool,
}

/// Replays for the span of the plan; once a second, `second` is told which second ended and how
/// many reads and writes were answered since the start, and may end the replay.
///
/// # Errors
/// A read brought wrong data, a request failed, or `second` says so.
pub fn replay(
    clients: Vec<Client>,
    steps: &[Step],
    book: &Book,
    plan: Plan,
    mut second: impl FnMut(u64, u64) -> Result<()>,
) -> Result<Tally> {
    let replay = Replay {
        steps,
        book,
        plan,
        start: Instant::now(),
        next: AtomicU64::new(0),
        log_writes: AtomicU64::new(0),
        answered: AtomicU64::new(0),
        stop: AtomicBool::new(false),
    };
    std::thread::scope(|scope| {
        let run = |client| scope.spawn(|| Connection::new(&replay, client).run());
        let threads: Vec<_> = clients.into_iter().map(run).collect();
        let answered = |s| second(s, replay.answered.load(Ordering::Relaxed));
        let watched = watch(replay.start, plan.window().end, &replay.stop, answered);
        replay.stop.store(true, Ordering::SeqCst);
        let mut sum = Tally::new(plan.window());
        let mut result = Ok(());
        for thread in threads {
            match thread.join() {
                Ok(Ok(tally)) => sum.merge(&tally),
                Ok(Err(error)) => result = result.and(Err(error)),
                Err(_) => result = result.and(Err(anyhow!("a connection's thread panicked"))),
            }
        }
        // Who is told to stop sees broken connections besides; the reason comes first.
        watched.and(result).map(|()| sum)
    })
}

/// Sleeps from `start` to `end`, or until `stop`, and tells each second that ended, which may end it.
pub(super) fn watch(
    start: Instant,
    end: Duration,
    stop: &AtomicBool,
    mut second: impl FnMut(u64) -> Result<()>,
) -> Result<()> {
    let mut next = Duration::ZERO;
    while next < end {
        next = (next + Duration::from_secs(1)).min(end);
        while let Some(left) = next.checked_sub(start.elapsed()).filter(|l| !l.is_zero()) {
            if stop.load(Ordering::SeqCst) {
                return Ok(());
            }
            std::thread::sleep(left.min(POLL));
        }
        second(next.as_secs())?;
    }
    Ok(())
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
    client: Client,
    open: HashMap<u64, (Open, Instant)>,
    /// A write that waits for an overlapping one.
    held: Option<Step>,
    flush_due: bool,
    data: Vec<u8>,
    tally: Tally,
}

impl<'a> Connection<'a> {
    fn new(replay: &'a Replay<'a>, client: Client) -> Self {
        let tally = Tally::new(replay.plan.window());
        let (open, held, flush_due, data) = (HashMap::new(), None, false, Vec::new());
        Self { replay, client, open, held, flush_due, data, tally }
    }

    fn run(mut self) -> Result<Tally> {
        let result = self.go();
        if result.is_err() {
            self.replay.stop.store(true, Ordering::SeqCst);
        }
        result.map(|()| self.tally)
    }

    fn go(&mut self) -> Result<()> {
        loop {
            let stopping = self.replay.stop.load(Ordering::SeqCst);
            while !stopping && self.open.len() < self.replay.plan.depth && self.send()? {}
            if !self.open.is_empty() {
                self.receive()?;
            } else if stopping {
                break;
            } else {
                self.replay.book.wait(POLL);
            }
        }
        Ok(())
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
            let oldest = self.replay.book.begin_read(&step);
            return self.submit(Kind::Read, range, Open::Read(step, oldest));
        }
        let Some(versions) = self.replay.book.begin_write(&step) else {
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
        let (ended, now) = (self.replay.start.elapsed(), Instant::now());
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
        if class != Class::Flush {
            self.replay.answered.fetch_add(1, Ordering::Relaxed);
        }
        self.tally.add(class, step.map_or(0, |s| s.len_bytes()), ended, now - sent);
        Ok(())
    }

    fn verify(&mut self, step: &Step, oldest: &[u32], data: &[u8]) -> Result<()> {
        let lawful = self.replay.book.end_read(step, oldest);
        for (at, (page, lawful)) in data.chunks_exact(PAGE_BYTES).zip(lawful).enumerate() {
            content::check(step.page + at as u32, lawful, page)
                .map_err(|mismatch| anyhow!("a read brought wrong data: {mismatch}"))?;
        }
        self.tally.verified_pages += oldest.len() as u64;
        Ok(())
    }

    fn written(&mut self, step: &Step) {
        self.replay.book.end_write(step);
        if step.verb == Verb::LogWrite {
            let before = self.replay.log_writes.fetch_add(1, Ordering::Relaxed);
            self.flush_due |= (before + 1).is_multiple_of(self.replay.plan.flush_every);
        }
    }
}

#[cfg(test)]
mod tests;
