// SPDX-License-Identifier: MIT OR Apache-2.0
//! The replay of changes to the origin in their order (write policy `ordered`): losing the flash leaves an older state of the
//! volume, as a power loss leaves of a disk.
//!
//! A batch holds changes of one epoch (`epochs.rs`), and the log keeps every version until the epoch after it is replayed, also
//! those that a newer version replaced. An epoch that has ended is replayed in steps:
//!
//! 1. Its changes are durable on flash, and all logs of the volume have replayed all earlier epochs.
//! 2. Its tombstones and the newest versions within it are written to the origin, a part of it at a time, sorted by place.
//! 3. The origin is flushed.
//! 4. A log header records the position after it (`Mark::Replayed`). Then its pages are clean, and may be evicted.
//!
//! A crash repeats the epoch whose record is missing. That is harmless while only the next epoch has begun: the origin has the
//! newer changes of that one for some pages, and an epoch that is incomplete may lack them. So an epoch begins after the record
//! of the one before it is durable; if the newest log header is damaged, the one before it repeats two epochs, which is harmless
//! for the same reason.
//!
//! Why not several epochs together: between their writes the origin would have changes of the later one without all of the
//! earlier one.
//!
//! A version that flash cannot return is passed over; if it is the newest one, the page is lost, as under the other policies.

use std::collections::{BTreeMap, HashMap};
use std::ops::{Deref, Range};
use std::sync::atomic::AtomicU64;

use super::error::Unread;
use super::evict::{Place, ReadSpan};
use super::host::{Host, insist, until_ready};
use super::order::Order;
use super::paths::PageLog;
use super::words::{BatchMark, DIRTY, Kind, Mark, REPLAYED, VALID, kind_of, page_of};
use crate::bad_reads::BadReads;
use crate::buf::Buf;
use crate::exec::each;
use crate::mutant;
use crate::request::Errno;

/// Positions of a part of an epoch: its pages are in memory together.
const PART: u64 = 1024;
/// Pages that are read, or written as neighbours, in one operation.
const RUN: usize = 64;
/// Operations at a time.
const TOGETHER: usize = 64;
/// An epoch ends when its changes take this part of the log, so that others find room when it is replayed.
const SHARE: u64 = 8;

/// A part of an epoch.
#[derive(Default)]
struct Part {
    /// The position after it.
    end: u64,
    /// Pages that become zero before the pages are written.
    zero: Vec<Range<u64>>,
    /// Position and checksum of the newest version of each page.
    newest: BTreeMap<u64, (u64, u32)>,
}

impl<H: Host, M: Deref<Target = [AtomicU64]>> PageLog<H, M> {
    /// Replays the oldest epoch, if it is due; returns false if there is nothing to do before the next change. One task runs this.
    pub async fn replay_next(&self) -> bool {
        let Some(order) = self.host.order() else { return false };
        let Some(epoch) = self.epoch_due(order) else { return false };
        if order.seat.has_failed() {
            self.fail(Errno::EIO);
            return false;
        }
        if !order.seat.may_replay(epoch) {
            return false;
        }
        if let Err(errno) = self.replay_epoch(order, epoch).await {
            let failures = {
                let _guard = self.lock();
                self.note_unwritten(errno);
                self.words.add(Mark::Refusals, 1);
                self.words.add(Mark::RefusedInRow, 1);
                self.words.get(Mark::RefusedInRow)
            };
            self.host.notify();
            if errno != Errno::ESHUTDOWN {
                self.host.rest(failures).await;
            }
        }
        true
    }

    /// Whether changes wait for their replay.
    pub fn has_unreplayed(&self) -> bool {
        let _guard = self.lock();
        self.host.order().is_some_and(|order| self.first_unreplayed(order).is_some())
    }

    /// Whether a change must wait, because the origin is too far behind.
    pub fn is_behind(&self) -> bool {
        let behind = self.host.order().is_some_and(|order| order.is_behind(self.host.clock()));
        behind && self.failed().is_none()
    }

    /// The epoch of a change that is put now.
    pub(super) fn epoch(&self) -> u64 {
        self.host.order().map_or(0, |order| order.seat.current())
    }

