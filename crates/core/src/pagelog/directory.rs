// SPDX-License-Identifier: MIT OR Apache-2.0
//! The directory: which slot holds the valid version of a page, as chains of slots by hash.
//!
//! Invariant: a chain holds exactly the valid slots whose page hashes to it, and no page twice. The slots' first words
//! determine the chains, so a repair rebuilds them.

use std::hint::black_box;
use std::ops::{Deref, Range};
use std::sync::atomic::AtomicU64;

use super::ended::Ended;
use super::words::{DIRTY, Kind, Mark, REFERENCED, VALID, Words, kind_of, page_of, slot_word};

/// Positions that a rebuild prefetches together.
const TOGETHER: usize = 64;
/// Slots that a look without the lock passes: chains are short, but a chain that changes meanwhile may lead anywhere.
const CHAIN_MOST: usize = 16;

impl<M: Deref<Target = [AtomicU64]>> Words<M> {
    fn chain_of(&self, page: u64) -> u32 {
        let hash = page.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        // The upper bits are the well mixed ones.
        ((u128::from(hash) * u128::from(self.blocks)) >> 64) as u32
    }

    /// The slot of the page's valid version.
    pub fn find(&self, page: u64) -> Option<u32> {
        let mut next = self.chain(self.chain_of(page));
        while let Some(slot) = next.checked_sub(1) {
            if page_of(self.slot(slot)) == page {
                return Some(slot);
            }
            next = self.next(slot);
        }
        None
    }

    /// Whether a chain that others may be changing has the page; sets these flags of its slot. A slot that changes meanwhile stays
    /// unchanged.
    pub fn glance(&self, page: u64, flags: u64) -> bool {
        let mut next = self.chain(self.chain_of(page));
        for _ in 0..CHAIN_MOST {
            let Some(slot) = next.checked_sub(1).filter(|slot| *slot < self.blocks) else { break };
            let word = self.slot(slot);
            if word & VALID != 0 && page_of(word) == page {
                self.add_flags(slot, word, flags);
                return true;
            }
            next = self.next(slot);
        }
        false
    }

    /// Adds a slot with a valid version, and drops an older version of the page.
    pub fn insert(&self, slot: u32) {
        let word = self.slot(slot);
        if let Some(old) = self.find(page_of(word)) {
            self.drop_valid(old);
        }
        let chain = self.chain_of(page_of(word));
        self.set_next(slot, self.chain(chain));
        self.set_chain(chain, slot + 1);
        self.add(Mark::Turn, 1);
        self.add(Mark::Valid, 1);
        self.add(Mark::Dirty, u64::from(word & DIRTY != 0));
    }

    /// Makes the slot's version invalid.
    pub fn drop_valid(&self, slot: u32) {
        let word = self.slot(slot);
        debug_assert!(word & VALID != 0);
        let chain = self.chain_of(page_of(word));
        let mut before = None;
        let mut next = self.chain(chain);
        while let Some(here) = next.checked_sub(1) {
            next = self.next(here);
            if here == slot {
                match before {
                    Some(before) => self.set_next(before, next),
                    None => self.set_chain(chain, next),
                }
                break;
            }
            before = Some(here);
        }
        self.set_slot(slot, word & !(VALID | REFERENCED));
        self.add(Mark::Turn, 1);
        self.add(Mark::Valid, 1_u64.wrapping_neg());
        self.add(Mark::Dirty, u64::from(word & DIRTY != 0).wrapping_neg());
    }

    /// Makes the slot's valid version clean.
    pub fn make_clean(&self, slot: u32) {
        let word = self.slot(slot);
        if word & VALID != 0 && word & DIRTY != 0 {
            self.set_slot(slot, word & !DIRTY);
            self.add(Mark::Turn, 1);
            self.add(Mark::Dirty, 1_u64.wrapping_neg());
        }
    }

    /// The slot's valid version is lost: no device has it.
    pub fn lose(&self, slot: u32) {
        let word = self.slot(slot);
        self.set_slot(slot, slot_word(Kind::Lost, page_of(word), VALID | DIRTY));
        self.add(Mark::Turn, 1);
        self.add(Mark::Dirty, u64::from(word & DIRTY == 0));
        self.add(Mark::Losses, 1);
    }

    /// The origin no longer has the slot's valid version.
    pub fn make_dirty(&self, slot: u32) {
        let word = self.slot(slot);
        if word & VALID != 0 && word & DIRTY == 0 {
            self.set_slot(slot, word | DIRTY);
            self.add(Mark::Turn, 1);
            self.add(Mark::Dirty, 1);
            self.set(Mark::Drained, 0);
        }
    }

    /// Drops the valid versions of these pages.
    pub fn drop_pages(&self, pages: Range<u64>) {
        for page in pages {
            if let Some(slot) = self.find(page) {
                self.drop_valid(slot);
            }
        }
    }

    /// Rebuilds the chains from the slots at `positions`, in this order: of two versions the later is valid, and a tombstone
    /// ends earlier versions.
    pub fn rebuild(&self, positions: Range<u64>) {
        let ended = self.ended(positions.clone());
        (0..self.blocks).for_each(|chain| self.set_chain(chain, 0));
        self.set(Mark::Valid, 0);
        self.set(Mark::Dirty, 0);
        let mut start = positions.start;
        while start < positions.end {
            let together = start..positions.end.min(start + TOGETHER as u64);
            start = together.end;
            self.touch(together.clone());
            together.for_each(|position| self.replay(position, &ended));
        }
    }

    /// The pages of tombstones at these positions.
    pub fn ended(&self, positions: Range<u64>) -> Ended {
        let mut ended = Ended::default();
        for position in positions.rev() {
            let slot = self.slot_of(position);
            if kind_of(self.slot(slot)) == Kind::Tombstone {
                let first = page_of(self.slot(slot));
                ended.add_older(first..first + u64::from(self.crc(slot)), position);
            }
        }
        ended
    }

    fn slot_of(&self, position: u64) -> u32 {
        (position % u64::from(self.blocks)) as u32
    }

    fn replay(&self, position: u64, ended: &Ended) {
        let slot = self.slot_of(position);
        let word = self.slot(slot);
        if !matches!(kind_of(word), Kind::Page | Kind::Lost) || word & VALID == 0 {
            return;
        }
        match ended.at(page_of(word)).is_some_and(|tombstone| tombstone > position) {
            true => self.set_slot(slot, word & !(VALID | REFERENCED)),
            false => self.insert(slot),
        }
    }

    /// Loads the chains that the replay of these positions needs, and the first slots in them. Cache misses dominate a
    /// rebuild; here they overlap.
    fn touch(&self, positions: Range<u64>) {
        let mut chains = [0; TOGETHER];
        for (chain, position) in chains.iter_mut().zip(positions) {
            *chain = self.chain(self.chain_of(page_of(self.slot(self.slot_of(position)))));
        }
        let slots = chains.iter().filter_map(|chain| chain.checked_sub(1));
        black_box(slots.fold(0, |seen, slot| seen ^ self.slot(slot)));
    }
}
