// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checksums of the pages on a device (`--verify`): a CRC-32C of each, on flash beside the slots, and of those used last in
//! memory.
//!
//! They belong to places of the device, not to units. A page's checksum is that of the last write of its place that ended. So
//! the engine's rules about validity need no second form; `verified.rs` compares every read of cached data, for each caller.
//!
//! A *block of sums* ([`SumsArea`]) holds the checksums of [`EACH`] neighbouring pages of a shard. Memory has the version of every
//! block, so that a write of one that the device lost is noticed. Where flash may hold dirty data each block has a second copy.
//!
//! Invariants:
//! - A flush of the device writes the changed blocks first. So what a flush makes durable has its checksum, and metadata
//!   that depends on the flush does too (design rule 8).
//! - A page without a checksum ([`NONE`]) matches nothing.
//! - A page is *unsure* if it may hold an older or a newer content: it was dirty at a crash, and a write of it may have been in
//!   flight, or a write of it failed. Its next read is accepted, and its checksum made again.
//! - Blocks in memory take no more than their share, except those that operations in flight use.
//!
//! Why not beside each unit: a unit of one page would need two. Why not in the metadata: a page's checksum changes with each
//! write, and a record for each would cost as much as the write.

use std::cell::RefCell;
use std::collections::{BTreeSet, VecDeque};
use std::ops::Range;

use hashbrown::{HashMap, HashSet};
use slab::Slab;

use super::guards::LateAnswer;
use crate::buf::{Buf, PAGE};
use crate::exec::WaitList;
use crate::format::FlashPlan;
use crate::format::sums::{EACH, NONE, Newest, SumsArea};
use crate::mutant;
use crate::shape::Shape;

/// The version of a block that was never written since the device was formatted ...
const BLANK: u32 = 0;
/// ... and of one that an earlier start wrote.
const UNKNOWN: u32 = u32::MAX;

/// A block in memory.
struct Block {
    sums: Box<[u32]>,
    /// Differs from flash.
    changed: bool,
    writing: bool,
    /// Operations in flight that will change it.
    pins: u32,
    used: bool,
    /// The answer of a write that is overdue.
    late: Option<LateAnswer>,
}

#[derive(Default)]
struct State {
    blocks: HashMap<u32, Block>,
    /// All of them, in the order in which eviction checks them.
    order: VecDeque<u32>,
    loading: HashSet<u32>,
    /// Those that differ from flash, or are being written.
    changed: BTreeSet<u32>,
    /// The version of every block on flash.
    versions: Vec<u32>,
    /// Pages whose content is not known.
    unsure: Marks,
    /// Pages that were damaged, and have not been written since: they do not become unsure.
    damaged: Marks,
    /// Reads in flight, and whether a change overlapped them.
    reads: Slab<(Range<u64>, bool)>,
    changes: Slab<Range<u64>>,
}

/// A set of pages: by their number over 64, a bit each.
#[derive(Default)]
struct Marks(HashMap<u64, u64>);

impl Marks {
    fn has(&self, page: u64) -> bool {
        self.0.get(&(page / 64)).is_some_and(|bits| bits >> (page % 64) & 1 == 1)
    }

    fn set(&mut self, page: u64) {
        *self.0.entry(page / 64).or_default() |= 1 << (page % 64);
    }

    fn clear(&mut self, page: u64) {
        if let Some(bits) = self.0.get_mut(&(page / 64)) {
            *bits &= !(1 << (page % 64));
            if *bits == 0 {
                self.0.remove(&(page / 64));
            }
        }
    }
}

/// The checksums of one attachment.
pub(crate) struct Sums {
    pub(super) area: SumsArea,
    /// The version of a block that this attachment has not written.
    new_version: u32,
    /// Blocks in memory, at most.
    most: usize,
    state: RefCell<State>,
    /// Blocks that are being loaded or written.
    pub(super) busy: WaitList,
}

/// What a search for room found.
pub(super) enum Room {
    Enough,
    /// This block must be written first.
    Write(u32),
}

/// A block that is being loaded.
pub(super) struct Loading {
    found: Newest,
    /// The version of the block; of several after a restart.
    version: u32,
}

/// A block, ready to be written.
pub(super) struct Writing {
    pub(super) copies: Vec<(u64, Buf)>,
    version: u32,
}

