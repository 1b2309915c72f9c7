// SPDX-License-Identifier: MIT OR Apache-2.0
//! Numbers of extents: a page of the log is a number of 58 bits, a page of a database is named by 17 bytes.
//!
//! A table in shared words: buckets of [`WAYS`] entries, an entry of three words: tablespace and database, relation, fork and
//! extent, state. A number is `life | entry`; an entry's life goes up when its extent is *retired* (its file is dropped, emptied
//! or rewritten without the cache), and with it every page that the log has of the extent becomes unreachable at once,
//! whatever their number. Pages without a reachable number are evicted from the log like any others.
//!
//! # Invariants
//! 1. No number is used twice with the same log, whatever the log may still hold: each entry has [`LIVES`] lives (2^24), and
//!    one without lives is neither used again nor raised further. A log that is formatted has a new table.
//! 2. An extent has at most one number. Only the process that holds the table assigns numbers ([`Names::assign`]); every
//!    process may look them up and retire them.
//! 3. The state is written last, so a process that sees a number sees its extent; a reader reads the state twice.
//!
//! Why not a table without bounds: it would be moved while other processes read it. A full bucket retires one of its
//! entries, or takes no new one. Why no number is used again after the log has evicted its pages: a log that never fills evicts
//! none, and a process that was stopped may still hold an old number.

use std::ops::Range;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Release};

use larder_shared::NEIGHBOURS;

use crate::extent::{EXTENT_BITS, EXTENT_BLOCKS, Extent, INDEXES};
use crate::file::Fork;
use crate::mutant::{Mutant, is_active};

/// Entries of a bucket.
pub const WAYS: usize = 8;
/// Entries of the table (2^17): extents that can be in the cache at a time.
pub const ENTRIES: usize = 1 << ENTRY_BITS;
/// Words of the table.
pub const WORDS: usize = ENTRIES * ENTRY_WORDS;

const ENTRY_BITS: u32 = 17;
const ENTRY_WORDS: usize = 3;
/// Lives of an entry: with the bits of the entry and of the block they are the bits of a page of the log.
const LIVES: u64 = 1 << 24;
/// Latches of an extent.
const LATCHES: u64 = 16;
const TAKEN: u64 = 1 << 63;
/// The table, see the module.
#[derive(Clone, Copy)]
pub struct Names<'a>(&'a [AtomicU64]);

/// Why an extent has no number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lack {
    /// Other extents have all entries of its bucket.
    Crowded,
    /// The entries of its bucket have no lives left.
    WornOut,
}

/// An extent's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Number(u64);

impl Number {
    /// The number of a page: a block of the extent.
    #[must_use]
    pub fn page(self, block: u64) -> u64 {
        debug_assert!(block < EXTENT_BLOCKS);
        self.0 << EXTENT_BITS | block
    }

    /// The number of its extent, and the block there.
    #[must_use]
    pub fn of_page(page: u64) -> (Self, u64) {
        (Self(page >> EXTENT_BITS), page % EXTENT_BLOCKS)
    }

    /// Its entry in the table.
    #[must_use]
    pub fn entry(self) -> usize {
        self.0 as usize % ENTRIES
    }

    /// Names the latch of a block and its neighbours: several of an extent may be written at a time.
    #[must_use]
    pub fn latch(self, block: u64) -> u64 {
        self.0 * LATCHES + block / NEIGHBOURS % LATCHES
    }

    /// Names all of them.
    #[must_use]
    pub fn latches(self) -> Range<u64> {
        self.latch(0)..self.latch(0) + LATCHES
    }

    /// As a number.
    #[must_use]
    pub fn bits(self) -> u64 {
        self.0
    }

    /// The number with these [`bits`](Self::bits).
    #[must_use]
    pub fn of_bits(bits: u64) -> Self {
        Self(bits)
    }

    fn of(entry: usize, state: u64) -> Self {
        Self(life(state) << ENTRY_BITS | entry as u64)
    }
}

fn life(state: u64) -> u64 {
    state & !TAKEN
}

fn keys(Extent { fork, index }: &Extent) -> [u64; 2] {
    let pair = |a: u32, b: u32| u64::from(a) << 32 | u64::from(b);
    let kind = u64::from(fork.kind) & 3;
    [
        pair(fork.tablespace, fork.database),
        pair(fork.relation, 0) | kind << INDEXES.ilog2() | u64::from(*index),
    ]
}

