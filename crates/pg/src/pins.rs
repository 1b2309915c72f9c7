// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pinned relations: their pages stay on flash when others are evicted (`larder.pin`).
//!
//! A pin has the main fork of a relation's file, and the number of its pages when it was pinned. A page below that number is
//! appended again when it is due for eviction, and is admitted even if it was read through a ring.
//!
//! # Invariants
//! 1. The pages of all pins together are at most a [`SHARE`] of flash. So every group of pages that is due for eviction makes
//!    room in the end, and a table that grows takes no more than was accepted.
//! 2. A pin ends with its file. A page whose number was retired is never kept: it would stay on flash for ever.
//!
//! A pin is two words: tablespace and database; relation and pages. A process that reads one while it is changed may see
//! another relation for a moment, which costs or keeps a page and no data.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Release};

use crate::file::Fork;

/// The most pins.
pub const MOST: usize = 64;
/// Words of all pins.
pub const WORDS: usize = 2 * MOST;
/// The part of flash that pins may have. A group of pinned pages makes no room, and costs a write.
pub const SHARE: u64 = 4;

/// The pins.
#[derive(Clone, Copy)]
pub struct Pins<'a>(&'a [AtomicU64]);

/// Why a relation is not pinned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotPinned {
    /// All pins are in use.
    #[error("{MOST} relations are pinned, which is the most")]
    Many,
    /// They would have too much of flash.
    #[error(
        "it has {pages} pages, other pinned relations have {others}, and pins may have {most} pages, a quarter of flash"
    )]
    Large {
        /// Pages of the relation.
        pages: u64,
        /// Pages of other pins.
        others: u64,
        /// Pages that all pins may have.
        most: u64,
    },
}

fn keys(fork: &Fork) -> [u64; 2] {
    let pair = |a: u32, b: u32| u64::from(a) << 32 | u64::from(b);
    [pair(fork.tablespace, fork.database), pair(fork.relation, 0)]
}

impl<'a> Pins<'a> {
    /// Over these words.
    #[must_use]
    pub fn new(words: &'a [AtomicU64]) -> Self {
        assert_eq!(words.len(), WORDS);
        Self(words)
    }

    fn get(&self, pin: usize) -> [u64; 2] {
        [0, 1].map(|word| self.0[2 * pin + word].load(Acquire))
    }

    fn is_of(&self, pin: usize, fork: &Fork) -> bool {
        let ([place, relation], keys) = (self.get(pin), keys(fork));
        relation as u32 != 0 && place == keys[0] && relation >> 32 == keys[1] >> 32
    }

    /// Only main forks are pinned.
    fn find(&self, fork: &Fork) -> Option<usize> {
        (0..MOST).find(|pin| fork.kind == 0 && self.is_of(*pin, fork))
    }

    /// Pages of a fork that are pinned.
    #[must_use]
    pub fn pages(&self, fork: &Fork) -> u64 {
        self.find(fork).map_or(0, |pin| u64::from(self.get(pin)[1] as u32))
    }

    /// Pages of all pins.
    #[must_use]
    pub fn all(&self) -> u64 {
        (0..MOST).map(|pin| u64::from(self.get(pin)[1] as u32)).sum()
    }

    /// Pins the first `pages` pages of a fork; `blocks` are those of flash. One process at a time may call this.
    ///
    /// # Errors
    /// If they would be too many.
    pub fn pin(&self, fork: &Fork, pages: u64, blocks: u64) -> Result<(), NotPinned> {
        let (most, before) = (blocks / SHARE, self.pages(fork));
        let others = self.all().saturating_sub(before);
        if others + pages > most {
            return Err(NotPinned::Large { pages, others, most });
        }
        let is_free = |pin: &usize| self.get(*pin)[1] as u32 == 0;
        let free = || (0..MOST).find(is_free);
        let pin = self.find(fork).or_else(free).ok_or(NotPinned::Many)?;
        let [place, relation] = keys(fork);
        self.0[2 * pin].store(place, Release);
        self.0[2 * pin + 1].store(relation | pages.min(u64::from(u32::MAX)), Release);
        Ok(())
    }

    /// Ends the pin of a fork; returns whether there was one.
    pub fn unpin(&self, fork: &Fork) -> bool {
        let found = self.find(fork);
        if let Some(pin) = found {
            self.0[2 * pin + 1].store(0, Release);
        }
        found.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rig::FORK;

    #[test]
    fn pins_are_of_main_forks_and_have_a_quarter_of_flash() {
        let words: Vec<AtomicU64> = (0..WORDS).map(|_| AtomicU64::new(0)).collect();
        let pins = Pins::new(&words);
        let other = Fork { relation: 101, ..FORK };
        assert_eq!(pins.pin(&FORK, 40, 200), Ok(()));
        let large = NotPinned::Large { pages: 11, others: 40, most: 50 };
        assert_eq!(pins.pin(&other, 11, 200), Err(large));
        assert_eq!(pins.pin(&other, 10, 200), Ok(()));
        assert_eq!(pins.pin(&FORK, 30, 200), Ok(()), "again, with another size");
        assert_eq!((pins.pages(&FORK), pins.pages(&other), pins.all()), (30, 10, 40));
        assert_eq!(pins.pages(&Fork { kind: 1, ..FORK }), 0);
        assert_eq!(pins.pages(&Fork { database: 6, ..FORK }), 0);
        assert!(pins.unpin(&FORK) && !pins.unpin(&FORK));
        for relation in 200..200 + MOST as u32 - 1 {
            assert_eq!(pins.pin(&Fork { relation, ..FORK }, 1, 1000), Ok(()));
        }
        assert_eq!(pins.pin(&FORK, 1, 1000), Err(NotPinned::Many));
    }
}
