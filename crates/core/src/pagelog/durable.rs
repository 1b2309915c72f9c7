// SPDX-License-Identifier: MIT OR Apache-2.0
//! The order in which batches, segments and log headers become durable.
//!
//! Batches may be written concurrently; the mark `Written` advances to the first that is missing, and `Durable` follows with
//! a flush of flash. A batch header contains the tail at the time of its closing; once the batch is durable so is that tail,
//! and the blocks before it may be overwritten. If no batch is in flight to carry a new tail, both log headers are written,
//! one after the other.

use std::ops::Deref;
use std::sync::atomic::AtomicU64;

use super::format::{BatchHeader, Header, Seal, encode_segment};
use super::host::{Host, until_ready};
use super::paths::PageLog;
use super::queue::State;
use super::words::{BatchMark, Mark, REFERENCED, VALID, Words};
use crate::mutant;
use crate::request::Errno;

impl<H: Host, M: Deref<Target = [AtomicU64]>> PageLog<H, M> {
    /// Writes the first closed batch; returns whether there was one that this process writes.
    pub async fn write_next(&self) -> bool {
        if !self.host.writes_batches() {
            return false;
        }
        let Some((buffer, header, pages)) = self.take_closed() else { return false };
        let encoded = header.encode(&self.log);
        let offset = self.log.block(header.start);
        let result = self.host.write_batch(offset, encoded, buffer, pages).await;
        let failures = self.words.batch(buffer, BatchMark::Failures) + 1;
        if result.is_err() {
            self.words.set_batch(buffer, BatchMark::Failures, failures);
            self.host.rest(failures).await;
        }
        let _guard = self.lock();
        match result {
            Ok(()) => {
                self.words.batch_written(buffer);
                self.works_again();
            }
            Err(errno) => {
                self.words.set_state(buffer, State::Closed);
                if self.host.gives_up(failures) {
                    self.give_up(errno);
                }
            }
        }
        self.host.notify();
        true
    }