/// A read that will be compared, until this is dropped.
pub(super) struct Reading<'a> {
    sums: &'a Sums,
    key: usize,
}

/// A change of pages that is in flight, until this is dropped.
pub(super) struct Changing<'a> {
    sums: &'a Sums,
    key: usize,
}

/// Blocks that stay in memory until this is dropped.
pub(super) struct Pinned<'a> {
    sums: &'a Sums,
    blocks: Vec<u32>,
}

impl Loading {
    /// Takes from a copy what is newer than what was found before. Returns whether all is found.
    pub(super) fn take(&mut self, area: &SumsArea, at: u64, bytes: &[u8]) -> bool {
        let wanted = self.version;
        self.found.take(area, (at, bytes), |version| version == wanted || wanted == UNKNOWN);
        wanted != UNKNOWN && self.found.versions.iter().all(Option::is_some)
    }

    /// Whether anything was found.
    pub(super) fn has_any(&self) -> bool {
        self.found.versions.iter().any(Option::is_some)
    }
}

fn overlap(a: &Range<u64>, b: &Range<u64>) -> bool {
    a.start < b.end && b.start < a.end
}

impl Sums {
    /// The checksums of a shard, of which `most_bytes` may be in memory; `None` if the device has none. `recovered`: an
    /// earlier start wrote them.
    pub(crate) fn of(
        plan: &FlashPlan,
        shape: &Shape,
        (most_bytes, recovered): (u64, bool),
    ) -> Option<Self> {
        let area = SumsArea::of(plan, shape)?;
        let version = if recovered { UNKNOWN } else { BLANK };
        let sums = Self {
            area,
            new_version: version,
            most: (most_bytes / PAGE as u64).max(BLOCKS_LEAST) as usize,
            state: RefCell::default(),
            busy: WaitList::default(),
        };
        sums.has_slots(shape.slots_of(plan.slots));
        Some(sums)
    }

    /// The blocks of so many slots are known; never fewer than before.
    pub(crate) fn has_slots(&self, slots: u32) {
        let blocks = self.area.first_of(slots).div_ceil(EACH).min(u64::from(self.area.blocks));
        let versions = &mut self.state.borrow_mut().versions;
        let blocks = versions.len().max(blocks as usize);
        versions.resize(blocks, self.new_version);
    }

