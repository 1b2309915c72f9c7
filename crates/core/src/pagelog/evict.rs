// SPDX-License-Identifier: MIT OR Apache-2.0
//! Eviction at the tail, a group of pages at a time (FaCE 4.3).
//!
//! A group is whole batches with at least a batch's pages together, read at once. Referenced pages are appended again at the
//! head (if all are referenced, the first is evicted anyway), and so are those that the host keeps; dirty pages are written to
//! the origin; the others are dropped.
//! Then `Evicted` advances. The tail follows, for several groups together, when the origin is flushed and the pages appended
//! again are durable (rule L2).

use std::ops::Deref;
use std::sync::atomic::AtomicU64;

use super::error::Unread;
use super::host::Host;
use super::paths::{PageLog, Put};
use super::queue::{empty_blocks, reserve};
use super::words::{DIRTY, Kind, Mark, REFERENCED, VALID, kind_of, page_of};
use crate::buf::Buf;
use crate::checksum::crc32c;
use crate::mutant;
use crate::request::Errno;

/// A group of pages to evict: its slots by treatment.
#[derive(Default)]
struct Group {
    /// The position after it.
    end: u64,
    /// Appended again.
    again: Vec<u32>,
    /// Written to the origin.
    dirty: Vec<u32>,
    /// Valid and clean: dropped.
    clean: Vec<u32>,
    /// All valid slots.
    valid: Vec<u32>,
    /// The first pages of tombstones.
    tombstones: Vec<u64>,
    /// Position of the newest versions of pages that are not valid here: they must be durable before the tail moves.
    newer: u64,
}

/// Pages of a group, read together.
#[derive(Default)]
pub(super) struct ReadSpan {
    pub first: u64,
    pub page_bytes: usize,
    pub bytes: Option<Buf>,
}

impl ReadSpan {
    /// The page at a position, if it is in the span and intact.
    fn page(&self, position: u64, crc: u32) -> Option<Buf> {
        let at = position.checked_sub(self.first)? as usize * self.page_bytes;
        let page = self.bytes.as_ref()?.get(at..at + self.page_bytes)?;
        (crc32c(page) == crc).then(|| Buf::copy_of(page))
    }
}

/// The place of a slot's page at the time of the lock: the slot may hold another page before it is read.
pub(super) struct Place {
    pub position: u64,
    pub crc: u32,
    /// Its bytes, if they are in memory.
    pub staged: Option<Buf>,
}

impl<H: Host, M: Deref<Target = [AtomicU64]>> PageLog<H, M> {
    /// Makes one step that is due: writes a segment, makes the tail durable, or evicts. Returns whether one was due. One
    /// keeper runs at a time.
    pub async fn keep(&self) -> bool {
        if !self.become_keeper() {
            return false;
        }
        let before = self.host.hurry(true);
        let done = self.keep_step().await;
        self.host.hurry(before);
        let _guard = self.lock();
        self.words.set(Mark::Keeper, 0);
        // Without tasks, a waiting process continues as the keeper.
        if done || !self.host.has_tasks() && self.words.get(Mark::Wanted) != 0 {
            self.host.notify();
        }
        done
    }

    /// Becomes the keeper, unless a living one exists.
    pub(super) fn become_keeper(&self) -> bool {
        let _guard = self.lock();
        let keeper = self.words.get(Mark::Keeper);
        let free = keeper == 0 || self.host.is_gone(keeper);
        if free {
            self.words.set(Mark::Keeper, self.host.me());
        }
        free
    }

    pub(super) fn resign(&self) {
        let _guard = self.lock();
        self.words.set(Mark::Keeper, 0);
        self.host.notify();
    }

