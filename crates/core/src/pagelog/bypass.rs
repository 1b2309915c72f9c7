// SPDX-License-Identifier: MIT OR Apache-2.0
//! Changes past a log whose flash fails, and its return.
//!
//! A log that has failed, and not permanently, takes no page. A change then goes to the origin:
//!
//! 1. Dirty pages that it covers in part are written to the origin from the log. If that fails, so does the change.
//! 2. The origin is changed.
//! 3. In a log that survives a crash: the origin is flushed, and it is made durable off the flash that recovery ignores what
//!    the log has of these pages ([`Host::bypass`]). Else a restart would replay an older version over the change.
//! 4. The log drops its versions of the pages, and the change is answered.
//!
//! Why this order: before step 3 recovery has the versions from before the change, which was not answered. After it the
//! origin durably has the change.
//!
//! What the log holds in memory only is written to the origin in the same way, so that a FLUSH and a stop need no flash
//! ([`PageLog::evacuate`]). Dirty pages that are durable on flash stay there.
//!
//! When flash works again, a log without ignored pages continues. Else all dirty pages are written to the origin, and the
//! log begins again behind all positions that it ever used ([`PageLog::renew`]); then the host forgets the ignored pages.
//!
//! Invariant: the log takes no page while the host ignores any: recovery would ignore it too.

use std::iter::successors;
use std::ops::{Deref, Range};
use std::sync::atomic::AtomicU64;

use super::evict::ReadSpan;
use super::geometry::BATCH_HEADERS;
use super::host::{Host, insist};
use super::paths::PageLog;
use super::words::{BUFFERS, DIRTY, Kind, Mark, VALID, page_of, slot_word};
use crate::mutant;
use crate::request::Errno;

impl<H: Host, M: Deref<Target = [AtomicU64]>> PageLog<H, M> {
    /// Whether changes go past the log, because its flash fails. Not if the seal of a stop could not be removed: the next
    /// start would use what it seals. Not under `Ordered`: the origin would have them before older ones.
    pub fn is_bypassed(&self) -> bool {
        let passes = !self.settings.policy.is_ordered();
        passes && self.failed().is_some() && !self.has_ended() && self.words.get(Mark::Sealed) == 0
    }

    /// Writes the dirty versions of held pages to the origin (step 1).
    ///
    /// # Errors
    /// If the origin does not have all of them afterwards.
    pub async fn bring(&self, pages: Vec<u64>) -> Result<(), Errno> {
        self.words.set(Mark::Unwritten, 0);
        let left = self.to_origin(pages, &ReadSpan::default()).await;
        if left.is_empty() {
            Ok(())
        } else {
            Err(self.failed().unwrap_or_else(|| self.unwritten()))
        }
    }

    /// The origin has changed in these pages, which are held (steps 3 and 4).
    ///
    /// # Errors
    /// If it cannot be made durable that recovery ignores them.
    pub async fn bypassed(&self, pages: Range<u64>) -> Result<(), Errno> {
        if self.settings.policy.survives_crash() && !mutant::is_active("page-log-bypass-unrecorded")
        {
            let more = self.without_dirty(self.host.around(&pages), &pages);
            if self.host.bypass(more).await.is_err() {
                // Perhaps they are too many ranges.
                self.host.bypass(pages.clone().collect()).await?;
            }
        }
        let _guard = self.lock();
        self.words.drop_pages(pages);
        Ok(())
    }

    /// The pages of `around` that are not dirty or are in `pages`.
    fn without_dirty(&self, around: Range<u64>, pages: &Range<u64>) -> Vec<u64> {
        let _guard = self.lock();
        around.filter(|page| pages.contains(page) || !self.is_dirty(*page)).collect()
    }

    /// Whether a dirty version of the page is in the log.
    pub fn has_dirty(&self, page: u64) -> bool {
        let _guard = self.lock();
        self.is_dirty(page)
    }

    fn is_dirty(&self, page: u64) -> bool {
        let slot = self.words.find(page);
        slot.is_some_and(|slot| self.words.slot(slot) & DIRTY != 0)
    }

    /// A change of these pages failed: the versions of the log stay current, and the origin no longer has them.
    pub fn keep_version(&self, pages: Range<u64>) {
        let _guard = self.lock();
        for page in pages {
            if let Some(slot) = self.words.find(page) {
                self.words.make_dirty(slot);
            }
        }
    }

    /// The valid versions that a crash would lose from the log, those that are dirty or the others, as pages.
    fn volatile_pages(&self, dirty: bool) -> Vec<u64> {
        let _guard = self.lock();
        let words = self.volatile_words();
        words.filter(|word| (word & DIRTY != 0) == dirty).map(page_of).collect()
    }

