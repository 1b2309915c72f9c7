// SPDX-License-Identifier: MIT OR Apache-2.0
//! What was written to dirty slots since the last flush of flash: a checksum of each sector.
//!
//! A flush that fails may have lost what the device had acknowledged, and the next one succeeds without it. From then on
//! the pages written before are *doubted* until they were read back, compared and written again
//! ([`DirtyFlash`](super::dirty_flash)). Reads of pages in this record are compared too, so that a lost write is never
//! returned before it is found. A sector that does not match is *lost*: reads get EIO until it is written again. A sector that
//! was zeroed is zeroed again instead.
//!
//! Invariants: at most one write or verification *holds* a page, so its checksums match the last write that ended. A page
//! leaves the record when a flush that began after its last write has succeeded, and the shard knows of no flush that failed
//! meanwhile.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use crate::buf::{PAGE, SECTOR};
use crate::checksum::crc32c;
use crate::exec::{Exec, WaitList};
use crate::flash::InFlight;
use crate::mutant;
use crate::pages::{Pages, touched};

/// Sectors of a page.
const SECTORS: usize = PAGE / SECTOR;
/// Pages at which the next write flushes flash first. Writes in flight may exceed it.
const MOST: usize = 16_384;
/// Memory of the record, at most.
pub(crate) const FLASH_WRITES_BYTES: u64 = 96 * MOST as u64;

/// A slot, and a page in it.
pub(super) type Key = (u32, u32);

/// A page that was written.
#[derive(Default)]
struct Page {
    sums: [u32; SECTORS],
    /// Sectors with a checksum, a bit each.
    known: u8,
    held: bool,
    doubted: bool,
    /// Flushes that had begun when its last write ended.
    after: u64,
}

#[derive(Default)]
struct State {
    pages: BTreeMap<Key, Page>,
    /// Checksums of writes that failed: a sector may have one of them instead.
    failed: BTreeMap<(Key, u8), Vec<u32>>,
    /// Lost sectors, a bit each.
    lost: BTreeMap<Key, u8>,
    /// How many times sectors were found lost.
    losses: u64,
    /// Whether a page may be doubted.
    doubting: bool,
    flushes: u64,
    /// Flushes that have succeeded.
    ended: u64,
    doubts: u64,
}

/// The number of successful flushes when a read began; `None` if the read needs no comparison.
#[derive(Clone, Copy)]
pub(super) struct Watch(Option<u64>);

/// A flush that began: its number, and how many had failed.
#[derive(Clone, Copy)]
pub(super) struct Covers {
    number: u64,
    doubts: u64,
}

/// The record of one attachment.
pub(crate) struct FlashWrites {
    exec: Exec<InFlight>,
    state: RefCell<State>,
    waiting: WaitList,
    most: usize,
}

/// Pages of a slot, held until this is dropped.
pub(super) struct Held<'a> {
    writes: &'a FlashWrites,
    slot: u32,
    pages: Pages,
}

/// Every page of a slot.
fn all_of(slot: u32) -> RangeInclusive<Key> {
    (slot, 0)..=(slot, u32::MAX)
}

/// The checksums of the sectors of some bytes.
pub(super) fn sums_of(bytes: &[u8]) -> Vec<u32> {
    bytes.chunks(SECTOR).map(crc32c).collect()
}

/// The checksum of a sector of zeroes.
fn sum_of_zeroes() -> u32 {
    crc32c(&[0; SECTOR])
}

/// The checksums of as many zeroes.
pub(super) fn sums_of_zeroes(len: u64) -> Vec<u32> {
    vec![sum_of_zeroes(); (len / SECTOR as u64) as usize]
}

/// The sectors of a page that lie in a range of the slot, a bit each.
fn sectors_in(page: u32, (within, len): (u64, u64)) -> u8 {
    let start = u64::from(page) * PAGE as u64;
    let inside = |sector: &u64| {
        let at = start + sector * SECTOR as u64;
        at >= within && at + SECTOR as u64 <= within + len
    };
    (0..SECTORS as u64).filter(inside).fold(0, |mask, sector| mask | 1 << sector)
}