    /// A change of this epoch was put. The caller holds the lock.
    pub(super) fn entered(&self, epoch: u64) {
        let first = |order: &Order| order.entered(epoch, self.host.clock());
        if self.host.order().is_some_and(first) {
            // The task that replays waits for a change of the log.
            self.host.notify();
        }
    }

    /// Ends the current epoch: a change is durable.
    pub(super) fn end_epoch(&self) {
        if let Some(order) = self.host.order() {
            order.seat.end();
        }
    }

    /// As [`end_epoch`](Self::end_epoch), for a FLUSH, which every log of the volume gets.
    pub(super) fn flush_ends_epoch(&self) {
        if let Some(order) = self.host.order() {
            order.seat.end_for_all();
            self.host.notify();
        }
    }

    /// Pages are zero by a tombstone at this position, until it is replayed.
    pub(super) fn bury_until_replay(&self, pages: Range<u64>, position: u64) {
        if let Some(order) = self.host.order() {
            order.bury(pages, position);
        }
    }

    /// Whether a page is.
    pub(super) fn is_buried(&self, page: u64) -> bool {
        self.host.order().is_some_and(|order| order.is_buried(page))
    }

    /// A log was opened: it takes its place among those of the volume.
    pub(super) fn resume_replay(&self) {
        let Some(order) = self.host.order() else { return };
        let _guard = self.lock();
        let last = self.last_epoch(self.words.get(Mark::Replayed)..self.words.get(Mark::Last));
        order.resume(self.first_unreplayed(order), last, self.host.clock());
    }

    /// Replays everything that was put before.
    pub(super) async fn replay_all(&self) -> Result<(), Errno> {
        let Some(order) = self.host.order() else { return Ok(()) };
        order.seat.end();
        let (target, refusals) = {
            let _guard = self.lock();
            (self.words.get(Mark::Last), self.words.get(Mark::Refusals))
        };
        self.host.notify();
        let done =
            || self.words.get(Mark::Replayed) >= target || self.first_unreplayed(order).is_none();
        loop {
            let seen = self.host.changes();
            // Nothing is replayed while it is sealed.
            self.unseal().await?;
            {
                let _guard = self.lock();
                if done() {
                    let lost =
                        self.words.get(Mark::Dirty) > 0 && self.lost_pages().next().is_some();
                    return if lost { Err(Errno::EIO) } else { Ok(()) };
                }
                if let Some(errno) = self.failed() {
                    return Err(errno);
                }
                if self.words.get(Mark::Refusals) != refusals {
                    return Err(self.unwritten());
                }
            }
            self.host.changed(seen).await;
        }
    }

    /// The oldest epoch, if it is due; ends it if it is the current one and has lasted long enough.
    fn epoch_due(&self, order: &Order) -> Option<u64> {
        let _guard = self.lock();
        let get = |mark| self.words.get(mark);
        if self.has_ended() {
            order.seat.fail();
        }
        if self.failed().is_some() {
            return None;
        }
        let Some(epoch) = self.first_unreplayed(order) else {
            // Up to the open batch: the mark is where a batch begins.
            let open = self.words.open().map(|open| self.words.batch(open, BatchMark::Start));
            let end = open.unwrap_or(get(Mark::Last)).min(get(Mark::Last));
            if get(Mark::Replayed) < end {
                self.words.set(Mark::Replayed, end);
                self.host.notify();
            }
            order.replayed(get(Mark::Replayed), None);
            return None;
        };
        // The volume stops, or rests; the log of a shard that does neither may wait for this one.
        if get(Mark::Sealed) != 0 && !order.seat.is_awaited(epoch) {
            return None;
        }
        if epoch < order.seat.current() {
            return Some(epoch);
        }
        let size = get(Mark::Last) - get(Mark::Replayed);
        let large = size > u64::from(self.log.blocks) / SHARE;
        if large || get(Mark::Wanted) != 0 || order.ends_soon(self.host.clock()) {
            order.seat.end();
            return Some(epoch);
        }
        None
    }