    /// A read of a range begins.
    pub(super) fn read_begins(&self, pages: Range<u64>) -> Reading<'_> {
        let mut state = self.state.borrow_mut();
        let raced = state.changes.iter().any(|(_, change)| overlap(change, &pages));
        let key = state.reads.insert((pages, raced));
        Reading { sums: self, key }
    }

    /// A change of a range begins.
    pub(super) fn change_begins(&self, pages: Range<u64>) -> Changing<'_> {
        let mut state = self.state.borrow_mut();
        for (_, (range, raced)) in &mut state.reads {
            *raced |= overlap(range, &pages);
        }
        let key = state.changes.insert(pages);
        Changing { sums: self, key }
    }

    /// The content of these pages is not known: their next read is accepted. Those that were damaged may still be, and are not.
    pub(super) fn unsure(&self, pages: Range<u64>) {
        let mut state = self.state.borrow_mut();
        for page in pages {
            if !state.damaged.has(page) {
                state.unsure.set(page);
            }
        }
    }

    /// These pages do not match their checksums.
    pub(super) fn damaged(&self, pages: impl Iterator<Item = u64>) {
        let mut state = self.state.borrow_mut();
        pages.for_each(|page| state.damaged.set(page));
    }

    /// The same for pages of a slot.
    pub(crate) fn unsure_in(&self, slot: u32, pages: Range<u32>) {
        let first = self.area.first_of(slot);
        self.unsure(first + u64::from(pages.start)..first + u64::from(pages.end));
    }

    /// Whether a block is in memory; it counts as used.
    pub(super) fn has(&self, block: u32) -> bool {
        let mut state = self.state.borrow_mut();
        let found = state.blocks.get_mut(&block);
        found.map(|block| block.used = true).is_some()
    }

    /// Begins to load a block; returns false if it is being loaded.
    pub(super) fn load_begins(&self, block: u32) -> bool {
        self.state.borrow_mut().loading.insert(block)
    }

    pub(super) fn load_ended(&self, block: u32) {
        self.state.borrow_mut().loading.remove(&block);
    }

    /// Whether flash has a block of this attachment's format.
    pub(super) fn is_blank(&self, block: u32) -> bool {
        self.state.borrow().versions[block as usize] == BLANK
    }

    /// What was read of a block's copies so far is nothing.
    pub(super) fn loading(&self, block: u32) -> Loading {
        Loading { found: Newest::default(), version: self.state.borrow().versions[block as usize] }
    }

    /// Makes room for a block, by evicting one that is not in use.
    pub(super) fn make_room(&self) -> Room {
        let mut state = self.state.borrow_mut();
        let mut looks = 2 * state.order.len();
        while state.blocks.len() + state.loading.len() > self.most && looks > 0 {
            looks -= 1;
            let Some(number) = state.order.pop_front() else { break };
            let Some(block) = state.blocks.get_mut(&number) else { continue };
            let in_use = block.pins > 0 || block.writing;
            if in_use || std::mem::take(&mut block.used) {
                state.order.push_back(number);
            } else if block.changed {
                state.order.push_front(number);
                return Room::Write(number);
            } else {
                state.blocks.remove(&number);
            }
        }
        Room::Enough
    }

    /// A block was loaded. If its sectors have several versions, or some are missing, it must be written again.
    pub(super) fn loaded(&self, block: u32, Loading { found, version }: Loading) {
        let mut state = self.state.borrow_mut();
        let Newest { sums, versions } = found;
        let newest = versions.iter().flatten().max().filter(|_| version == UNKNOWN);
        if let Some(newest) = newest {
            state.versions[block as usize] = *newest;
        }
        let whole = versions.iter().all(|version| *version == versions[0]);
        let changed = !whole;
        let loaded = Block { sums, changed, writing: false, pins: 0, used: true, late: None };
        state.blocks.insert(block, loaded);
        state.order.push_back(block);
        if changed {
            state.changed.insert(block);
        }
    }

    /// Keeps the blocks of these pages in memory, where they are.
    pub(super) fn pin(&self, block: u32, pinned: &mut Pinned<'_>) {
        let mut state = self.state.borrow_mut();
        if let Some(found) = state.blocks.get_mut(&block) {
            found.pins += 1;
            pinned.blocks.push(block);
        }
    }

    /// An empty set of pinned blocks.
    pub(super) fn pinned(&self) -> Pinned<'_> {
        Pinned { sums: self, blocks: Vec::new() }
    }

    /// A write of these pages ended; their blocks are in memory.
    pub(super) fn put(&self, pages: Range<u64>, sums: &[u32]) {
        let mut state = self.state.borrow_mut();
        for (page, sum) in pages.zip(sums) {
            state.put(page, *sum);
        }
    }

    /// Whether this is the checksum of a page, whose block is in memory.
    pub(super) fn matches(&self, page: u64, sum: u32, reading: &Reading<'_>) -> bool {
        let mut state = self.state.borrow_mut();
        if state.sum(page) == Some(sum) {
            return true;
        }
        let raced = state.reads.get(reading.key).is_some_and(|(_, raced)| *raced);
        if !state.unsure.has(page) || mutant::is_active("overwrite-counts-as-damage") {
            return false;
        }
        if !raced {
            state.put(page, sum);
        }
        true
    }

    /// The blocks that differ from flash, or are being written.
    pub(super) fn changed(&self) -> Vec<u32> {
        self.state.borrow().changed.iter().copied().collect()
    }

    /// Whether a block is being written.
    pub(super) fn is_writing(&self, block: u32) -> bool {
        self.state.borrow().blocks.get(&block).is_some_and(|block| block.writing)
    }

    /// Whether an overdue write of a block may still change flash.
    pub(super) fn is_overdue(&self, block: u32) -> bool {
        let state = self.state.borrow();
        let late = state.blocks.get(&block).and_then(|block| block.late.as_ref());
        late.is_some_and(|late| late.get().is_none())
    }

    /// Begins to write a block, if it differs from flash.
    pub(super) fn write_begins(&self, block: u32) -> Option<Writing> {
        let mut state = self.state.borrow_mut();
        let before = state.versions[block as usize];
        let found = state.blocks.get_mut(&block).filter(|block| block.changed)?;
        (found.changed, found.writing) = (false, true);
        let version = match before {
            UNKNOWN | BLANK => 1,
            before => before % (UNKNOWN - 1) + 1, // never one of these two
        };
        let places = self.area.places_of(block);
        let encoded = places.map(|at| (at, self.area.encode(&found.sums, at, version)));
        Some(Writing { copies: encoded.collect(), version })
    }

    /// A write of a block ended.
    pub(super) fn write_ended(
        &self,
        block: u32,
        writing: &Writing,
        (succeeded, late): (bool, Option<LateAnswer>),
    ) {
        let mut state = self.state.borrow_mut();
        if succeeded {
            state.versions[block as usize] = writing.version;
        }
        let State { blocks, changed, .. } = &mut *state;
        if let Some(found) = blocks.get_mut(&block) {
            found.writing = false;
            found.changed |= !succeeded;
            found.late = late;
            if !found.changed {
                changed.remove(&block);
            }
        }
    }
}