impl State {
    /// Whether a sector with this checksum has the bytes that were written last.
    fn is_expected(&self, key: Key, sector: usize, sum: u32) -> bool {
        let expected = self.pages.get(&key).map(|page| page.sums[sector]);
        let failed = || self.failed.get(&(key, sector as u8));
        expected == Some(sum) || failed().is_some_and(|sums| sums.contains(&sum))
    }

    fn lose(&mut self, key: Key, sectors: u8) {
        if sectors != 0 {
            self.losses += 1;
            *self.lost.entry(key).or_default() |= sectors;
            self.pages.entry(key).or_default().known &= !sectors;
        }
    }
}

impl FlashWrites {
    /// An empty record of a cache with so many pages.
    pub(super) fn new(exec: &Exec<InFlight>, cached_pages: u64) -> Self {
        let most = (cached_pages / 8).clamp(1, MOST as u64) as usize;
        Self { exec: exec.clone(), state: RefCell::default(), waiting: WaitList::default(), most }
    }

    /// Whether flash must be flushed before more is written.
    pub(super) fn is_full(&self) -> bool {
        self.state.borrow().pages.len() >= self.most
    }

    /// Whether the record is empty, and a flush has succeeded since the attach.
    pub(super) fn is_durable(&self) -> bool {
        let state = self.state.borrow();
        state.ended > 0 && state.pages.is_empty()
    }

    /// How many flushes of the device have failed.
    pub(crate) fn doubts(&self) -> u64 {
        self.state.borrow().doubts
    }

    /// A flush of the device failed, for this shard or another.
    pub(crate) fn doubt(&self) {
        let mut state = self.state.borrow_mut();
        state.doubts += 1;
        state.doubting = true;
        if mutant::is_active("write-back-trusts-next-flush") {
            return;
        }
        // Also what is being written: the device may have taken it before it lost it.
        state.pages.values_mut().for_each(|page| page.doubted = true);
    }

    /// Some pages that are doubted.
    pub(super) fn doubted(&self, most: usize) -> Vec<Key> {
        let mut state = self.state.borrow_mut();
        if !state.doubting {
            return Vec::new(); // without a look at every page
        }
        let doubted = state.pages.iter().filter(|(_, page)| page.doubted);
        let doubted: Vec<Key> = doubted.map(|(key, _)| *key).take(most).collect();
        state.doubting = !doubted.is_empty();
        doubted
    }

    /// Whether a page is doubted.
    pub(super) fn is_doubted(&self) -> bool {
        !self.doubted(1).is_empty()
    }

    /// A flush begins.
    pub(super) fn flush_begins(&self) -> Covers {
        let mut state = self.state.borrow_mut();
        state.flushes += 1;
        Covers { number: state.flushes, doubts: state.doubts }
    }

    /// A flush has succeeded. Returns false if it proves nothing, since another one failed meanwhile.
    pub(super) fn flushed(&self, Covers { number, doubts }: Covers) -> bool {
        let mut state = self.state.borrow_mut();
        if state.doubts != doubts && !mutant::is_active("write-back-trusts-next-flush") {
            return false;
        }
        state.ended += 1;
        state.pages.retain(|_, page| page.held || page.doubted || page.after >= number);
        let State { pages, failed, .. } = &mut *state;
        failed.retain(|(key, _), _| pages.contains_key(key));
        true
    }