    /// The epoch of the first change that is not replayed; `None` if there is none. The caller holds the lock.
    fn first_unreplayed(&self, order: &Order) -> Option<u64> {
        // A version that was replaced has a newer one behind it, or a tombstone.
        if self.words.get(Mark::Dirty) == 0 && !order.has_buried() {
            return None;
        }
        let first = self.words.get(Mark::Replayed);
        (first < self.words.get(Mark::Last)).then(|| self.epoch_at(first))
    }

    /// The epoch of a position where a batch begins. A log of another policy has no epochs.
    fn epoch_at(&self, position: u64) -> u64 {
        self.last_epoch(position..position + 1)
    }

    /// The greatest epoch at these positions.
    fn last_epoch(&self, positions: Range<u64>) -> u64 {
        let words = positions.map(|position| self.words.slot(self.log.slot(position)));
        words.filter(|word| kind_of(*word) == Kind::Header).map(page_of).max().unwrap_or(0)
    }

    async fn replay_epoch(&self, order: &Order, epoch: u64) -> Result<(), Errno> {
        self.unseal().await?;
        let mut end = self.words.get(Mark::Replayed);
        let mut written = false;
        while let Some(part) = self.part(epoch, end) {
            self.settle(part.end).await?;
            written |= !part.zero.is_empty() || !part.newest.is_empty();
            end = part.end;
            self.write_part(part).await?;
        }
        let flushed = !written || mutant::is_active("ordered-unflushed");
        if !flushed && let Err(errno) = self.host.flush_origin().await {
            // The origin may have lost writes, and a later flush would not report it.
            self.fail(errno);
            return Err(errno);
        }
        until_ready(&self.host, || self.become_keeper()).await?;
        let passed = self.pass_as_keeper(order, end).await;
        self.resign();
        passed
    }

    /// The next part of an epoch from a position on; `None` at its end.
    fn part(&self, epoch: u64, from: u64) -> Option<Part> {
        let _guard = self.lock();
        let last = self.words.get(Mark::Last).min(from + PART);
        let mut part = Part { end: from, ..Part::default() };
        while part.end < last {
            let slot = self.log.slot(part.end);
            let (word, crc) = (self.words.slot(slot), self.words.crc(slot));
            let page = page_of(word);
            match kind_of(word) {
                Kind::Header if page != epoch => break,
                Kind::Header | Kind::Lost => {}
                Kind::Tombstone => {
                    let pages = page..page + u64::from(crc);
                    part.newest.retain(|page, _| !pages.contains(page));
                    part.zero.extend(Some(pages).filter(|pages| !pages.is_empty()));
                }
                Kind::Page if word & DIRTY != 0 => {
                    let newest = self.words.find(page);
                    let newest = newest.filter(|_| mutant::is_active("ordered-newest"));
                    let version = match newest {
                        Some(slot) => (self.position(slot), self.words.crc(slot)),
                        None => (part.end, crc),
                    };
                    part.newest.insert(page, version);
                }
                Kind::Page => {}
            }
            part.end += 1;
        }
        (part.end > from).then_some(part)
    }

    async fn write_part(&self, part: Part) -> Result<(), Errno> {
        for pages in part.zero {
            self.host.unmap_origin(pages).await?;
        }
        let mut bytes = self.read_versions_of(&part.newest).await?;
        let mut runs: Vec<(u64, Vec<Buf>)> = Vec::new();
        for page in part.newest.keys() {
            let Some(bytes) = bytes.remove(page) else { continue };
            match runs.last_mut() {
                Some((first, run)) if *first + run.len() as u64 == *page && run.len() < RUN => {
                    run.push(bytes);
                }
                _ => runs.push((*page, vec![bytes])),
            }
        }
        while !runs.is_empty() {
            let some = runs.drain(..runs.len().min(TOGETHER));
            let write = |(first, pages)| self.host.write_origin_run(first, pages);
            each(some.map(write).collect()).await.into_iter().collect::<Result<(), _>>()?;
        }
        Ok(())
    }

