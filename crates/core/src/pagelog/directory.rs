// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which slot holds the valid version of a page: chains of slots, one a hash value.
//!
//! Invariant: a chain holds exactly the valid slots whose page hashes to it, and no page twice. All of it
//! follows from the slots' first words, so whoever finds the lock of a dead holder builds it anew.

use std::hint::black_box;
use std::ops::{Deref, Range};
use std::sync::atomic::AtomicU64;

use super::words::{DIRTY, Kind, Mark, REFERENCED, VALID, Words, kind_of, page_of};

/// Positions that a rebuild looks up together.
const TOGETHER: usize = 64;

impl<M: Deref<Target = [AtomicU64]>> Words<M> {
    fn chain_of(&self, page: u64) -> u32 {
        let hash = page.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        // The upper bits are the good ones.
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

    /// Adds a slot whose words say that it is valid, instead of an older one of the same page.
    pub fn enter(&self, slot: u32) {
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

    /// The slot's version is not valid any more.
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

    /// The origin has what the slot's valid version says.
    pub fn make_clean(&self, slot: u32) {
        let word = self.slot(slot);
        if word & VALID != 0 && word & DIRTY != 0 {
            self.set_slot(slot, word & !DIRTY);
            self.add(Mark::Turn, 1);
            self.add(Mark::Dirty, 1_u64.wrapping_neg());
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

    /// Builds the chains anew from the slots at `positions`, in this order: of two versions the later is
    /// valid, and a tombstone ends what came before it.
    pub fn rebuild(&self, positions: Range<u64>) {
        (0..self.blocks).for_each(|chain| self.set_chain(chain, 0));
        self.set(Mark::Valid, 0);
        self.set(Mark::Dirty, 0);
        let mut start = positions.start;
        while start < positions.end {
            let together = start..positions.end.min(start + TOGETHER as u64);
            start = together.end;
            self.touch(together.clone());
            together.for_each(|position| self.replay(position));
        }
    }

    fn slot_of(&self, position: u64) -> u32 {
        (position % u64::from(self.blocks)) as u32
    }

    fn replay(&self, position: u64) {
        let slot = self.slot_of(position);
        let word = self.slot(slot);
        match kind_of(word) {
            Kind::Head => {}
            Kind::Tombstone => {
                let first = page_of(word);
                self.drop_pages(first..first + u64::from(self.crc(slot)));
            }
            Kind::Page | Kind::Lost if word & VALID != 0 => self.enter(slot),
            Kind::Page | Kind::Lost => {}
        }
    }

    /// Looks at the chains that replaying these positions needs, and at the first slots in them. A rebuild is made
    /// of misses of the processor's caches, and these do not wait for each other.
    fn touch(&self, positions: Range<u64>) {
        let mut chains = [0; TOGETHER];
        for (chain, position) in chains.iter_mut().zip(positions) {
            *chain = self.chain(self.chain_of(page_of(self.slot(self.slot_of(position)))));
        }
        let slots = chains.iter().filter_map(|chain| chain.checked_sub(1));
        black_box(slots.fold(0, |seen, slot| seen ^ self.slot(slot)));
    }
}