    fn take_closed(&self) -> Option<(usize, BatchHeader, usize)> {
        let _guard = self.lock();
        if self.has_ended() {
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
        let header = BatchHeader {
            generation: words.get(Mark::Generation),
            start: words.batch(buffer, BatchMark::Start),
            tail: words.batch(buffer, BatchMark::Tail),
            durable: words.get(Mark::Durable),
            epoch: words.epoch(&self.log, buffer),
            entries: pages.clone().map(entry).collect(),
        };
        Some((buffer, header, (pages.end - pages.start) as usize))
    }

    /// Flushes flash: `Durable` advances to `Written`, or as far as no position is doubted.
    pub(super) async fn make_durable(&self) -> Result<(), Errno> {
        until_ready(&self.host, || self.become_flusher()).await?;
        self.flush_as_flusher().await
    }

    /// Becomes the task that flushes flash, unless another one flushes it: two flushes at the same time would share the
    /// report of a loss. Without tasks no process verifies what a failed flush lost (`verify.rs`), and processes flush in
    /// parallel.
    pub(super) fn become_flusher(&self) -> bool {
        let _guard = self.lock();
        let free = self.words.get(Mark::Flusher) == 0 || !self.host.has_tasks();
        if free {
            self.words.set(Mark::Flusher, self.host.me());
        }
        free
    }

    /// As [`make_durable`](Self::make_durable), for the flusher, which it is no longer afterwards.
    pub(super) async fn flush_as_flusher(&self) -> Result<(), Errno> {
        let result = self.verify_and_flush().await;
        if let Err(errno) = result
            && !self.host.is_abandoned(errno)
        {
            // The others rest too.
            let failures = self.flush_failed(errno);
            self.host.rest(failures).await;
        }
        let _guard = self.lock();
        self.words.set(Mark::Flusher, 0);
        if result.is_ok() {
            self.words.set(Mark::Unflushed, 0);
            self.works_again();
        }
        self.host.notify();
        result
    }

    async fn verify_and_flush(&self) -> Result<(), Errno> {
        loop {
            let doubts = self.words.get(Mark::Doubts);
            let verified = self.verify_doubted().await?;
            let (written, tail) = {
                let _guard = self.lock();
                match self.words.get(Mark::Doubted) > verified {
                    true => (verified, 0),
                    false => (self.words.get(Mark::Written), self.words.get(Mark::WrittenTail)),
                }
            };
            if !mutant::is_active("page-log-settled-unflushed") {
                self.host.flush_flash().await?;
            }
            let _guard = self.lock();
            // A flush of another log, or of another process, failed meanwhile: what this one covers may be lost.
            if doubts != self.words.get(Mark::Doubts) {
                match self.host.has_tasks() {
                    true => continue,
                    false => return Err(self.failed().unwrap_or(Errno::EIO)),
                }
            }
            self.words.raise(Mark::Durable, written);
            self.words.raise(Mark::DurableTail, tail);
            if self.words.get(Mark::Durable) >= self.words.get(Mark::Doubted) {
                self.words.set(Mark::Doubted, 0);
            }
            return Ok(());
        }
    }

    /// Writes a segment if one is due, or makes the tail durable; returns whether one of them was due.
    pub(super) async fn keep_marks(&self) -> bool {
        if self.has_ended() {
            return false;
        }
        let segment = self.log.segment();
        let (first, due, tail_due, carried) = {
            let _guard = self.lock();
            let get = |mark| self.words.get(mark);
            let first = get(Mark::Segments);
            (
                first,
                get(Mark::Written) >= first + segment,
                get(Mark::Tail) > get(Mark::DurableTail),
                get(Mark::WrittenTail) > get(Mark::DurableTail),
            )
        };
        let result = match (due, carried, tail_due) {
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

    /// Writes the segment of the positions from `first` on, then the log header that includes it (rule L6).
    async fn write_segment(&self, first: u64) -> Result<(), Errno> {
        let end = first + self.log.segment();
        self.settle(end.min(self.words.get(Mark::Written))).await?;
        let doubts = self.words.get(Mark::Doubts);
        self.put_segment(first, !(VALID | REFERENCED), 0).await?;
        self.make_durable().await?;
        self.check_doubts(doubts)?;
        self.write_header(end, None).await
    }

    /// Fails if a flush of flash failed since there were so many doubts: what was written meanwhile may be lost. The caller
    /// writes it again.
    fn check_doubts(&self, doubts: u64) -> Result<(), Errno> {
        if self.words.get(Mark::Doubts) == doubts { Ok(()) } else { Err(Errno::EIO) }
    }

    /// Writes the entries of the positions from `first` on.
    async fn put_segment(&self, first: u64, keep: u64, stamp: u64) -> Result<(), Errno> {
        let encoded = {
            let _guard = self.lock();
            let entry = |i: u32| {
                let slot = self.log.slot(first + u64::from(i));
                (self.words.slot(slot) & keep, self.words.crc(slot))
            };
            // A crash may drop positions that are not durable, and a later start may reuse them.
            let durable = self.words.get(Mark::Durable);
            let filled = self.log.segment().min(durable.saturating_sub(first));
            let entries = (0..filled as u32).map(entry);
            encode_segment(first, stamp, entries, &self.log)
        };
        self.host.write_flash(self.log.segment_at(first), encoded).await
    }

    /// Writes all segments again, with valid and dirty pages. After a crash meanwhile some may be damaged, and recovery uses
    /// the batch headers.
    pub(super) async fn put_all_segments(&self, stamp: u64) -> Result<(), Errno> {
        let doubts = self.words.get(Mark::Doubts);
        let segment = self.log.segment();
        let (tail, head) = (self.words.get(Mark::Tail), self.words.get(Mark::Last));
        let mut first = tail / segment * segment;
        while first < head {
            self.put_segment(first, !REFERENCED, stamp).await?;
            first += segment;
        }
        self.make_durable().await?;
        self.check_doubts(doubts)
    }

    /// Waits until no other task writes a log header, and becomes the writer.
    pub(super) async fn become_header_writer(&self) -> Result<(), Errno> {
        let become_writer = || {
            let _guard = self.lock();
            let writer = self.words.get(Mark::HeaderWriter);
            let free = writer == 0 || self.host.is_gone(writer);
            if free {
                self.words.set(Mark::HeaderWriter, self.host.me());
            }
            free
        };
        until_ready(&self.host, become_writer).await
    }

    /// Writes a log header durably. One writer runs at a time.
    pub(super) async fn write_header(
        &self,
        segments: u64,
        sealed: Option<Seal>,
    ) -> Result<(), Errno> {
        let generation = self.words.get(Mark::Generation);
        self.become_header_writer().await?;
        // A log that was unsealed meanwhile must not be sealed. One that began again writes its log headers itself.
        let stale = sealed.is_some() && self.words.get(Mark::Sealed) == 0
            || generation != self.words.get(Mark::Generation);
        let unseals = sealed.is_none() && self.words.get(Mark::Sealed) != 0;
        if unseals {
            self.words.set(Mark::Sealed, 1);
        }
        let mut written = if stale { Ok(()) } else { self.put_header(segments, sealed).await };
        if unseals && written.is_ok() {
            // To both places: if one were damaged, the other would still contain the seal.
            written = self.put_header(segments, sealed).await;
        }
        let _guard = self.lock();
        if written.is_ok() && !stale {
            self.words.set(Mark::Sealed, if sealed.is_some() { 2 } else { 0 });
        }
        self.words.set(Mark::HeaderWriter, 0);
        self.host.notify();
        written
    }

    /// Writes a log header durably, as the writer.
    pub(super) async fn put_header(
        &self,
        segments: u64,
        sealed: Option<Seal>,
    ) -> Result<(), Errno> {
        let header = {
            let _guard = self.lock();
            let get = |mark| self.words.get(mark);
            Header {
                number: get(Mark::Headers),
                generation: get(Mark::Generation),
                begin: get(Mark::Begin),
                tail: get(Mark::Tail),
                // Another header may have included more segments meanwhile.
                segments: segments.max(get(Mark::Segments)),
                sealed,
                replayed: self.replayed_mark(),
            }
        };
        let place = if mutant::is_active("page-log-one-header") { 0 } else { header.number };
        let encoded = header.encode(&self.log);
        let doubts = self.words.get(Mark::Doubts);
        self.host.write_flash(self.log.header(place), encoded).await?;
        self.make_durable().await?;
        self.check_doubts(doubts)?;
        let _guard = self.lock();
        self.words.set(Mark::Headers, header.number + 1);
        // If the newest header is damaged, recovery uses the one before it.
        let before = match mutant::is_active("page-log-tail-in-one-header") {
            true => header.tail,
            false => self.words.get(Mark::HeaderTail),
        };
        self.words.raise(Mark::DurableTail, before);
        self.words.set(Mark::HeaderTail, header.tail);
        self.words.raise(Mark::Segments, header.segments);
        Ok(())
    }
}