/// Blocks in memory, at least.
pub(crate) const BLOCKS_LEAST: u64 = 2;
/// Memory of one: its checksums, and its entries in the tables.
pub(crate) const BLOCK_BYTES: u64 = 4 * EACH + 256;

/// Memory of the mark that some of 64 pages are unsure.
pub(crate) const UNSURE_BYTES: u64 = 24;

impl State {
    fn sum(&self, page: u64) -> Option<u32> {
        let block = self.blocks.get(&((page / EACH) as u32))?;
        Some(block.sums[(page % EACH) as usize]).filter(|sum| *sum != NONE)
    }

    fn put(&mut self, page: u64, sum: u32) {
        let number = (page / EACH) as u32;
        if let Some(block) = self.blocks.get_mut(&number) {
            block.sums[(page % EACH) as usize] = sum;
            if !std::mem::replace(&mut block.changed, true) {
                self.changed.insert(number);
            }
        }
        self.unsure.clear(page);
        self.damaged.clear(page);
    }
}

impl Reading<'_> {
    /// Whether a change of its pages was in flight.
    pub(super) fn raced(&self) -> bool {
        let state = self.sums.state.borrow();
        state.reads.get(self.key).is_some_and(|(_, raced)| *raced)
    }
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        self.sums.state.borrow_mut().reads.try_remove(self.key);
    }
}

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        self.sums.state.borrow_mut().changes.try_remove(self.key);
    }
}

impl Drop for Pinned<'_> {
    fn drop(&mut self) {
        let mut state = self.sums.state.borrow_mut();
        for block in &self.blocks {
            if let Some(block) = state.blocks.get_mut(block) {
                block.pins -= 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exec::DevId;
    use crate::format::SumsPlan;

    /// Four slots of 16 pages, no block of which was written.
    fn sums() -> Sums {
        let shape = Shape::new(1 << 20, 16 * PAGE as u64, 1);
        let sums = Some(SumsPlan { base: 4096, volume: 7, copies: 2 });
        let (dev, base) = (DevId(0), 1 << 20);
        let plan =
            FlashPlan { dev, base, slots: 4, room: 4, block_bytes: 512, journal: None, sums };
        let made = Sums::of(&plan, &shape, (1 << 20, false)).expect("it has checksums");
        assert!(made.load_begins(0));
        made.loaded(0, made.loading(0));
        made.load_ended(0);
        made
    }

    #[test]
    fn an_overwrite_that_failed_is_accepted_unless_the_page_was_damaged() {
        let sums = sums();
        sums.put(3..5, &[30, 40]);
        let matches =
            |page: u64, sum: u32| sums.matches(page, sum, &sums.read_begins(page..page + 1));
        assert!(matches(3, 30) && !matches(4, 41));
        sums.damaged([4].into_iter());
        sums.unsure(3..5);
        assert!(matches(3, 31), "what a failed write left");
        assert!(!matches(3, 32), "it has a checksum again");
        assert!(!matches(4, 41) && matches(4, 40), "the damage, and what was there before");
        sums.put(4..5, &[44]);
        sums.unsure(4..5);
        assert!(matches(4, 45), "it was written meanwhile");
    }
}
