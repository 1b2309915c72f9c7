// SPDX-License-Identifier: MIT OR Apache-2.0
//! Mixed slots: slots that hold single pages of many units.
//!
//! A mixed slot has as many *places* as a unit has pages. Pages get places in the order in which they are admitted; the
//! newest mixed slot, the open one, receives them. A directory in memory records the page in each place, and an index
//! finds the place of a page.
//!
//! Invariants: a page of the volume has one place at most, and none if its unit has a slot of its own. A place is given
//! out once until its slot is free: an operation in flight, which pins the slot, never touches a page that got the place
//! later.

use std::collections::VecDeque;

use hashbrown::HashTable;
use slab::Slab;

use super::validity;
use crate::mutant;
use crate::pages::Pages;

/// The unit of a page that has left its place.
const LEFT: u32 = u32::MAX;

/// Bytes of the index for each place: four, a byte of control, and free entries.
const INDEX_BYTES: u64 = 8;

/// From one sample to the next: a prime, so that the samples are spread over all mixed slots.
const STRIDE: usize = 7919;
/// Slots that one search for the slot that is due passes.
const SEARCHED: usize = 64;

/// Bytes of memory of the directory of a mixed slot of so many places.
pub(crate) fn directory_bytes_each(pages: u32) -> u64 {
    let words = u64::from(pages.div_ceil(64)) * size_of::<u64>() as u64;
    let places = u64::from(pages) * (size_of::<Single>() as u64 + INDEX_BYTES);
    size_of::<Directory>() as u64 + words + places
}

/// A page in a place.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Single {
    /// The shard's own number of the unit; [`LEFT`] if the page has left the place.
    unit: u32,
    page: u32,
}

/// The directory of a mixed slot.
struct Directory {
    slot: u32,
    singles: Vec<Single>,
    valid: Vec<u64>,
    /// Places whose page is still there.
    live: u32,
    hits: u32,
    /// Hits, halved by each search for the slot that is due.
    recent: u32,
    /// Reads of clients when it was opened.
    opened_at: u64,
}

/// The mixed slots of a table.
#[derive(Default)]
pub(super) struct MixedSlots {
    directories: Slab<Directory>,
    /// The directories, oldest first; the last is open.
    order: VecDeque<u32>,
    /// Place numbers: that of the directory times the places of a slot, plus the place within the slot.
    index: HashTable<u32>,
    places_each: u32,
    /// The place in the order that a search for the slot that is due passed last.
    due_hand: usize,
    /// How many mixed slots were sampled.
    sampled: usize,
}

/// A mixed slot: the one that is recycled next, or a sample.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MixedSlot {
    pub slot: u32,
    /// Reads of clients when it was opened.
    pub opened_at: u64,
    pub hits: u32,
    /// Whether a page is left in it.
    pub is_live: bool,
}

fn hash(single: Single) -> u64 {
    let key = u64::from(single.unit) << 32 | u64::from(single.page);
    let product = u128::from(key) * 0x9E37_79B9_7F4A_7C15_u128;
    (product >> 64) as u64 ^ product as u64
}

/// The page in the place of this number.
fn single_at(directories: &Slab<Directory>, each: u32, number: u32) -> Single {
    directories[(number / each) as usize].singles[(number % each) as usize]
}

impl Directory {
    fn state(&self) -> MixedSlot {
        let Self { slot, opened_at, hits, live, .. } = *self;
        MixedSlot { slot, opened_at, hits, is_live: live > 0 }
    }
}

impl MixedSlots {
    pub(super) fn new(places_each: u32) -> Self {
        Self { places_each, ..Self::default() }
    }

    /// Bytes of memory that all directories take.
    pub(super) fn bytes(&self) -> u64 {
        self.directories.len() as u64 * directory_bytes_each(self.places_each)
    }

    /// The number of a page's place.
    fn find(&self, unit: u32, page: u32) -> Option<u32> {
        if self.is_empty() {
            return None;
        }
        let single = Single { unit, page };
        let (directories, each) = (&self.directories, self.places_each);
        let is_here = |number: &u32| single_at(directories, each, *number) == single;
        self.index.find(hash(single), is_here).copied()
    }

    /// Takes a page out of its place, if it has one.
    fn remove(&mut self, unit: u32, page: u32) {
        let (single, directories, each) =
            (Single { unit, page }, &self.directories, self.places_each);
        let is_here = |number: &u32| single_at(directories, each, *number) == single;
        let Ok(entry) = self.index.find_entry(hash(single), is_here) else { return };
        let (number, _) = entry.remove();
        let (directory, place) = (number / each, number % each);
        let directory = &mut self.directories[directory as usize];
        directory.singles[place as usize].unit = LEFT;
        validity::assign(&mut directory.valid, place..place + 1, false);
        directory.live -= 1;
    }

    /// The directory and the first place of pages that lie in consecutive places.
    fn run(&self, unit: u32, pages: &Pages) -> Option<(u32, u32)> {
        let first = self.find(unit, pages.start)?;
        let follows = |page: u32| self.find(unit, page) == Some(first + (page - pages.start));
        if !pages.clone().skip(1).all(follows) {
            return None;
        }
        let (directory, place) = (first / self.places_each, first % self.places_each);
        (place + pages.len() as u32 <= self.places_each).then_some((directory, place))
    }