    async fn keep_step(&self) -> bool {
        if self.has_ended() || self.words.get(Mark::Sealed) != 0 {
            return false;
        }
        if self.failed().is_some() || self.words.get(Mark::Doubted) != 0 {
            return self.recheck().await;
        }
        let (segment_due, low, settle_due, marks_due) = {
            let _guard = self.lock();
            let get = |mark| self.words.get(mark);
            let blocks = u64::from(self.log.blocks);
            let wanted = get(Mark::Wanted) != 0;
            let need = empty_blocks(&self.log) + reserve(&self.log) + empty_blocks(&self.log);
            // Several groups ahead, so that they share one flush of each device.
            let ahead = match self.host.keeps_ahead() {
                true => (blocks / 8).min(16 * empty_blocks(&self.log)),
                false => 0,
            };
            let room = |mark| (get(mark) + blocks).saturating_sub(get(Mark::Head));
            let short = room(Mark::DurableTail) < need + ahead / 4 || wanted;
            (
                get(Mark::Written) >= get(Mark::Segments) + self.log.segment(),
                room(Mark::Evicted) < need + ahead,
                get(Mark::Evicted) > get(Mark::Tail)
                    && short
                    && (wanted || get(Mark::Written) >= get(Mark::Need)),
                get(Mark::Tail) > get(Mark::DurableTail)
                    && (wanted || get(Mark::WrittenTail) > get(Mark::DurableTail)),
            )
        };
        if segment_due {
            return self.keep_marks().await;
        }
        // Groups first, so that the tail passes as many as possible together.
        if low && self.evict_group().await {
            return true;
        }
        if settle_due {
            return self.settle_tail().await.is_ok();
        }
        if marks_due {
            return self.keep_marks().await;
        }
        false
    }

    /// Evicts one group; returns whether there was one.
    async fn evict_group(&self) -> bool {
        let start = self.words.get(Mark::Evicted);
        let Some(mut group) = self.take_group(start) else { return false };
        for page in std::mem::take(&mut group.tombstones) {
            self.host.tombstone_done(page).await;
            let _guard = self.lock();
            self.words.add(Mark::OriginWrites, 1);
        }
        let span = self.read_span(group.again.iter().chain(&group.dirty)).await;
        let mut need = group.newer;
        let mut dirty = std::mem::take(&mut group.dirty);
        for slot in group.again {
            match self.append_again(slot, &span).await {
                Some(position) => need = need.max(position),
                None => dirty.push(slot),
            }
        }
        let mut left = dirty.len() + group.clean.len();
        let kept = self.write_evicted(&dirty, &span).await;
        for slot in dirty.clone() {
            if !kept.contains(&page_of(self.words.slot(slot))) {
                continue;
            }
            // The origin failed the write. The page stays in the log, or a record of its loss does.
            match self.keep_dirty(slot).await {
                Ok(position) => need = need.max(position),
                Err(errno) => {
                    self.stumble(errno).await;
                    return true;
                }
            }
            left -= 1;
        }
        let _guard = self.lock();
        // Versions that are no longer valid were replaced, or ended by a tombstone.
        for slot in &group.valid {
            let word = self.words.slot(*slot);
            if word & VALID == 0 {
                need = need.max(self.newer_locked(page_of(word)));
            }
        }
        // Before the drops: if this process dies here, `may_come_back` covers the dropped pages, and a repair drops the
        // rest.
        self.words.raise(Mark::Need, need);
        self.words.set(Mark::Evicted, group.end);
        for slot in group.valid {
            if self.words.slot(slot) & VALID != 0 && self.position(slot) < group.end {
                self.words.drop_valid(slot);
            }
        }
        self.words.add(Mark::Evictions, left as u64);
        self.host.evicted(left as u64);
        self.words.set(Mark::Stumbles, 0);
        true
    }

    /// Whole batches from `start` on, with at least the pages of a full batch.
    fn take_group(&self, start: u64) -> Option<Group> {
        let _guard = self.lock();
        let words = &self.words;
        let limit = self.evictable();
        let mut group = Group { end: start, ..Group::default() };
        let (mut pages, mut last) = (0, Kind::Header);
        let blocks = u64::from(self.log.blocks);
        let room = (words.get(Mark::DurableTail) + blocks).saturating_sub(words.get(Mark::Head));
        let room = room >= 3 * empty_blocks(&self.log);
        let chances = self.settings.second_chance && room;
        // Pages that the host keeps wait for the room of groups that are evicted already.
        let more = words.get(Mark::DurableTail) < words.get(Mark::Evicted);
        let mut first = None;
        while group.end < limit {
            let slot = self.log.slot(group.end);
            let (word, kind) = (words.slot(slot), kind_of(words.slot(slot)));
            if pages >= self.log.batch_pages && kind == Kind::Header && last != Kind::Header {
                break;
            }
            pages += u32::from(kind != Kind::Header);
            last = kind;
            group.end += 1;
            if word & VALID != 0 {
                group.valid.push(slot);
            }
            match kind {
                Kind::Header => {}
                Kind::Tombstone => group.tombstones.push(page_of(word)),
                _ if word & VALID == 0 => {
                    group.newer = group.newer.max(self.newer_locked(page_of(word)));
                }
                Kind::Lost => group.again.push(slot),
                Kind::Page if (room || more) && self.host.keeps(page_of(word)) => {
                    if !room {
                        return None;
                    }
                    group.again.push(slot);
                }
                Kind::Page if chances && word & REFERENCED != 0 => {
                    first.get_or_insert(group.again.len());
                    group.again.push(slot);
                }
                Kind::Page if word & DIRTY != 0 => group.dirty.push(slot),
                Kind::Page => group.clean.push(slot),
            }
        }
        if let Some(first) = first.filter(|_| group.again.len() == pages as usize) {
            let slot = group.again.remove(first);
            let dirty = words.slot(slot) & DIRTY != 0;
            if dirty { group.dirty.push(slot) } else { group.clean.push(slot) }
        }
        (group.end > start).then_some(group)
    }

