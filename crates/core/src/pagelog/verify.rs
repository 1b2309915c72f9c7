// SPDX-License-Identifier: MIT OR Apache-2.0
//! Flash that failed for a moment: what is verified before the log trusts it again.
//!
//! A write that fails is retried; its bytes are still in memory. A flush that fails is worse: the device may have lost
//! writes that it had acknowledged, and the next flush would succeed without them. So from then on every position that was
//! written and not durable when that flush began is *doubted* (`Mark::Doubted`), and `Durable` does not advance past them
//! until they were read back, compared with the checksums in memory, written again, and flushed.
//!
//! A page that does not match its checksum is read from the origin if it is clean. If it is dirty, it is *lost*: reads of it
//! get EIO, and so does every FLUSH until a newer version of it exists. A version that is no longer current becomes an
//! entry without effect (a tombstone of no pages), so that recovery finds no torn batch here. A FLUSH in progress fails then
//! too, if the newer version is not durable.
//!
//! Invariant: no bytes are written where a crash needs what lies there: all doubted positions are behind the durable ones.
//!
//! Why written again, although the bytes match: the device may return them from a cache that it will not write.

use std::ops::{Deref, Range};
use std::sync::atomic::AtomicU64;

use super::format::BatchHeader;
use super::geometry::BATCH_HEADERS;
use super::host::{Host, insist};
use super::paths::PageLog;
use super::words::{DIRTY, Kind, Mark, REFERENCED, VALID, kind_of, page_of, slot_word};
use crate::bad_reads::BadReads;
use crate::buf::{Buf, PAGE};
use crate::checksum::crc32c;
use crate::mutant;
use crate::request::Errno;

impl<H: Host, M: Deref<Target = [AtomicU64]>> PageLog<H, M> {
    /// A flush failed. Returns how many failed in a row.
    pub(super) fn flush_failed(&self, errno: Errno) -> u64 {
        let _guard = self.lock();
        let failures = self.words.get(Mark::Unflushed) + 1;
        self.words.set(Mark::Unflushed, failures);
        self.doubt_locked();
        // Without tasks, no process verifies what is doubted.
        if !self.host.has_tasks() || self.host.gives_up(failures) {
            self.give_up(errno);
        }
        failures
    }

    /// A flush of the device failed, for this log or another one on it.
    pub fn doubt(&self) {
        let _guard = self.lock();
        self.doubt_locked();
        self.host.notify();
    }

    fn doubt_locked(&self) {
        if !mutant::is_active("page-log-trusts-next-flush") {
            // Also batches in flight: the device may have taken their bytes before it lost them.
            self.words.raise(Mark::Doubted, self.words.closed_end());
            self.words.add(Mark::Doubts, 1);
        }
    }

    /// Tries whether flash works again; returns true.
    pub(super) async fn recheck(&self) -> bool {
        if self.is_bypassed() && self.evacuate().await.is_err() {
            self.host.rest(1).await;
        }
        if self.make_durable().await.is_err() {
            return true;
        }
        let sound = {
            let _guard = self.lock();
            self.is_sound() && !self.words.has_batch_in_flight()
        };
        if sound && self.failed().is_some() && !self.host.ignores().is_empty() {
            let renewed = self.renew().await;
            let _guard = self.lock();
            if renewed.is_ok() {
                self.works_again();
            }
        }
        if self.words.get(Mark::Doubted) != 0 || self.failed().is_some() {
            // Batches are not written yet.
            self.host.rest(1).await;
        }
        true
    }

    /// A read of flash failed whose bytes are needed: rests, and returns whether to read again. Not if only this place is
    /// bad.
    ///
    /// # Errors
    /// If the device fails for too long.
    pub(super) async fn reads_again(
        &self,
        errno: Errno,
        bad: &mut BadReads,
    ) -> Result<bool, Errno> {
        let failures = bad.failed();
        // A log that has failed has waited long enough.
        let waited = self.failed().is_some() && failures > 1;
        let given_up = waited || !self.host.has_tasks() || self.host.gives_up(failures);
        if errno == Errno::ESHUTDOWN || given_up {
            return Err(errno);
        }
        self.host.rest(failures).await;
        let elsewhere = self.host.read_flash(self.log.header(0), Buf::with_len(PAGE)).await;
        Ok(bad.may_pass(elsewhere.is_ok()))
    }

    /// Makes every version durable, for a FLUSH under `Full`. A page that is lost when it begins, or is found to be, fails it:
    /// a newer version that was put meanwhile is not durable yet.
    pub(super) async fn flush_all(&self) -> Result<(), Errno> {
        let (losses, lost) = {
            let _guard = self.lock();
            let losses = self.words.get(Mark::Losses);
            let any = losses != self.words.get(Mark::Replaced);
            (losses, any && self.lost_pages().next().is_some())
        };
        match self.flush().await {
            Err(_) if self.needs_no_seal() => {}
            flushed => flushed?,
        }
        let _guard = self.lock();
        let lost = if mutant::is_active("page-log-flush-before-replacement") {
            self.lost_pages().next().is_some()
        } else {
            lost || self.words.get(Mark::Losses) != losses
        };
        if lost {
            return Err(Errno::EIO);
        }
        self.words.raise(Mark::Replaced, losses);
        Ok(())
    }

    /// How many times pages were found lost.
    pub(crate) fn losses(&self) -> u64 {
        self.words.get(Mark::Losses)
    }