    /// Reads versions from flash, by page. Those that are lost are missing.
    async fn read_versions_of(
        &self,
        newest: &BTreeMap<u64, (u64, u32)>,
    ) -> Result<HashMap<u64, Buf>, Errno> {
        let mut places: Vec<(u64, u64, u32)> =
            newest.iter().map(|(page, (position, crc))| (*position, *page, *crc)).collect();
        places.sort_unstable();
        let spans = places.chunk_by(|a, b| {
            let same = a.0 / RUN as u64 == b.0 / RUN as u64;
            same && self.log.slot(a.0) < self.log.slot(b.0)
        });
        let jobs = spans.map(|span| self.read_versions_in(span)).collect();
        let read: Result<Vec<_>, Errno> = each(jobs).await.into_iter().collect();
        Ok(read?.into_iter().flatten().collect())
    }

    /// Reads versions that are close together: position, page, checksum.
    async fn read_versions_in(&self, places: &[(u64, u64, u32)]) -> Result<Vec<(u64, Buf)>, Errno> {
        let (Some(first), Some(last)) = (places.first(), places.last()) else {
            return Ok(Vec::new());
        };
        let blocks = last.0 - first.0 + 1;
        let buf = Buf::with_len((blocks * self.log.page()) as usize);
        let span = ReadSpan {
            first: first.0,
            page_bytes: self.log.page() as usize,
            bytes: self.host.read_flash(self.log.block(first.0), buf).await.ok(),
        };
        let mut found = Vec::with_capacity(places.len());
        for &(position, page, crc) in places {
            let bytes = self.read_version((position, page, crc), &span).await?;
            found.extend(bytes.map(|bytes| (page, bytes)));
        }
        Ok(found)
    }

    /// A version, from what was read or from flash; `None` if it is damaged.
    async fn read_version(
        &self,
        (position, page, crc): (u64, u64, u32),
        span: &ReadSpan,
    ) -> Result<Option<Buf>, Errno> {
        let mut bad = BadReads::default();
        loop {
            let place = Place { position, crc, staged: None };
            let errno = match self.page_bytes(place, span).await {
                Ok(bytes) => return Ok(Some(bytes)),
                Err(Unread::Damaged) => break,
                Err(Unread::Device(errno)) => errno,
            };
            if !self.reads_again(errno, &mut bad).await? {
                // The epoch is tried again, unless this place stays bad.
                if !self.host.gives_up(self.words.get(Mark::RefusedInRow)) {
                    return Err(errno);
                }
                break;
            }
        }
        until_ready(&self.host, || self.become_keeper()).await?;
        let recorded = self.record_loss(page, position).await;
        self.resign();
        recorded.map(|()| None)
    }

    /// The only copy of a page is damaged: a record of that is durable before its epoch counts as replayed, since recovery takes what
    /// is replayed as clean. The caller is the keeper.
    async fn record_loss(&self, page: u64, position: u64) -> Result<(), Errno> {
        let slot = self.log.slot(position);
        {
            let _guard = self.lock();
            if !self.is_newest_at(page, slot, position) {
                return Ok(());
            }
        }
        self.host.damaged(page, true);
        let recorded = self.append_instead(slot, page, None).await?;
        {
            let _guard = self.lock();
            self.words.add(Mark::Losses, 1);
        }
        self.settle(recorded).await
    }

    /// Records durably that the origin has every change before this position, and makes those pages clean.
    async fn pass_as_keeper(&self, order: &Order, end: u64) -> Result<(), Errno> {
        let before = self.words.get(Mark::Replayed);
        if self.words.get(Mark::Sealed) != 0 {
            // The volume stops; the next start repeats the epoch.
            return Ok(());
        }
        self.words.set(Mark::Replayed, end);
        let segments = self.words.get(Mark::Segments);
        if !mutant::is_active("ordered-unrecorded") {
            let written = insist(&self.host, async || self.write_header(segments, None).await);
            if let Err(errno) = written.await {
                self.words.set(Mark::Replayed, before);
                return Err(errno);
            }
        }
        let _guard = self.lock();
        self.words.set(Mark::RefusedInRow, 0);
        for position in before..end {
            let slot = self.log.slot(position);
            let word = self.words.slot(slot);
            if word & VALID != 0 && word & DIRTY != 0 && kind_of(word) == Kind::Page {
                self.words.make_clean(slot);
                self.words.set_slot(slot, self.words.slot(slot) | REPLAYED);
            }
        }
        order.replayed(end, self.first_unreplayed(order));
        self.host.notify();
        Ok(())
    }
}
