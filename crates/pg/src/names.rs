// SPDX-License-Identifier: MIT OR Apache-2.0
//! Numbers of forks: a page of the log is a number of 58 bits, a page of a database is named by 17 bytes.
//!
//! A table in shared words: buckets of [`WAYS`] entries, an entry of three words: tablespace and database, relation
//! and fork, state. A number is `lap | entry`; an entry's lap goes up when its fork is *retired* (dropped, emptied,
//! rewritten without the cache), and with it every page that the log has of the fork becomes unreachable at once,
//! whatever their number. Pages without a reachable number are evicted from the log like any others.
//!
//! # Invariants
//! 1. No number is used twice: an entry without laps left is not used again.
//! 2. A fork has at most one number. Only the process that holds the table assigns numbers ([`Names::assign`]); every
//!    process may look them up and retire them.
//! 3. The state is written last, so a process that sees a number sees its fork; a reader reads the state twice.
//!
//! Why not a table without bounds: it would be moved while other processes read it. A full bucket retires one of its
//! entries, or takes no new one.

use std::ops::Range;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Release};

use larder_shared::NEIGHBOURS;

use crate::file::Fork;

/// Entries of a bucket.
pub const WAYS: usize = 8;
/// Entries of the table (2^17): forks that can be in the cache at a time.
pub const ENTRIES: usize = 1 << ENTRY_BITS;
/// Words of the table.
pub const WORDS: usize = ENTRIES * ENTRY_WORDS;

const ENTRY_BITS: u32 = 17;
const ENTRY_WORDS: usize = 3;
const LAPS: u64 = 1 << 11;
/// Latches of a fork.
const LATCHES: u64 = 16;
const TAKEN: u64 = 1 << 63;
/// Block numbers are below this (8 TiB of 8 KiB pages).
pub const BLOCKS_MOST: u64 = 1 << 30;

/// The table, see the module.
#[derive(Clone, Copy)]
pub struct Names<'a>(&'a [AtomicU64]);

/// A fork's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Number(u32);

impl Number {
    /// The number of a page of the fork, if such a block can be numbered.
    #[must_use]
    pub fn page(self, block: u64) -> Option<u64> {
        (block < BLOCKS_MOST).then_some(u64::from(self.0) * BLOCKS_MOST + block)
    }

    /// The number of its fork.
    #[must_use]
    pub fn of_page(page: u64) -> (Self, u64) {
        (Self((page / BLOCKS_MOST) as u32), page % BLOCKS_MOST)
    }

    /// Its entry in the table.
    #[must_use]
    pub fn entry(self) -> usize {
        self.0 as usize % ENTRIES
    }

    /// Names the latch of a block and its neighbours: several of a fork may be written at a time.
    #[must_use]
    pub fn latch(self, block: u64) -> u64 {
        u64::from(self.0) * LATCHES + block / NEIGHBOURS % LATCHES
    }

    /// Names all of them.
    #[must_use]
    pub fn latches(self) -> Range<u64> {
        self.latch(0)..self.latch(0) + LATCHES
    }

    /// As a number.
    #[must_use]
    pub fn bits(self) -> u64 {
        u64::from(self.0)
    }

    /// The number with these [`bits`](Self::bits).
    #[must_use]
    pub fn of_bits(bits: u64) -> Self {
        Self(bits as u32)
    }

    fn of(entry: usize, state: u64) -> Self {
        Self(((state & !TAKEN) << ENTRY_BITS) as u32 | entry as u32)
    }
}