fn bucket(keys: [u64; 2]) -> usize {
    let mixed = keys[0].wrapping_mul(0xD6E8_FEB8_6659_FD93).rotate_left(32) ^ keys[1];
    let hash = mixed.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (hash >> (64 - (ENTRY_BITS - WAYS.ilog2()))) as usize
}

impl<'a> Names<'a> {
    /// Over these words.
    #[must_use]
    pub fn new(words: &'a [AtomicU64]) -> Self {
        assert_eq!(words.len(), WORDS);
        Self(words)
    }

    fn word(&self, entry: usize, word: usize) -> &'a AtomicU64 {
        &self.0[entry * ENTRY_WORDS + word]
    }

    fn state(&self, entry: usize) -> u64 {
        self.word(entry, 2).load(Acquire)
    }

    fn is(&self, entry: usize, keys: [u64; 2]) -> bool {
        (0..2).all(|i| self.word(entry, i).load(Acquire) == keys[i])
    }

    fn ways(keys: [u64; 2]) -> std::ops::Range<usize> {
        let first = bucket(keys) * WAYS;
        first..first + WAYS
    }

    /// The number that the extent has.
    #[must_use]
    pub fn find(&self, extent: &Extent) -> Option<Number> {
        let keys = keys(extent);
        Self::ways(keys).find_map(|entry| {
            let state = self.state(entry);
            let here = state & TAKEN != 0 && self.is(entry, keys) && self.state(entry) == state;
            here.then(|| Number::of(entry, state))
        })
    }

    /// Whether [`assign`](Self::assign) would give the extent a number; else why not.
    ///
    /// # Errors
    /// If it would not.
    pub fn may_assign(&self, extent: &Extent, displace: bool) -> Result<(), Lack> {
        self.entry_for(keys(extent), displace).map(drop)
    }

    /// A free entry, or with `displace` one that may be taken from its extent.
    fn entry_for(&self, keys: [u64; 2], displace: bool) -> Result<usize, Lack> {
        let is_taken = |entry: &usize| self.state(*entry) & TAKEN != 0;
        let lives = |entry: &usize| LIVES.saturating_sub(life(self.state(*entry)));
        if let Some(free) = Self::ways(keys).find(|e| !is_taken(e) && lives(e) > 0) {
            return Ok(free);
        }
        // The keys select it: the order of use is not recorded.
        let first = (keys[1] ^ keys[1] >> 32) as usize;
        let mut ways = (0..WAYS).map(|way| Self::ways(keys).start + (first + way) % WAYS);
        match ways.find(|e| is_taken(e) && lives(e) > 1) {
            Some(other) if displace => Ok(other),
            Some(_) => Err(Lack::Crowded),
            None => Err(Lack::WornOut),
        }
    }

    /// Gives an extent without a number a free one or, with `displace`, that of another extent. Only one process at a time
    /// may call this.
    ///
    /// # Errors
    /// If there is none.
    pub fn assign(&self, extent: &Extent, displace: bool) -> Result<Number, Lack> {
        if let Some(number) = self.find(extent) {
            return Ok(number);
        }
        let keys = keys(extent);
        let entry = self.entry_for(keys, displace)?;
        let before = self.state(entry);
        if before & TAKEN != 0 {
            self.end(entry, before);
        }
        (0..2).for_each(|i| self.word(entry, i).store(keys[i], Release));
        let state = self.state(entry) | TAKEN;
        self.word(entry, 2).store(state, Release);
        Ok(Number::of(entry, state))
    }

    /// The extent that an entry is of.
    fn extent(&self, entry: usize) -> Option<Extent> {
        let state = self.state(entry);
        let [first, second] = [0, 1].map(|i| self.word(entry, i).load(Acquire));
        let here = state & TAKEN != 0 && self.state(entry) == state;
        let fork = Fork {
            tablespace: (first >> 32) as u32,
            database: first as u32,
            relation: (second >> 32) as u32,
            kind: (second >> INDEXES.ilog2()) as u8 & 3,
        };
        here.then_some(Extent { fork, index: (second % INDEXES) as u32 })
    }

    /// The extent that has this number.
    #[must_use]
    pub fn extent_of(&self, number: Number) -> Option<Extent> {
        let entry = number.entry();
        let extent = self.extent(entry)?;
        (Number::of(entry, self.state(entry)) == number).then_some(extent)
    }

    fn end(&self, entry: usize, state: u64) {
        let next = match is_active(Mutant::ReusesLife) {
            true => life(state),
            false => life(state) + 1,
        };
        // A faster process has done the same.
        let _ = self.word(entry, 2).compare_exchange(state, next, AcqRel, Acquire);
    }

    /// Removes the extent's number, and so its pages from the cache. Returns whether it had one.
    pub fn retire(&self, extent: &Extent) -> bool {
        let keys = keys(extent);
        let mut had = false;
        for entry in Self::ways(keys) {
            let state = self.state(entry);
            if state & TAKEN != 0 && self.is(entry, keys) {
                self.end(entry, state);
                had = true;
            }
        }
        had
    }

    /// Entries that extents have.
    pub fn taken(&self) -> impl Iterator<Item = usize> + 'a {
        let names = *self;
        (0..ENTRIES).filter(move |entry| names.state(*entry) & TAKEN != 0)
    }

    /// The numbers that extents have.
    pub fn numbers(&self) -> impl Iterator<Item = (Number, Extent)> + 'a {
        let names = *self;
        (0..ENTRIES).filter_map(move |entry| {
            // The state is read first: with another extent meanwhile the number is that of the former one.
            let number = Number::of(entry, names.state(entry));
            names.extent_of(number).map(|extent| (number, extent))
        })
    }

    /// The state for a later start: all entries that were ever used, with their words.
    pub fn save(&self) -> impl Iterator<Item = [u64; 4]> + 'a {
        let names = *self;
        (0..ENTRIES).filter(move |entry| names.state(*entry) != 0).map(move |entry| {
            let [a, b] = [0, 1].map(|i| names.word(entry, i).load(Acquire));
            [entry as u64, a, b, names.state(entry)]
        })
    }

    /// Restores an entry of [`save`](Self::save); returns whether it is consistent.
    #[must_use]
    pub fn restore(&self, [entry, a, b, state]: [u64; 4]) -> bool {
        let sound = entry < ENTRIES as u64
            && life(state) <= LIVES - state / TAKEN
            && bucket([a, b]) == entry as usize / WAYS;
        if sound {
            for (word, value) in [a, b, state].into_iter().enumerate() {
                self.word(entry as usize, word).store(value, Release);
            }
        }
        sound
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words() -> Vec<AtomicU64> {
        (0..WORDS).map(|_| AtomicU64::new(0)).collect()
    }

    fn extent(relation: u32) -> Extent {
        Extent { fork: Fork { tablespace: 1663, database: 5, relation, kind: 0 }, index: 0 }
    }

    fn mates(count: usize) -> Vec<Extent> {
        let same = |e: &Extent| bucket(keys(e)) == bucket(keys(&extent(0)));
        (0..4_000_000).map(extent).filter(same).take(count).collect()
    }

    /// All entries of a bucket have so many lives behind them.
    fn age(names: &Names<'_>, of: &Extent, lives: u64) {
        Names::ways(keys(of)).for_each(|entry| names.word(entry, 2).store(lives, Release));
    }

    #[test]
    fn an_extent_keeps_its_number_until_it_is_retired_and_never_gets_it_back() {
        let words = words();
        let names = Names::new(&words);
        let mut seen = std::collections::HashSet::new();
        for _ in 0..100 {
            let number = names.assign(&extent(1), false).unwrap();
            assert_eq!(names.find(&extent(1)), Some(number));
            assert_eq!(names.assign(&extent(1), false), Ok(number));
            assert_eq!(names.extent_of(number), Some(extent(1)));
            assert!(seen.insert(number));
            assert!(names.retire(&extent(1)));
            assert!(!names.retire(&extent(1)));
            assert_eq!((names.find(&extent(1)), names.extent_of(number)), (None, None));
        }
    }

    #[test]
    fn every_extent_and_block_has_a_page_of_its_own() {
        let words = words();
        let names = Names::new(&words);
        let mut pages = std::collections::HashSet::new();
        for relation in 0..500 {
            for (kind, index) in (0..4).flat_map(|kind| [(kind, 0), (kind, INDEXES as u32 - 1)]) {
                let one = Extent { fork: Fork { kind, ..extent(relation).fork }, index };
                let number = names.assign(&one, true).unwrap();
                assert_eq!(names.extent_of(number), Some(one));
                for block in [0, 1, EXTENT_BLOCKS - 1] {
                    let page = number.page(block);
                    assert!(page < larder_core::pagelog::PAGES_MOST && pages.insert(page));
                    assert_eq!(Number::of_page(page), (number, block));
                }
            }
        }
        let last = Number::of(ENTRIES - 1, LIVES - 1).page(EXTENT_BLOCKS - 1);
        assert_eq!(last, larder_core::pagelog::PAGES_MOST - 1);
    }

    #[test]
    fn a_full_bucket_gives_an_entry_away_if_it_may() {
        let words = words();
        let names = Names::new(&words);
        let mates = mates(WAYS + 1);
        assert_eq!(mates.len(), WAYS + 1);
        for mate in &mates[..WAYS] {
            assert!(names.assign(mate, false).is_ok());
        }
        assert_eq!(names.may_assign(&mates[WAYS], false), Err(Lack::Crowded));
        assert_eq!(names.assign(&mates[WAYS], false), Err(Lack::Crowded));
        assert!(names.assign(&mates[WAYS], true).is_ok());
        assert_eq!(mates.iter().filter(|m| names.find(m).is_some()).count(), WAYS);
    }

    #[test]
    fn an_extent_has_as_many_lives_as_the_document_says() {
        let words = words();
        let names = Names::new(&words);
        let mut last = names.assign(&extent(1), false).unwrap();
        let entry = last.entry();
        names.retire(&extent(1));
        // Not all of them, which would take long under a sanitizer.
        for first in [1, (1 << 24) - 1_000] {
            names.word(entry, 2).store(first, Release);
            for life in first..first + 999 {
                let number = names.assign(&extent(1), false).unwrap();
                assert_eq!((number.entry(), number.bits() >> ENTRY_BITS), (entry, life));
                assert!(number.bits() > last.bits() && names.retire(&extent(1)));
                last = number;
            }
        }
        assert_eq!(names.assign(&extent(1), false).unwrap().entry(), entry, "the last life");
        names.retire(&extent(1));
        assert_ne!(names.assign(&extent(1), false).unwrap().entry(), entry);
    }

    #[test]
    fn a_worn_entry_is_not_raised_and_its_table_is_restored() {
        let (one, two) = (words(), words());
        let (names, later) = (Names::new(&one), Names::new(&two));
        let mates = mates(WAYS + 2);
        age(&names, &mates[0], LIVES - 1);
        let numbers: Vec<Number> =
            (0..WAYS).map(|i| names.assign(&mates[i], true).unwrap()).collect();
        // None may be displaced: its entry would have no life for the next extent.
        for displace in [false, true] {
            assert_eq!(names.assign(&mates[WAYS], displace), Err(Lack::WornOut));
        }
        assert!((0..WAYS).all(|i| names.find(&mates[i]) == Some(numbers[i])));
        assert!(mates.iter().take(WAYS).all(|mate| names.retire(mate)));
        for mate in mates.iter().cycle().take(100) {
            assert!(!names.retire(mate));
            assert_eq!(names.assign(mate, true), Err(Lack::WornOut));
            assert_eq!(names.may_assign(mate, true), Err(Lack::WornOut));
        }
        assert_eq!(names.save().count(), WAYS);
        assert!(names.save().all(|entry| later.restore(entry)));
        assert_eq!(later.assign(&mates[0], true), Err(Lack::WornOut));
    }

    #[test]
    fn what_is_saved_is_restored_and_nonsense_is_not() {
        let (one, two) = (words(), words());
        let (names, later) = (Names::new(&one), Names::new(&two));
        let kept = names.assign(&extent(7), true).unwrap();
        names.assign(&extent(8), true).unwrap();
        names.retire(&extent(8));
        assert!(names.save().all(|entry| later.restore(entry)));
        assert_eq!(later.find(&extent(7)), Some(kept));
        assert!(later.assign(&extent(8), true).is_ok());
        let [entry, a, b, state] = names.save().next().unwrap();
        assert!(!later.restore([ENTRIES as u64, a, b, state]));
        assert!(!later.restore([entry ^ 8, a, b, state]));
        assert!(!later.restore([entry, a, b, state | LIVES << 1]));
        assert!(!later.restore([entry, a, b, TAKEN | LIVES]), "no number has this life");
    }
}