    /// Waits until no other task holds these pages, and holds them.
    pub(super) async fn hold(&self, slot: u32, pages: Pages) -> Held<'_> {
        loop {
            let free = {
                let mut state = self.state.borrow_mut();
                let mut range = state.pages.range((slot, pages.start)..(slot, pages.end));
                let free = !range.any(|(_, page)| page.held);
                if free {
                    for page in pages.clone() {
                        state.pages.entry((slot, page)).or_default().held = true;
                    }
                }
                free
            };
            if free {
                return Held { writes: self, slot, pages };
            }
            self.waiting.wait(&self.exec).await;
        }
    }

    /// Waits until no task holds a page of a slot.
    pub(super) async fn unheld(&self, slot: u32) {
        while self.is_held(slot) {
            self.waiting.wait(&self.exec).await;
        }
    }

    /// Whether a task holds a page of a slot.
    pub(super) fn is_held(&self, slot: u32) -> bool {
        self.state.borrow().pages.range(all_of(slot)).any(|(_, page)| page.held)
    }

    /// Removes a slot whose unit was evicted.
    pub(super) fn forget(&self, slot: u32) {
        let mut state = self.state.borrow_mut();
        let pages: Vec<Key> = state.pages.range(all_of(slot)).map(|(key, _)| *key).collect();
        for key in pages {
            state.pages.remove(&key);
        }
        state.failed.retain(|((of, _), _), _| *of != slot);
        state.lost.retain(|(of, _), _| *of != slot);
    }

    /// Whether a sector of a slot is lost.
    pub(crate) fn has_lost(&self, slot: u32) -> bool {
        self.state.borrow().lost.range(all_of(slot)).next().is_some()
    }

    /// The slots with lost sectors.
    pub(super) fn lost_slots(&self) -> Vec<u32> {
        let mut slots: Vec<u32> = self.state.borrow().lost.keys().map(|(slot, _)| *slot).collect();
        slots.dedup();
        slots
    }

    /// Whether any sector is lost.
    pub(crate) fn has_any_lost(&self) -> bool {
        !self.state.borrow().lost.is_empty()
    }

    /// How many times sectors were found lost.
    pub(crate) fn losses(&self) -> u64 {
        self.state.borrow().losses
    }

    /// Whether a sector of this range is lost.
    pub(super) fn is_lost(&self, slot: u32, range: (u64, u64)) -> bool {
        let (state, pages) = (self.state.borrow(), touched(range.0, range.1));
        let mut lost = state.lost.range((slot, pages.start)..(slot, pages.end));
        lost.any(|((_, page), mask)| mask & sectors_in(*page, range) != 0)
    }

    /// A read of a range begins: whether what it finds must be compared. A flush may end meanwhile, which removes the
    /// checksums.
    pub(super) fn watch(&self, slot: u32, (within, len): (u64, u64)) -> Watch {
        let state = self.state.borrow();
        let pages = touched(within, len);
        let range = (slot, pages.start)..(slot, pages.end);
        let any = state.pages.range(range.clone()).next().is_some()
            || state.lost.range(range).next().is_some();
        Watch(any.then_some(state.ended))
    }

    /// Whether the read can be compared.
    pub(super) fn is_current(&self, Watch(watch): Watch) -> bool {
        let ended = self.state.borrow().ended;
        watch.is_none_or(|then| then == ended)
    }

    /// Whether such a read found what was written last.
    pub(super) fn matches(&self, watch: Watch, slot: u32, within: u64, bytes: &[u8]) -> bool {
        self.is_current(watch) && self.mismatches(slot, within, bytes).is_empty()
    }

    /// The pages that must be verified: their bytes, read from byte `within` of a slot on, are not those of the last write that
    /// ended (perhaps those of a write in flight), or a write of doubted bytes is in flight.
    pub(super) fn mismatches(&self, slot: u32, within: u64, bytes: &[u8]) -> Vec<u32> {
        let state = self.state.borrow();
        if state.pages.is_empty() && state.lost.is_empty() {
            return Vec::new();
        }
        let range = (within, bytes.len() as u64);
        let differs = |number: &u32| {
            let key = (slot, *number);
            let sectors = sectors_in(*number, range);
            let lost = state.lost.get(&key).is_some_and(|lost| lost & sectors != 0);
            let Some(page) = state.pages.get(&key) else { return lost };
            // A flush that failed may have lost a write in flight, which an earlier read returned.
            if page.held && page.doubted {
                return true;
            }
            let start = u64::from(*number) * PAGE as u64;
            let differs = |sector: usize| {
                let at = (start + (sector * SECTOR) as u64 - within) as usize;
                !state.is_expected(key, sector, crc32c(&bytes[at..at + SECTOR]))
            };
            let compared = page.known & sectors;
            lost || (0..SECTORS).any(|sector| compared >> sector & 1 == 1 && differs(sector))
        };
        if mutant::is_active("write-back-reads-unverified") {
            return Vec::new();
        }
        touched(range.0, range.1).filter(differs).collect()
    }
}