fn keys(fork: &Fork) -> [u64; 2] {
    let pair = |a: u32, b: u32| u64::from(a) << 32 | u64::from(b);
    [pair(fork.tablespace, fork.database), u64::from(fork.relation) << 8 | u64::from(fork.kind)]
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

    /// The number that the fork has.
    #[must_use]
    pub fn find(&self, fork: &Fork) -> Option<Number> {
        let keys = keys(fork);
        Self::ways(keys).find_map(|entry| {
            let state = self.state(entry);
            let here = state & TAKEN != 0 && self.is(entry, keys) && self.state(entry) == state;
            here.then(|| Number::of(entry, state))
        })
    }

    /// Gives a fork without a number a free one or, with `displace`, that of another fork. Only one process at a time may
    /// call this.
    pub fn assign(&self, fork: &Fork, displace: bool) -> Option<Number> {
        if let Some(number) = self.find(fork) {
            return Some(number);
        }
        let keys = keys(fork);
        let usable = |entry: &usize| self.state(*entry) & !TAKEN < LAPS;
        let free = Self::ways(keys).filter(usable).find(|e| self.state(*e) & TAKEN == 0);
        let displaced = || {
            // The keys of the fork select it: the order of use is not recorded.
            let entry = Self::ways(keys).start + (keys[1] / 256) as usize % WAYS;
            self.end(entry, self.state(entry));
            entry
        };
        let entry = free.or_else(|| displace.then(displaced)).filter(usable)?;
        (0..2).for_each(|i| self.word(entry, i).store(keys[i], Release));
        let state = self.state(entry) | TAKEN;
        self.word(entry, 2).store(state, Release);
        Some(Number::of(entry, state))
    }

    /// The fork that an entry is of.
    fn fork(&self, entry: usize) -> Option<Fork> {
        let state = self.state(entry);
        let [first, second] = [0, 1].map(|i| self.word(entry, i).load(Acquire));
        let here = state & TAKEN != 0 && self.state(entry) == state;
        here.then_some(Fork {
            tablespace: (first >> 32) as u32,
            database: first as u32,
            relation: (second >> 8) as u32,
            kind: second as u8,
        })
    }

    /// The fork that has this number.
    #[must_use]
    pub fn fork_of(&self, number: Number) -> Option<Fork> {
        let entry = number.entry();
        let fork = self.fork(entry)?;
        (Number::of(entry, self.state(entry)) == number).then_some(fork)
    }

    fn end(&self, entry: usize, state: u64) {
        let next = (state & !TAKEN) + 1;
        // A faster process has done the same.
        let _ = self.word(entry, 2).compare_exchange(state, next, AcqRel, Acquire);
    }

    /// Removes the fork's number, and so its pages from the cache. Returns whether it had one.
    pub fn retire(&self, fork: &Fork) -> bool {
        let keys = keys(fork);
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

    /// Entries that forks have.
    pub fn taken(&self) -> impl Iterator<Item = usize> + 'a {
        let names = *self;
        (0..ENTRIES).filter(move |entry| names.state(*entry) & TAKEN != 0)
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
            && state & !TAKEN <= LAPS
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

    fn fork(relation: u32) -> Fork {
        Fork { tablespace: 1663, database: 5, relation, kind: 0 }
    }

    #[test]
    fn a_fork_keeps_its_number_until_it_is_retired_and_never_gets_it_back() {
        let words = words();
        let names = Names::new(&words);
        let mut seen = std::collections::HashSet::new();
        for _ in 0..100 {
            let number = names.assign(&fork(1), false).unwrap();
            assert_eq!(names.find(&fork(1)), Some(number));
            assert_eq!(names.assign(&fork(1), false), Some(number));
            assert_eq!(names.fork_of(number), Some(fork(1)));
            assert!(seen.insert(number.0));
            assert!(names.retire(&fork(1)));
            assert!(!names.retire(&fork(1)));
            assert_eq!((names.find(&fork(1)), names.fork_of(number)), (None, None));
        }
    }

    #[test]
    fn every_fork_and_block_has_a_page_of_its_own() {
        let words = words();
        let names = Names::new(&words);
        let mut pages = std::collections::HashSet::new();
        for relation in 0..1_000 {
            for kind in 0..4 {
                let fork = Fork { kind, ..fork(relation) };
                let number = names.assign(&fork, true).unwrap();
                for block in [0, 1, BLOCKS_MOST - 1] {
                    let page = number.page(block).unwrap();
                    assert!(page < larder_core::pagelog::PAGES_MOST && pages.insert(page));
                    assert_eq!(Number::of_page(page), (number, block));
                }
                assert_eq!(number.page(BLOCKS_MOST), None);
            }
        }
    }

    #[test]
    fn a_full_bucket_gives_an_entry_away_if_it_may() {
        let words = words();
        let names = Names::new(&words);
        let same = |f: &Fork| bucket(keys(f)) == bucket(keys(&fork(0)));
        let mates: Vec<Fork> = (0..2_000_000).map(fork).filter(same).take(WAYS + 1).collect();
        assert_eq!(mates.len(), WAYS + 1);
        for mate in &mates[..WAYS] {
            assert!(names.assign(mate, false).is_some());
        }
        assert_eq!(names.assign(&mates[WAYS], false), None);
        assert!(names.assign(&mates[WAYS], true).is_some());
        assert_eq!(mates.iter().filter(|m| names.find(m).is_some()).count(), WAYS);
    }

    #[test]
    fn an_entry_ends_with_its_laps() {
        let words = words();
        let names = Names::new(&words);
        let mut given = 0;
        while names.assign(&fork(1), true).is_some() {
            names.retire(&fork(1));
            given += 1;
        }
        assert_eq!(given, WAYS * LAPS as usize);
    }

    #[test]
    fn what_is_saved_is_restored_and_nonsense_is_not() {
        let (one, two) = (words(), words());
        let (names, later) = (Names::new(&one), Names::new(&two));
        let kept = names.assign(&fork(7), true).unwrap();
        names.assign(&fork(8), true).unwrap();
        names.retire(&fork(8));
        assert!(names.save().all(|entry| later.restore(entry)));
        assert_eq!(later.find(&fork(7)), Some(kept));
        assert_ne!(later.assign(&fork(8), true), None);
        let [entry, a, b, state] = names.save().next().unwrap();
        assert!(!later.restore([ENTRIES as u64, a, b, state]));
        assert!(!later.restore([entry ^ 8, a, b, state]));
        assert!(!later.restore([entry, a, b, state | LAPS << 1]));
    }
}