    /// Removes the directory of a slot that becomes free.
    pub(super) fn close(&mut self, directory: u32) {
        for place in 0..self.directories[directory as usize].singles.len() {
            let Single { unit, page } = self.directories[directory as usize].singles[place];
            if unit != LEFT {
                self.remove(unit, page);
            }
        }
        self.directories.remove(directory as usize);
        self.order.retain(|other| *other != directory);
    }

    /// Whether all of these places of a slot are valid.
    pub(super) fn all_valid(&self, directory: u32, places: Pages) -> bool {
        validity::all_set(&self.directories[directory as usize].valid, places)
    }

    /// Makes places of a slot valid, unless their page has left them.
    pub(super) fn make_valid(&mut self, directory: u32, places: Pages) {
        let directory = &mut self.directories[directory as usize];
        for place in places {
            if directory.singles.get(place as usize).is_some_and(|single| single.unit != LEFT) {
                validity::assign(&mut directory.valid, place..place + 1, true);
            }
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    /// Takes the pages of a unit out of their places.
    pub(super) fn remove_all(&mut self, unit: u32, pages: Pages) {
        if !self.is_empty() && !mutant::is_active("single-beside-unit") {
            pages.for_each(|page| self.remove(unit, page));
        }
    }

    /// Makes pages of a unit invalid; they keep their places.
    pub(super) fn invalidate(&mut self, unit: u32, pages: &Pages) {
        if mutant::is_active("single-survives-write") {
            return;
        }
        for page in pages.clone() {
            if let Some(number) = self.find(unit, page) {
                let (directory, place) = (number / self.places_each, number % self.places_each);
                let valid = &mut self.directories[directory as usize].valid;
                validity::assign(valid, place..place + 1, false);
            }
        }
    }

    /// The slot of pages that lie in consecutive places, and the place of page 0, which may wrap.
    pub(super) fn places(&self, unit: u32, pages: &Pages) -> Option<(u32, u32)> {
        let (directory, place) = self.run(unit, pages)?;
        Some((self.directories[directory as usize].slot, place.wrapping_sub(pages.start)))
    }

    /// The same, if all of them are valid; counts as a hit of the slot.
    pub(super) fn hit(&mut self, unit: u32, pages: &Pages) -> Option<(u32, u32)> {
        let (directory, place) = self.run(unit, pages)?;
        if !self.all_valid(directory, place..place + pages.len() as u32) {
            return None;
        }
        let directory = &mut self.directories[directory as usize];
        directory.hits = directory.hits.saturating_add(1);
        directory.recent = directory.recent.saturating_add(1);
        Some((directory.slot, place.wrapping_sub(pages.start)))
    }

    /// Gives pages of a unit the next places of the open slot; the slot, and the place of page 0, which may wrap. `None` if
    /// there is no room.
    pub(super) fn append(&mut self, unit: u32, pages: &Pages) -> Option<(u32, u32)> {
        let open = *self.order.back()?;
        let place = self.directories[open as usize].singles.len() as u32;
        if place + pages.len() as u32 > self.places_each {
            return None;
        }
        for page in pages.clone() {
            self.remove(unit, page);
            let single = Single { unit, page };
            let directory = &mut self.directories[open as usize];
            let number = open * self.places_each + directory.singles.len() as u32;
            directory.singles.push(single);
            directory.live += 1;
            let (directories, each) = (&self.directories, self.places_each);
            self.index.insert_unique(hash(single), number, |number| {
                hash(single_at(directories, each, *number))
            });
        }
        Some((self.directories[open as usize].slot, place.wrapping_sub(pages.start)))
    }

    /// Opens a slot; `reads`: of clients up to now. Returns the number of its directory.
    pub(super) fn open(&mut self, slot: u32, reads: u64) -> u32 {
        let directory = Directory {
            slot,
            singles: Vec::with_capacity(self.places_each as usize),
            valid: vec![0; self.places_each.div_ceil(64) as usize],
            live: 0,
            hits: 0,
            recent: 0,
            opened_at: reads,
        };
        let number = self.directories.insert(directory) as u32;
        self.order.push_back(number);
        number
    }

    /// One of the slots that are full, in turn.
    pub(super) fn sample(&mut self) -> Option<MixedSlot> {
        let full = self.order.len().saturating_sub(1);
        self.sampled = self.sampled.wrapping_add(STRIDE);
        let number = self.order.get(self.sampled.checked_rem(full)?)?;
        Some(self.directories[*number as usize].state())
    }

    /// The slot to recycle next: one whose pages have all left, or the one with the fewest recent hits among the next of the
    /// older three quarters. Not the open one, nor one that is in use.
    pub(super) fn due(&mut self, in_use: impl Fn(u32) -> bool) -> Option<MixedSlot> {
        let slots = self.order.len();
        let old = (slots * 3).div_ceil(4).min(slots.saturating_sub(1));
        let mut due: Option<(u32, u32)> = None;
        for _ in 0..old.min(SEARCHED) {
            self.due_hand = (self.due_hand + 1) % old;
            let number = self.order[self.due_hand];
            let directory = &mut self.directories[number as usize];
            let recent = if directory.live > 0 { directory.recent + 1 } else { 0 };
            directory.recent /= 2;
            let may_evict = !in_use(directory.slot) || mutant::is_active("mixed-recycled-in-use");
            if may_evict && due.is_none_or(|(_, least)| recent < least) {
                due = Some((number, recent));
            }
        }
        Some(self.directories[due?.0 as usize].state())
    }
}
