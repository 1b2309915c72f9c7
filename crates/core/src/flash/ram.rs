// SPDX-License-Identifier: MIT OR Apache-2.0
//! A tier of RAM over flash: copies of pages that clients read from flash (Holland et al. 3: lookaside).
//!
//! It copies the device, not units: a page is known by its place on flash, and only a change of that place removes it. So the
//! engine's rules about validity need no second form, and FLUSH has nothing to do here.
//!
//! Invariants:
//! - A page is here only if no change of its place was in flight while the read that brought it was: such a read may have seen
//!   the older bytes, and another read of the device the newer ones.
//! - While a change of its place is in flight, no page is here.
//! - The pages take no more than the set size.
//!
//! Reads that verify flash do not come here. Replacement is LRU, as in the paper.
//!
//! Why not a unified tier, in which a page lies either in RAM or on flash (Holland et al. 3.4): what is only in RAM is lost
//! with the process, and the cache would be cold again where only RAM had it.

use std::cell::RefCell;
use std::ops::Range;

use hashbrown::HashMap;
use larder_policy::replacement::{Lru, Replacement as _};
use slab::Slab;

use crate::buf::{Buf, PAGE};
use crate::mutant;

/// Memory of a page beside its bytes, at most: its entry in the index, its number, its place in the order of use and in the
/// list of free places.
const ENTRY_BYTES: u64 = 64;
/// Pages that are allocated together. A mapping for each page would exceed the mappings that a process may have.
const CHUNK: usize = 1024;

/// The tier of one attachment.
pub(crate) struct Ram(RefCell<State>);

struct State {
    /// The place of each page here, by its number on the device.
    index: HashMap<u64, u32>,
    /// The number of the page in each place that was ever used.
    numbers: Vec<u64>,
    /// The bytes of the places, a chunk after the other.
    chunks: Vec<Buf>,
    /// Places that have no page.
    free: Vec<u32>,
    most: usize,
    order: Lru,
    /// Reads of the device in flight, and whether a change overlapped them.
    reads: Slab<(Range<u64>, bool)>,
    /// Changes of the device in flight.
    changes: Slab<Range<u64>>,
}

/// A change of the device that is in flight.
#[derive(Clone, Copy)]
pub(crate) struct Changing(usize);

/// A read of the device that may bring pages.
#[derive(Clone, Copy)]
pub(crate) struct Bringing(usize);

fn overlap(a: &Range<u64>, b: &Range<u64>) -> bool {
    a.start < b.end && b.start < a.end
}

/// The pages that a range of bytes touches.
fn touched(offset: u64, len: u64) -> Range<u64> {
    offset / PAGE as u64..(offset + len).div_ceil(PAGE as u64)
}

impl Ram {
    /// A tier of at most so many bytes; `None` if that is less than a page.
    pub(crate) fn new(bytes: u64) -> Option<Self> {
        let most = u32::try_from(bytes / (PAGE as u64 + ENTRY_BYTES)).unwrap_or(u32::MAX);
        (most > 0).then(|| {
            Self(RefCell::new(State {
                index: HashMap::new(),
                numbers: Vec::new(),
                chunks: Vec::new(),
                free: Vec::new(),
                most: most as usize,
                order: Lru::new(most, most),
                reads: Slab::new(),
                changes: Slab::new(),
            }))
        })
    }

    /// Copies a range of the device, if all of it is here. Returns whether it was.
    pub(crate) fn read(&self, offset: u64, into: &mut [u8]) -> bool {
        let mut state = self.0.borrow_mut();
        let pages = touched(offset, into.len() as u64);
        if !pages.clone().all(|page| state.index.contains_key(&page)) {
            return false;
        }
        let mut within = (offset % PAGE as u64) as usize;
        let mut rest = into;
        for page in pages {
            let Some(place) = state.index.get(&page).copied() else { return false };
            let (now, later) = rest.split_at_mut(rest.len().min(PAGE - within));
            now.copy_from_slice(&state.bytes(place)[within..within + now.len()]);
            (rest, within) = (later, 0);
            state.order.accessed(place);
        }
        true
    }

    /// A read of the device begins.
    pub(crate) fn begin(&self, offset: u64, len: u64) -> Bringing {
        let mut state = self.0.borrow_mut();
        let range = touched(offset, len);
        let spoilt = state.changes.iter().any(|(_, change)| overlap(change, &range));
        Bringing(state.reads.insert((range, spoilt)))
    }

    /// The read ended; the whole pages that it read stay here, unless a change overlapped them.
    pub(crate) fn end(&self, read: Bringing, offset: u64, bytes: Option<&[u8]>) {
        let mut state = self.0.borrow_mut();
        let (_, spoilt) = state.reads.remove(read.0);
        let kept = !spoilt || mutant::is_active("ram-keeps-older");
        let Some(bytes) = bytes.filter(|_| kept && offset.is_multiple_of(PAGE as u64)) else {
            return;
        };
        for (page, bytes) in (offset / PAGE as u64..).zip(bytes.chunks_exact(PAGE)) {
            state.keep(page, bytes);
        }
    }