    /// The slots of these versions. The caller holds the lock.
    fn volatile_words(&self) -> impl Iterator<Item = u64> + '_ {
        let positions = self.first_volatile()..self.words.get(Mark::Last);
        let words = positions.map(|position| self.words.slot(self.log.slot(position)));
        words.filter(|word| word & VALID != 0)
    }

    /// Whether the origin has everything that a crash would lose from the log, and recovery ignores older versions of it.
    /// A page that was written to the origin before flash failed counts too: flash may have a version from before that.
    fn is_evacuated(&self) -> bool {
        let _guard = self.lock();
        let survives = self.settings.policy.survives_crash();
        let stays =
            |word: u64| word & DIRTY != 0 || survives && !self.host.has_ignored(page_of(word));
        self.words.get(Mark::Evacuating) == 0 && !self.volatile_words().any(stays)
    }

    /// Whether a stop or a crash loses nothing although the log is not sealed: its flash fails, and what only memory had is
    /// on the origin.
    pub fn needs_no_seal(&self) -> bool {
        self.is_bypassed() && self.is_evacuated()
    }

    /// Fails a log whose flash fails at the moment, without further retries: there is no time for them.
    pub fn stop_retrying(&self) {
        let _guard = self.lock();
        let get = |mark| self.words.get(mark);
        let fails = [Mark::Unflushed, Mark::Doubted, Mark::Stumbles].iter().any(|m| get(*m) != 0);
        if fails || self.words.has_failed_batch() {
            self.give_up(Errno::ETIMEDOUT);
        }
    }

    /// Writes what a crash would lose to the origin.
    pub(super) async fn evacuate(&self) -> Result<(), Errno> {
        if self.is_evacuated() {
            return Ok(());
        }
        // From here on the log does not continue, and no FLUSH counts on the origin alone.
        self.words.set(Mark::Evacuating, 1);
        let brought = self.bring_all(&self.volatile_pages(true)).await;
        match self.settings.policy.survives_crash() {
            true => self.host.bypass(self.volatile_pages(false)).await?,
            false => self.host.flush_origin().await?,
        }
        self.words.set(Mark::Evacuating, 0);
        brought
    }

    /// Flash works again: all dirty pages go to the origin, and the log begins again. Changes go past the log meanwhile,
    /// except for a moment at the end.
    pub(super) async fn renew(&self) -> Result<(), Errno> {
        self.unseal().await?;
        self.drain_or_lose().await?;
        self.host.stop_bypass().await;
        // What became dirty when the origin failed a change.
        let renewed = match self.drain_or_lose().await {
            Ok(lost) => self.begin_again(&lost).await,
            Err(errno) => Err(errno),
        };
        self.host.end_bypass(renewed.is_ok()).await;
        renewed
    }

    /// Writes all dirty pages to the origin; returns those whose only copy is lost.
    pub(super) async fn drain_or_lose(&self) -> Result<Vec<u64>, Errno> {
        self.words.set(Mark::Renewing, 1);
        let drained = self.drain_all().await;
        self.words.set(Mark::Renewing, 0);
        let Err(errno) = drained else { return Ok(Vec::new()) };
        let _guard = self.lock();
        let lost: Vec<u64> = self.lost_pages().collect();
        if lost.len() as u64 == self.words.get(Mark::Dirty) { Ok(lost) } else { Err(errno) }
    }

    /// Drops all pages, which are clean or lost, and begins behind all positions that were ever used, in a new generation. It
    /// records the lost pages before the log header that makes the generation valid. If that fails, they stay lost in memory,
    /// and the caller may retry.
    pub(super) async fn begin_again(&self, lost: &[u64]) -> Result<(), Errno> {
        self.become_header_writer().await?;
        let begun = self.begin_as_header_writer(lost).await;
        let _guard = self.lock();
        self.words.set(Mark::HeaderWriter, 0);
        self.host.notify();
        begun
    }

    async fn begin_as_header_writer(&self, lost: &[u64]) -> Result<(), Errno> {
        let end = self.reset(lost)?;
        if !lost.is_empty() {
            // The records are doubted, so this writes them.
            insist(&self.host, async || self.make_durable().await).await?;
            self.put_all_segments(0).await?;
        }
        let segments = end / self.log.segment() * self.log.segment();
        for _ in 0..2 {
            insist(&self.host, async || self.put_header(segments, None).await).await?;
        }
        Ok(())
    }

    /// Makes the log empty in memory, except for records of these lost pages: no reader misses them meanwhile. It continues in
    /// the slot of the head, several laps later. Returns the new head.
    fn reset(&self, lost: &[u64]) -> Result<u64, Errno> {
        let _guard = self.lock();
        let get = |mark| self.words.get(mark);
        let laps = 4 * u64::from(self.log.blocks);
        let next = get(Mark::Head) + laps;
        let end = self.positions(next).take(lost.len()).last().map_or(next, |last| last + 1);
        // Until the new generation is valid a crash needs what lies between tail and head.
        if end - next > self.words.room(&self.log) {
            return Err(Errno::ENOSPC);
        }
        (0..self.log.blocks).for_each(|slot| self.words.set_slot(slot, 0));
        self.words.rebuild(next..next);
        (0..BUFFERS).for_each(|buffer| self.words.free_buffer(buffer));
        self.words.set(Mark::Closed, get(Mark::Opened));
        for (page, position) in lost.iter().zip(self.positions(next)) {
            let slot = self.log.slot(position);
            self.words.set_slot(slot, slot_word(Kind::Lost, *page, VALID | DIRTY));
            self.words.insert(slot);
        }
        self.words.add(Mark::Turn, 1);
        self.words.add(Mark::Generation, 1);
        for mark in
            [Mark::Tail, Mark::Evicted, Mark::Durable, Mark::Drained, Mark::Replayed, Mark::Begin]
        {
            self.words.set(mark, next);
        }
        for mark in [Mark::Head, Mark::Last, Mark::Written] {
            self.words.set(mark, end);
        }
        // The same slot: an attempt after a failed one must not overwrite what a crash needs either.
        self.words.add(Mark::DurableTail, laps);
        self.words.set(Mark::Segments, next / self.log.segment() * self.log.segment());
        self.words.set(Mark::Doubted, if lost.is_empty() { 0 } else { end });
        Ok(end)
    }

    /// The positions of pages in full batches from `next` on.
    fn positions(&self, next: u64) -> impl Iterator<Item = u64> + '_ {
        let batch = |from| self.log.batch_range(self.log.batch_start(from));
        let batches = successors(Some(batch(next)), move |last| Some(batch(last.end)));
        batches.flat_map(|batch| batch.start + u64::from(BATCH_HEADERS)..batch.end)
    }
}
