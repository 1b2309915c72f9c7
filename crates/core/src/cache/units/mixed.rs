// SPDX-License-Identifier: MIT OR Apache-2.0
//! Mixed slots: slots that hold single pages of many units.
//!
//! A mixed slot has almost as many *places* as a unit has pages. Behind them is room for its directory (`directory.rs`), which
//! is written when the slot is *closed*: it receives no more pages. Pages get places in the order in which they are
//! admitted, from the newest mixed slot, the open one. The directory is in memory too, and an index finds the place of a page.
//!
//! Invariants: a page of the volume has one place at most, and none if its unit has a slot of its own. A place is given
//! out once until its slot is free: an operation in flight, which pins the slot, never touches a page that got the place
//! later.

use std::collections::VecDeque;
use std::ops::Range;

use hashbrown::HashTable;
use slab::Slab;

use super::directory::{Single, places_of};
use super::validity;
use crate::mutant;
use crate::pages::Pages;

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
    /// Whether it is on flash.
    is_saved: bool,
}

/// A page that left its place in a mixed slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Left {
    pub slot: u32,
    pub place: u32,
    /// The shard's own number of its unit.
    pub unit: u32,
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
    /// Valid pages in all places.
    valid: u64,
    /// Pages that left their places and were not taken by [`take_left`](Self::take_left).
    left: Vec<Left>,
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
    pub(super) fn new(slot_pages: u32) -> Self {
        Self { places_each: places_of(slot_pages), ..Self::default() }
    }

    /// Valid pages in all places.
    pub(super) fn valid(&self) -> u64 {
        self.valid
    }

    /// The pages that left their places since the last call.
    pub(super) fn take_left(&mut self) -> Vec<Left> {
        std::mem::take(&mut self.left)
    }

    fn set_valid(&mut self, directory: u32, place: u32, valid: bool) {
        let bits = &mut self.directories[directory as usize].valid;
        let was = validity::all_set(bits, place..place + 1);
        validity::assign(bits, place..place + 1, valid);
        self.valid = self.valid + u64::from(valid) - u64::from(was);
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
        self.set_valid(directory, place, false);
        let directory = &mut self.directories[directory as usize];
        directory.singles[place as usize] = Single::NONE;
        directory.live -= 1;
        self.left.push(Left { slot: directory.slot, place, unit });
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

    /// Removes the directory of a slot that becomes free; returns the units of its pages.
    pub(super) fn close(&mut self, directory: u32) -> Vec<u32> {
        let before = self.left.len();
        for place in 0..self.directories[directory as usize].singles.len() {
            let single = self.directories[directory as usize].singles[place];
            if single.is_there() {
                self.remove(single.unit, single.page);
            }
        }
        self.directories.remove(directory as usize);
        self.order.retain(|other| *other != directory);
        // The slot is dropped as a whole.
        let mut units: Vec<u32> = self.left.drain(before..).map(|left| left.unit).collect();
        units.sort_unstable();
        units.dedup();
        units
    }

    /// Whether all of these places of a slot are valid.
    pub(super) fn all_valid(&self, directory: u32, places: Pages) -> bool {
        validity::all_set(&self.directories[directory as usize].valid, places)
    }

    /// Makes places of a slot valid, unless their page has left them.
    pub(super) fn make_valid(&mut self, directory: u32, places: Pages) {
        for place in places {
            let single = self.directories[directory as usize].singles.get(place as usize);
            if single.is_some_and(|single| single.is_there()) {
                self.set_valid(directory, place, true);
            }
        }
    }

    /// The page in each of these places that has one.
    pub(super) fn pages_in(&self, directory: u32, places: Pages) -> impl Iterator<Item = Single> {
        let singles = &self.directories[directory as usize].singles;
        let places = places.filter_map(|place| singles.get(place as usize));
        places.copied().filter(|single| single.is_there())
    }

    /// A bit per place: 1 for valid.
    pub(super) fn valid_words(&self, directory: u32) -> &[u64] {
        &self.directories[directory as usize].valid
    }

    pub(super) fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    /// Removes pages of these units, at most so many; returns whether there may be more.
    pub(super) fn remove_units(&mut self, units: &Range<u32>, most: usize) -> bool {
        let singles = self.directories.iter().flat_map(|(_, directory)| &directory.singles);
        let gone = singles.filter(|single| single.is_there() && units.contains(&single.unit));
        let gone: Vec<Single> = gone.take(most).copied().collect();
        gone.iter().for_each(|single| self.remove(single.unit, single.page));
        gone.len() == most
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
                self.set_valid(number / self.places_each, number % self.places_each, false);
            }
        }
    }

    /// The slot and the place of each page of a unit that has one.
    pub(super) fn each_place(&self, unit: u32, pages: &Pages) -> Vec<(u32, u32)> {
        if self.is_empty() {
            return Vec::new();
        }
        let numbers = pages.clone().filter_map(|page| self.find(unit, page));
        let slot = |number: u32| self.directories[(number / self.places_each) as usize].slot;
        numbers.map(|number| (slot(number), number % self.places_each)).collect()
    }

    /// The slot of pages that lie in consecutive places, and the place of page 0, which may wrap.
    pub(super) fn places(&self, unit: u32, pages: &Pages) -> Option<(u32, u32)> {
        let (directory, place) = self.run(unit, pages)?;
        Some((self.directories[directory as usize].slot, place.wrapping_sub(pages.start)))
    }

    /// The same, if all of them are valid.
    fn valid_run(&self, unit: u32, pages: &Pages) -> Option<(u32, u32)> {
        let (directory, place) = self.run(unit, pages)?;
        let valid = self.all_valid(directory, place..place + pages.len() as u32);
        valid.then_some((directory, place))
    }

    /// The slot that has all of these pages, valid, and the place of page 0, which may wrap.
    pub(super) fn peek(&self, unit: u32, pages: &Pages) -> Option<(u32, u32)> {
        let (directory, place) = self.valid_run(unit, pages)?;
        Some((self.directories[directory as usize].slot, place.wrapping_sub(pages.start)))
    }

    /// The same; counts as a hit of the slot.
    pub(super) fn hit(&mut self, unit: u32, pages: &Pages) -> Option<(u32, u32)> {
        let (directory, place) = self.valid_run(unit, pages)?;
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
            is_saved: false,
        };
        let number = self.directories.insert(directory) as u32;
        self.order.push_back(number);
        number
    }

    /// The slot that receives pages.
    pub(super) fn open_slot(&self) -> Option<u32> {
        self.order.back().map(|open| self.directories[*open as usize].slot)
    }

    /// Fills the rest of the open slot with places that stay empty, so that it is closed.
    pub(super) fn close_open(&mut self) {
        if let Some(open) = self.order.back() {
            let singles = &mut self.directories[*open as usize].singles;
            singles.resize(self.places_each as usize, Single::NONE);
        }
    }

    /// The oldest mixed slot that is closed and whose directory is not on flash, and its places.
    pub(super) fn unsaved(&self) -> Option<(u32, Vec<Single>)> {
        let open = self.order.back()?;
        let is_closed = |number: u32| {
            number != *open
                || self.directories[number as usize].singles.len() == self.places_each as usize
        };
        // They are saved in this order.
        let closed = self.order.iter().rev().filter(|number| is_closed(**number));
        let unsaved = closed.take_while(|number| !self.is_saved(**number));
        let directory = &self.directories[*unsaved.last()? as usize];
        let mut singles = directory.singles.clone();
        singles.resize(self.places_each as usize, Single::NONE);
        Some((directory.slot, singles))
    }

    /// The directory of a slot is on flash, and durable with the next flush.
    pub(super) fn set_saved(&mut self, directory: u32) {
        self.directories[directory as usize].is_saved = true;
    }

    pub(super) fn is_saved(&self, directory: u32) -> bool {
        self.directories[directory as usize].is_saved
    }

    /// Adds a slot as it was recovered, with the valid places of `words`; returns the number of its directory, or `None` if
    /// a page has a place already.
    pub(super) fn restore(&mut self, slot: u32, singles: &[Single], words: &[u64]) -> Option<u32> {
        let number = self.open(slot, 0);
        for (place, single) in (0..self.places_each).zip(singles) {
            let is_valid = single.is_there() && validity::all_set(words, place..place + 1);
            if !is_valid {
                self.directories[number as usize].singles.push(Single::NONE);
            } else {
                if self.find(single.unit, single.page).is_some() {
                    return None;
                }
                self.append(single.unit, &(single.page..single.page + 1))?;
                self.set_valid(number, place, true);
            }
        }
        self.close_open();
        self.set_saved(number);
        Some(number)
    }

    /// What is known of a mixed slot.
    pub(super) fn known(&self, directory: u32) -> MixedSlot {
        self.directories[directory as usize].state()
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