    /// A change of a range of the device begins.
    pub(crate) fn change_begins(&self, offset: u64, len: u64) -> Changing {
        let mut state = self.0.borrow_mut();
        let pages = touched(offset, len);
        for (_, (range, spoilt)) in &mut state.reads {
            *spoilt |= overlap(range, &pages);
        }
        if !state.index.is_empty() && !mutant::is_active("ram-survives-write") {
            pages.clone().for_each(|page| state.remove(page));
        }
        Changing(state.changes.insert(pages))
    }

    /// The change ended.
    pub(crate) fn change_ended(&self, change: Changing) {
        self.0.borrow_mut().changes.remove(change.0);
    }
}

impl State {
    fn bytes(&mut self, place: u32) -> &mut [u8] {
        let at = place as usize % CHUNK * PAGE;
        &mut self.chunks[place as usize / CHUNK][at..at + PAGE]
    }

    fn keep(&mut self, page: u64, bytes: &[u8]) {
        // Another read may have brought the same bytes.
        if self.index.contains_key(&page) {
            return;
        }
        let Some(place) = self.place() else { return };
        self.numbers[place as usize] = page;
        self.bytes(place).copy_from_slice(bytes);
        self.index.insert(page, place);
        self.order.inserted(place, page);
    }

    /// A place without a page: a free one, the next one, or that of the page used least recently.
    fn place(&mut self) -> Option<u32> {
        if self.free.is_empty() && self.numbers.len() < self.most {
            let place = self.numbers.len();
            self.numbers.push(0);
            if place / CHUNK == self.chunks.len() {
                self.chunks.push(Buf::with_len(CHUNK.min(self.most - place) * PAGE));
            }
            return Some(place as u32);
        }
        if self.free.is_empty() {
            let oldest = self.order.victim(0, 0, &|_| true)?;
            self.remove(self.numbers[oldest as usize]);
        }
        self.free.pop()
    }

    fn remove(&mut self, page: u64) {
        let Some(place) = self.index.remove(&page) else { return };
        self.order.removed(place);
        self.free.push(place);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES: u64 = PAGE as u64;

    fn tier(pages: u64) -> Ram {
        Ram::new(pages * (BYTES + ENTRY_BYTES)).unwrap()
    }

    fn bring(ram: &Ram, page: u64, fill: u8) {
        let read = ram.begin(page * BYTES, BYTES);
        ram.end(read, page * BYTES, Some(&[fill; PAGE]));
    }

    fn has(ram: &Ram, page: u64) -> Option<u8> {
        let mut into = [0; 512];
        ram.read(page * BYTES + 512, &mut into).then_some(into[0])
    }

    #[test]
    fn the_pages_used_last_stay_within_the_size() {
        let ram = tier(3);
        (0..3).for_each(|page| bring(&ram, page, page as u8));
        assert_eq!(has(&ram, 0), Some(0));
        bring(&ram, 9, 9);
        assert_eq!([0, 1, 2, 9].map(|page| has(&ram, page)), [Some(0), None, Some(2), Some(9)]);
        assert!(Ram::new(4095).is_none());
    }

    #[test]
    fn pages_beyond_a_chunk_have_their_bytes() {
        let most = CHUNK as u64 + 7;
        let ram = tier(most);
        (0..most + 3).for_each(|page| bring(&ram, page, page as u8));
        let found: Vec<u64> = (0..most + 3).filter(|page| has(&ram, *page).is_some()).collect();
        assert_eq!(found, (3..most + 3).collect::<Vec<_>>());
        assert!(found.iter().all(|page| has(&ram, *page) == Some(*page as u8)));
    }

    #[test]
    fn a_change_removes_its_pages_and_spoils_reads_in_flight() {
        let ram = tier(8);
        bring(&ram, 1, 1);
        bring(&ram, 3, 3);
        let (older, other) = (ram.begin(2 * BYTES, BYTES), ram.begin(4 * BYTES, BYTES));
        let change = ram.change_begins(BYTES + 512, BYTES);
        bring(&ram, 1, 1);
        ram.change_ended(change);
        ram.end(older, 2 * BYTES, Some(&[2; PAGE]));
        ram.end(other, 4 * BYTES, Some(&[4; PAGE]));
        assert_eq!([1, 2, 3, 4].map(|page| has(&ram, page)), [None, None, Some(3), Some(4)]);
    }

    #[test]
    fn a_read_over_several_pages_needs_all_of_them() {
        let ram = tier(8);
        bring(&ram, 1, 1);
        let mut into = vec![0; 2 * PAGE];
        assert!(!ram.read(BYTES, &mut into));
        bring(&ram, 2, 2);
        assert!(ram.read(BYTES, &mut into) && into[0] == 1 && into[PAGE] == 2);
        assert!(ram.read(BYTES + 512, &mut into[..PAGE]) && into[PAGE - 1] == 2);
    }
}
