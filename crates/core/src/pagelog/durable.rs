// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is made durable, and in which order: batches, segments, headers.
//!
//! Batches may be written beside each other; the mark `Written` moves over those before which none is
//! missing, and `Durable` follows with a flush of flash. A batch's head says what the front was when it was
//! closed; once the batch is durable so is that front, and what lies before may be written over. Only
//! where no batch is on its way to say so are both headers written for it, one after the other.

use std::ops::Deref;
use std::sync::atomic::AtomicU64;

use super::format::{Head, Header, Seal, encode_segment};
use super::host::Host;
use super::paths::PageLog;
use super::queue::State;
use super::words::{BatchMark, Mark, REFERENCED, VALID, Words};
use crate::mutant;
use crate::request::Errno;

/// What flash refused so often in a row makes the log fail.
pub(super) const FAILURES_MOST: u64 = 8;

impl<H: Host, M: Deref<Target = [AtomicU64]>> PageLog<H, M> {
    /// Writes the first closed batch; whether there was one.
    pub async fn write_next(&self) -> bool {
        let Some((buffer, head, pages)) = self.take_closed() else { return false };
        let encoded = head.encode(&self.log);
        let offset = self.log.block(head.start);
        let result = self.host.write_batch(offset, encoded, buffer, pages).await;
        if result.is_err() {
            self.host.rest().await;
        }
        let _guard = self.lock();
        match result {
            Ok(()) => self.words.batch_written(buffer),
            Err(errno) => {
                let failures = self.words.batch(buffer, BatchMark::Failures) + 1;
                self.words.set_batch(buffer, BatchMark::Failures, failures);
                self.words.set_state(buffer, State::Closed);
                if failures >= FAILURES_MOST {
                    self.words.set(Mark::Failed, errno.0 as u64);
                }
            }
        }
        self.host.notify();
        true
    }

    fn take_closed(&self) -> Option<(usize, Head, usize)> {
        let _guard = self.lock();
        if self.failed().is_some() {
            return None;
        }
        let words = &self.words;
        let numbers = words.get(Mark::Closed)..words.get(Mark::Opened);
        let buffer = numbers.map(Words::<M>::buffer_of).find(|b| match words.state(*b) {
            State::Closed => true,
            State::Writing => self.host.is_gone(words.batch(*b, BatchMark::Writer)),
            _ => false,
        })?;
        words.set_batch(buffer, BatchMark::Writer, self.host.me());
        words.set_state(buffer, State::Writing);
        let pages = words.batch_pages(buffer);
        let entry = |position| {
            let slot = self.log.slot(position);
            (words.slot(slot) & !(VALID | REFERENCED), words.crc(slot))
        };
        let head = Head {
            generation: words.get(Mark::Generation),
            start: words.batch(buffer, BatchMark::Start),
            front: words.batch(buffer, BatchMark::Front),
            durable: words.get(Mark::Durable),
            entries: pages.clone().map(entry).collect(),
        };
        Some((buffer, head, (pages.end - pages.start) as usize))
    }

    /// Flushes flash: what is written is durable.
    pub(super) async fn make_durable(&self) -> Result<(), Errno> {
        let (written, front) = {
            let _guard = self.lock();
            (self.words.get(Mark::Written), self.words.get(Mark::WrittenFront))
        };
        let result = match mutant::is_active("page-log-settled-unflushed") {
            true => Ok(()),
            false => self.host.flush_flash().await,
        };
        let _guard = self.lock();
        if let Err(errno) = result {
            // What flash could not make durable may be gone, and a later flush would not say so.
            self.words.set(Mark::Failed, errno.0 as u64);
            self.host.notify();
            return Err(errno);
        }
        self.words.raise(Mark::Durable, written);
        self.words.raise(Mark::DurableFront, front);
        self.host.notify();
        Ok(())
    }

    /// Writes a segment if one is due, or makes the front durable; whether anything was done.
    pub(super) async fn keep_marks(&self) -> bool {
        if self.failed().is_some() {
            return false;
        }
        let segment = self.log.segment();
        let (first, due, front_due, carried) = {
            let _guard = self.lock();
            let get = |mark| self.words.get(mark);
            let first = get(Mark::Segments);
            (
                first,
                get(Mark::Written) >= first + segment,
                get(Mark::Front) > get(Mark::DurableFront),
                get(Mark::WrittenFront) > get(Mark::DurableFront),
            )
        };
        let result = match (due, carried, front_due) {
            (true, ..) => self.write_segment(first).await,
            (_, true, _) => self.make_durable().await,
            (.., true) => self.write_header(first, None).await,
            _ => return false,
        };
        match result {
            Ok(()) => self.words.set(Mark::Stumbles, 0),
            Err(errno) => self.stumble(errno).await,
        }
        true
    }