impl Held<'_> {
    /// The write of these checksums, from byte `within` of the slot on, has ended.
    pub(super) fn written(&self, within: u64, sums: &[u32], succeeded: bool) {
        let mut state = self.writes.state.borrow_mut();
        let State { pages, failed, lost, flushes, .. } = &mut *state;
        let (mut sums, mut sector) = (sums, (within % PAGE as u64) as usize / SECTOR);
        for number in self.pages.clone() {
            let (these, rest) = sums.split_at(sums.len().min(SECTORS - sector));
            let key = (self.slot, number);
            if let Some(page) = pages.get_mut(&key) {
                let written = these.iter().enumerate().map(|(at, sum)| (sector + at, *sum));
                if succeeded {
                    page.after = *flushes;
                    for (sector, sum) in written {
                        page.sums[sector] = sum;
                        page.known |= 1 << sector;
                        failed.remove(&(key, sector as u8));
                        lost.entry(key).and_modify(|lost| *lost &= !(1 << sector));
                    }
                } else {
                    // Where no checksum is known a flush covers the older bytes: whatever is there is right.
                    for (sector, sum) in written.filter(|(at, _)| page.known >> at & 1 == 1) {
                        let sums = failed.entry((key, sector as u8)).or_default();
                        if !sums.contains(&sum) {
                            sums.push(sum);
                        }
                    }
                }
            }
            (sums, sector) = (rest, 0);
        }
        lost.retain(|_, lost| *lost != 0);
    }

    /// Compares the bytes of the held page, and records what is lost. Returns whether to write them again. A lost sector
    /// keeps its older bytes: after a crash they are what an unflushed write may leave.
    pub(super) fn verify(&self, bytes: &mut [u8]) -> bool {
        let mut state = self.writes.state.borrow_mut();
        let key = (self.slot, self.pages.start);
        let Some(page) = state.pages.get(&key) else { return false };
        let (known, mut again, mut lost) = (page.known, page.doubted, 0);
        for (sector, bytes) in bytes.chunks_exact_mut(SECTOR).enumerate() {
            if known >> sector & 1 == 0 || state.is_expected(key, sector, crc32c(bytes)) {
                continue;
            }
            if state.is_expected(key, sector, sum_of_zeroes()) {
                bytes.fill(0);
                again = true;
            } else {
                lost |= 1 << sector;
            }
        }
        state.lose(key, lost);
        again && known & !lost != 0
    }

    /// Whether the checksums of all sectors of the held page are known.
    pub(super) fn knows_all(&self) -> bool {
        let state = self.writes.state.borrow();
        state.pages.get(&(self.slot, self.pages.start)).is_some_and(|page| page.known == u8::MAX)
    }

    /// The held page cannot be read.
    pub(super) fn unreadable(&self) {
        let mut state = self.writes.state.borrow_mut();
        let key = (self.slot, self.pages.start);
        let known = state.pages.get(&key).map_or(0, |page| page.known);
        state.lose(key, known);
    }

    /// The held page was verified, and written again, since so many flushes had failed.
    pub(super) fn verified(&self, doubts: u64) {
        let mut state = self.writes.state.borrow_mut();
        let (flushes, same) = (state.flushes, state.doubts == doubts);
        if let Some(page) = state.pages.get_mut(&(self.slot, self.pages.start)) {
            // A flush that failed meanwhile may have lost what was written again.
            (page.doubted, page.after) = (page.doubted && !same, flushes);
        }
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        let mut state = self.writes.state.borrow_mut();
        for page in self.pages.clone() {
            let key = (self.slot, page);
            if let Some(page) = state.pages.get_mut(&key) {
                page.held = false;
                if page.known == 0 {
                    state.pages.remove(&key);
                }
            }
        }
        drop(state);
        self.writes.waiting.wake_all(&self.writes.exec);
    }
}

#[cfg(test)]
mod tests;