    /// Makes a change durable, for FUA under `Full`. A page that was found lost since there were so many losses, before the
    /// change began, fails it: it may be one of the change.
    pub(crate) async fn settle_change(&self, last: u64, losses: u64) -> Result<(), Errno> {
        self.settle(last).await?;
        if !mutant::is_active("ordered-fua-joins") {
            self.end_epoch();
        }
        let ignored = mutant::is_active("page-log-fua-ignores-losses");
        if ignored || self.losses() == losses { Ok(()) } else { Err(Errno::EIO) }
    }

    /// Verifies the doubted positions that are written, and writes them again. Returns the position up to which this is
    /// done, or no position is doubted. The caller is the flusher.
    pub(super) async fn verify_doubted(&self) -> Result<u64, Errno> {
        if self.words.get(Mark::Doubted) == 0 || !self.host.has_tasks() {
            return Ok(u64::MAX);
        }
        // While the device still fails, this costs less than to read everything.
        self.host.flush_flash().await?;
        let mut end = self.words.get(Mark::Durable);
        while let Some(batch) = self.doubted_batch(end) {
            end = batch.end;
            self.verify_batch(batch).await?;
        }
        Ok(end)
    }

    /// The first batch from this position on that is written and doubted.
    fn doubted_batch(&self, from: u64) -> Option<Range<u64>> {
        let _guard = self.lock();
        let written = self.words.get(Mark::Written).min(self.words.get(Mark::Doubted));
        let start = self.log.batch_start(from);
        let is_header = |p: &u64| kind_of(self.words.slot(self.log.slot(*p))) == Kind::Header;
        let most = self.log.batch_range(start).end.min(written);
        let mut pages = start + u64::from(BATCH_HEADERS)..most;
        (start < written).then(|| start..pages.find(is_header).unwrap_or(most))
    }

    async fn verify_batch(&self, batch: Range<u64>) -> Result<(), Errno> {
        let page = self.log.page() as usize;
        let first = batch.start + u64::from(BATCH_HEADERS);
        let buf = Buf::with_len((batch.end - batch.start) as usize * page);
        let offset = self.log.block(batch.start);
        let mut bytes = match self.host.read_flash(offset, buf).await {
            Ok(bytes) => bytes,
            Err(_) => self.read_blocks(&batch).await?,
        };
        let (headers, pages) = bytes.split_at_mut(BATCH_HEADERS as usize * page);
        for (position, bytes) in (first..batch.end).zip(pages.chunks_exact_mut(page)) {
            self.verify_page(position, bytes).await?;
        }
        let header = {
            let _guard = self.lock();
            let entry = |position| {
                let slot = self.log.slot(position);
                (self.words.slot(slot) & !(VALID | REFERENCED), self.words.crc(slot))
            };
            BatchHeader {
                generation: self.words.get(Mark::Generation),
                start: batch.start,
                // As a batch that is closed now: what this tail needs is durable.
                tail: self.words.get(Mark::Tail).min(batch.start),
                durable: self.words.get(Mark::Durable),
                epoch: page_of(self.words.slot(self.log.slot(batch.start))),
                entries: (first..batch.end).map(entry).collect(),
            }
        };
        let encoded = header.encode(&self.log);
        headers.chunks_exact_mut(page).for_each(|copy| copy.copy_from_slice(&encoded));
        insist(&self.host, async || self.host.write_flash(offset, Buf::copy_of(&bytes)).await).await
    }

    /// Reads the blocks one by one; those that cannot be read are zero.
    async fn read_blocks(&self, blocks: &Range<u64>) -> Result<Buf, Errno> {
        let page = self.log.page() as usize;
        let mut bytes = Buf::zeroed((blocks.end - blocks.start) as usize * page);
        for (position, into) in blocks.clone().zip(bytes.chunks_exact_mut(page)) {
            let mut bad = BadReads::default();
            loop {
                let read = self.host.read_flash(self.log.block(position), Buf::with_len(page));
                match read.await {
                    Ok(found) => break into.copy_from_slice(&found),
                    Err(errno) if self.reads_again(errno, &mut bad).await? => {}
                    Err(_) => break,
                }
            }
        }
        Ok(bytes)
    }

    /// Compares a page with its checksum; replaces it if it does not match.
    async fn verify_page(&self, position: u64, bytes: &mut [u8]) -> Result<(), Errno> {
        let slot = self.log.slot(position);
        let (word, crc) = {
            let _guard = self.lock();
            (self.words.slot(slot), self.words.crc(slot))
        };
        if kind_of(word) != Kind::Page || crc32c(bytes) == crc {
            return Ok(());
        }
        if word & VALID != 0
            && word & DIRTY == 0
            && let Ok(found) = self.host.read_origin(page_of(word)).await
            && crc32c(&found) == crc
        {
            bytes.copy_from_slice(&found);
            return Ok(());
        }
        bytes.fill(0);
        let _guard = self.lock();
        if self.words.slot(slot) & (VALID | DIRTY) == VALID {
            self.drop_unreadable(slot);
        }
        // It may have been replaced or dropped meanwhile.
        if self.words.slot(slot) & VALID != 0 {
            self.words.lose(slot);
            self.words.set_crc(slot, crc32c(bytes));
        } else {
            // A FLUSH that covers it must not count on what replaced it.
            if self.newer_locked(page_of(word)) > self.words.get(Mark::Durable) {
                self.words.add(Mark::Losses, 1);
            }
            self.words.set_crc(slot, 0);
            self.words.set_slot(slot, slot_word(Kind::Tombstone, page_of(word), 0));
        }
        Ok(())
    }
}