    /// Writes the segment of the positions from `first` on, and then the header that counts it (rule L6).
    async fn write_segment(&self, first: u64) -> Result<(), Errno> {
        let end = first + self.log.segment();
        self.settle(end.min(self.words.get(Mark::Written))).await?;
        self.put_segment(first, !(VALID | REFERENCED), 0).await?;
        self.make_durable().await?;
        self.write_header(end, None).await
    }

    /// Writes what is known of the positions from `first` on.
    async fn put_segment(&self, first: u64, keep: u64, stamp: u64) -> Result<(), Errno> {
        let encoded = {
            let _guard = self.lock();
            let entry = |i: u32| {
                let slot = self.log.slot(first + u64::from(i));
                (self.words.slot(slot) & keep, self.words.crc(slot))
            };
            // What is not durable may be cut off by a crash, and its positions used again.
            let durable = self.words.get(Mark::Durable);
            let filled = self.log.segment().min(durable.saturating_sub(first));
            let entries = (0..filled as u32).map(entry);
            encode_segment(first, stamp, entries, &self.log)
        };
        self.host.write_flash(self.log.segment_at(first), encoded).await
    }

    /// Writes all segments anew, with what is valid and dirty. A crash meanwhile finds some of them damaged,
    /// and the heads of the batches say the same.
    pub(super) async fn put_all_segments(&self, stamp: u64) -> Result<(), Errno> {
        let segment = self.log.segment();
        let (front, rear) = (self.words.get(Mark::Front), self.words.get(Mark::Last));
        let mut first = front / segment * segment;
        while first < rear {
            self.put_segment(first, !REFERENCED, stamp).await?;
            first += segment;
        }
        self.make_durable().await
    }

    /// Writes a header, durably, one at a time.
    pub(super) async fn write_header(
        &self,
        segments: u64,
        sealed: Option<Seal>,
    ) -> Result<(), Errno> {
        loop {
            let seen = self.host.changes();
            {
                let _guard = self.lock();
                let scribe = self.words.get(Mark::Scribe);
                if scribe == 0 || self.host.is_gone(scribe) {
                    self.words.set(Mark::Scribe, self.host.me());
                    break;
                }
            }
            self.host.changed(seen).await;
        }
        // A log that was unsealed meanwhile is not sealed after all.
        let stale = sealed.is_some() && self.words.get(Mark::Sealed) == 0;
        let unseals = sealed.is_none() && self.words.get(Mark::Sealed) != 0;
        if unseals {
            self.words.set(Mark::Sealed, 1);
        }
        let mut written = if stale { Ok(()) } else { self.put_header(segments, sealed).await };
        if unseals && written.is_ok() {
            // To both places: were one lost, the other would say that it is sealed.
            written = self.put_header(segments, sealed).await;
        }
        let _guard = self.lock();
        if written.is_ok() && !stale {
            self.words.set(Mark::Sealed, if sealed.is_some() { 2 } else { 0 });
        }
        self.words.set(Mark::Scribe, 0);
        self.host.notify();
        written
    }

    async fn put_header(&self, segments: u64, sealed: Option<Seal>) -> Result<(), Errno> {
        let header = {
            let _guard = self.lock();
            let get = |mark| self.words.get(mark);
            Header {
                number: get(Mark::Headers),
                generation: get(Mark::Generation),
                begin: get(Mark::Begin),
                front: get(Mark::Front),
                // Another header may have counted more since this one was asked for.
                segments: segments.max(get(Mark::Segments)),
                sealed,
            }
        };
        let place = if mutant::is_active("page-log-one-header") { 0 } else { header.number };
        let encoded = header.encode(&self.log);
        self.host.write_flash(self.log.header(place), encoded).await?;
        self.make_durable().await?;
        let _guard = self.lock();
        self.words.set(Mark::Headers, header.number + 1);
        // The newest may be lost, and the one before it counts then.
        let before = match mutant::is_active("page-log-front-in-one-header") {
            true => header.front,
            false => self.words.get(Mark::HeaderFront),
        };
        self.words.raise(Mark::DurableFront, before);
        self.words.set(Mark::HeaderFront, header.front);
        self.words.raise(Mark::Segments, header.segments);
        Ok(())
    }
}