    /// Reads the pages from the first to the last of these slots in one operation, if they are close together.
    pub(super) async fn read_span<'a>(&self, slots: impl Iterator<Item = &'a u32>) -> ReadSpan {
        let positions: Vec<u64> = {
            let _guard = self.lock();
            let valid = slots.filter(|s| self.words.slot(**s) & VALID != 0);
            valid.map(|s| self.position(*s)).collect()
        };
        let (Some(first), Some(last)) = (positions.iter().min(), positions.iter().max()) else {
            return ReadSpan::default();
        };
        let run = last - first + 1;
        let crosses = self.log.slot(*first) > self.log.slot(*last);
        if positions.len() < 2 || crosses || run > 2 * u64::from(self.log.batch_blocks()) {
            return ReadSpan::default();
        }
        let buf = Buf::with_len((run * self.log.page()) as usize);
        let bytes = self.host.read_flash(self.log.block(*first), buf).await.ok();
        ReadSpan { first: *first, page_bytes: self.log.page() as usize, bytes }
    }

    /// The place of a slot's page. The caller holds the lock.
    pub(super) fn place(&self, slot: u32) -> Place {
        let position = self.position(slot);
        let staged = self.words.in_memory(position).map(|(buffer, place)| {
            let mut buf = Buf::with_len(self.log.page() as usize);
            self.host.staged(buffer, place, &mut buf);
            buf
        });
        Place { position, crc: self.words.crc(slot), staged }
    }

    /// A slot's page: from the span, from memory, or from flash.
    pub(super) async fn page_bytes(&self, place: Place, span: &ReadSpan) -> Result<Buf, Unread> {
        let Place { position, crc, staged } = place;
        if let Some(staged) = staged {
            return Ok(staged);
        }
        let buf = Buf::with_len(self.log.page() as usize);
        if let Some(page) = span.page(position, crc) {
            return Ok(page);
        }
        let read = self.host.read_flash(self.log.block(position), buf).await;
        let buf = read.map_err(Unread::Device)?;
        if crc32c(&buf) == crc || mutant::is_active("page-log-unchecked") {
            Ok(buf)
        } else {
            Err(Unread::Damaged)
        }
    }

    /// Takes the room of groups that are evicted already; returns whether there was any.
    ///
    /// # Errors
    /// If a device fails.
    pub(super) async fn room_of_evicted(&self) -> Result<bool, Errno> {
        if self.keep_marks().await {
            return Ok(true);
        }
        let get = |mark| self.words.get(mark);
        match get(Mark::Evicted) > get(Mark::Tail) {
            true => self.settle_tail().await.map(|()| true),
            false => Ok(false),
        }
    }

    /// Appends a page again, if it is still valid in its slot. Returns the position that must be durable before the tail
    /// passes the slot; `None` if it was not appended.
    async fn append_again(&self, slot: u32, span: &ReadSpan) -> Option<u64> {
        let word = self.words.slot(slot);
        if word & VALID == 0 {
            return Some(self.newer(page_of(word)));
        }
        let (page, dirty) = (page_of(word), word & DIRTY != 0);
        if kind_of(word) == Kind::Lost {
            return self.keep_dirty(slot).await.ok();
        }
        let place = {
            let _guard = self.lock();
            self.place(slot)
        };
        let bytes = self.page_bytes(place, span).await;
        // A dirty page is read again before it counts as lost.
        if matches!(bytes, Err(Unread::Damaged)) && !dirty && self.is_newest_in(page, slot) {
            self.host.damaged(page, false);
        }
        let bytes = bytes.ok()?;
        let put = Put {
            kind: Kind::Page,
            page,
            // The mutant takes a page read from flash as clean.
            dirty: dirty && !mutant::is_active("page-log-again-clean"),
            crc: crc32c(&bytes),
            bytes: &bytes,
            instead_of: Some(slot),
            urgent: true,
        };
        match self.append(&put).await {
            Ok(Some(position)) => {
                let _guard = self.lock();
                self.words.add(Mark::AppendedAgain, 1);
                Some(position)
            }
            Ok(None) if !self.is_newest_in(page, slot) => Some(self.newer(page)),
            _ => None,
        }
    }

    /// Appends a page that the origin does not accept again, or a record of its loss.
    async fn keep_dirty(&self, slot: u32) -> Result<u64, Errno> {
        let word = self.words.slot(slot);
        if word & VALID == 0 {
            return Ok(self.newer(page_of(word)));
        }
        let found = match kind_of(word) {
            Kind::Lost => Err(Unread::Damaged),
            _ => {
                let place = {
                    let _guard = self.lock();
                    self.place(slot)
                };
                self.page_bytes(place, &ReadSpan::default()).await
            }
        };
        match found {
            Ok(bytes) => self.append_instead(slot, page_of(word), Some(bytes)).await,
            Err(Unread::Damaged) => self.append_instead(slot, page_of(word), None).await,
            // It may be readable later.
            Err(Unread::Device(errno)) => Err(errno),
        }
    }

    /// Appends a dirty version of a page instead of that in a slot; without bytes a record that it is lost. Returns the position that
    /// must be durable before the slot counts as replaced.
    pub(super) async fn append_instead(
        &self,
        slot: u32,
        page: u64,
        bytes: Option<Buf>,
    ) -> Result<u64, Errno> {
        let (kind, lack) = match bytes {
            Some(_) => (Kind::Page, Errno::ENOSPC),
            None => (Kind::Lost, Errno::EIO),
        };
        let bytes = bytes.unwrap_or_else(|| Buf::zeroed(self.log.page() as usize));
        let put = Put {
            kind,
            page,
            dirty: true,
            crc: crc32c(&bytes),
            bytes: &bytes,
            instead_of: Some(slot),
            urgent: true,
        };
        match self.append(&put).await? {
            Some(position) => Ok(position),
            None if self.is_newest_in(page, slot) => Err(lack),
            None => Ok(self.newer(page)),
        }
    }

    /// The position that must be durable before the tail passes an invalid version: that of the version that replaced it, or
    /// of the tombstone that ended it.
    fn newer(&self, page: u64) -> u64 {
        let _guard = self.lock();
        self.newer_locked(page)
    }

    pub(super) fn newer_locked(&self, page: u64) -> u64 {
        match self.words.find(page) {
            Some(slot) => self.position(slot) + 1,
            None => self.words.get(Mark::Tombstone),
        }
    }

    fn is_newest_in(&self, page: u64, slot: u32) -> bool {
        let _guard = self.lock();
        self.words.find(page) == Some(slot)
    }

    /// Moves the tail to `Evicted`, when that is safe (rule L2).
    pub(super) async fn settle_tail(&self) -> Result<(), Errno> {
        let (target, need, writes, flushed) = {
            let _guard = self.lock();
            let get = |mark| self.words.get(mark);
            (get(Mark::Evicted), get(Mark::Need), get(Mark::OriginWrites), get(Mark::OriginFlushed))
        };
        if writes != flushed
            && !mutant::is_active("page-log-leave-unflushed")
            && let Err(errno) = self.host.flush_origin().await
        {
            // The origin may have lost writes, and a later flush would not report it.
            self.fail(errno);
            return Err(errno);
        }
        if !mutant::is_active("page-log-again-undurable") {
            self.settle(need).await?;
        }
        let _guard = self.lock();
        // After the flush: a process that dies before it has flushed nothing.
        self.words.raise(Mark::OriginFlushed, writes);
        self.words.raise(Mark::Tail, target);
        self.host.notify();
        Ok(())
    }
}
