// SPDX-License-Identifier: MIT OR Apache-2.0
//! A cache of blocks: which slot has which block, which block is evicted, what is dirty.
//!
//! Invariants: a block is in at most one slot; a slot that is being written is not
//! evicted (it may be invalidated); memory is bounded by the slots, whatever the load.

use std::hash::BuildHasher as _;

use hashbrown::{DefaultHashBuilder, HashTable};
use larder_core::config::ReplacementChoice;
use larder_model::SplitMix64;
use larder_policy::replacement::Replacement;

use crate::load::shuffle;

/// In the place of a block: the slot is free.
const NONE: u32 = u32::MAX;

const DIRTY: u8 = 1;
const QUEUED: u8 = 2;
const WRITING: u8 = 4;

/// The cache, see the module.
pub(super) struct Level {
    map: HashTable<u32>,
    hasher: DefaultHashBuilder,
    blocks: Vec<u32>,
    state: Vec<u8>,
    free: Vec<u32>,
    policy: Box<dyn Replacement>,
    pub(super) dirty: u64,
}

impl Level {
    /// Empty; free slots are given out in an order that the seed decides.
    pub(super) fn new(slots: u32, replacement: ReplacementChoice, seed: u64) -> Self {
        let mut random = SplitMix64::new(seed);
        let mut free: Vec<u32> = (0..slots).collect();
        shuffle(&mut free, &mut random);
        Self {
            map: HashTable::with_capacity(slots as usize),
            hasher: DefaultHashBuilder::default(),
            blocks: vec![NONE; slots as usize],
            state: vec![0; slots as usize],
            free,
            policy: replacement.build(slots, slots.max(1), super::BLOCK_BYTES),
            dirty: 0,
        }
    }

    #[inline]
    pub(super) fn find(&self, block: u32) -> Option<u32> {
        let hash = self.hasher.hash_one(block);
        self.map.find(hash, |slot| self.blocks[*slot as usize] == block).copied()
    }

    #[inline]
    pub(super) fn touch(&mut self, slot: u32) {
        self.policy.accessed(slot);
    }

    /// A free slot for `block`, which is not here. `Err` has the victim that must be evicted first, or
    /// nothing if all slots are being written.
    pub(super) fn room(&mut self, block: u32) -> Result<u32, Option<u32>> {
        if let Some(slot) = self.free.pop() {
            return Ok(slot);
        }
        let state = &self.state;
        let may_leave = |slot: u32| state[slot as usize] & WRITING == 0;
        Err(self.policy.victim(u64::from(block), 0, &may_leave))
    }

    pub(super) fn insert(&mut self, slot: u32, block: u32) {
        let hash = self.hasher.hash_one(block);
        self.blocks[slot as usize] = block;
        self.state[slot as usize] = 0;
        let (blocks, hasher) = (&self.blocks, &self.hasher);
        self.map.insert_unique(hash, slot, |s| hasher.hash_one(blocks[*s as usize]));
        self.policy.inserted(slot, u64::from(block));
    }

    /// Takes a block out; which one, and whether it was dirty. The slot is free.
    pub(super) fn remove(&mut self, slot: u32) -> (u32, bool) {
        let block = std::mem::replace(&mut self.blocks[slot as usize], NONE);
        let hash = self.hasher.hash_one(block);
        if let Ok(entry) = self.map.find_entry(hash, |s| *s == slot) {
            entry.remove();
        }
        let state = std::mem::take(&mut self.state[slot as usize]);
        self.dirty -= u64::from(state & DIRTY != 0);
        self.policy.removed(slot);
        self.free.push(slot);
        (block, state & DIRTY != 0)
    }

    /// Marks a slot dirty; whether it must be queued for its write.
    pub(super) fn set_dirty(&mut self, slot: u32) -> bool {
        let state = &mut self.state[slot as usize];
        self.dirty += u64::from(*state & DIRTY == 0);
        let queue = *state & QUEUED == 0;
        *state |= DIRTY | QUEUED;
        queue
    }

    /// It is on its way down without having waited for its turn.
    pub(super) fn set_clean(&mut self, slot: u32) {
        let state = &mut self.state[slot as usize];
        self.dirty -= u64::from(*state & DIRTY != 0);
        *state &= !DIRTY;
    }

    /// A queued slot's turn has come: its block, if it is still to be written.
    pub(super) fn begin_write(&mut self, slot: u32) -> Option<u32> {
        let state = &mut self.state[slot as usize];
        if *state & QUEUED == 0 {
            return None;
        }
        *state &= !QUEUED;
        if *state & (DIRTY | WRITING) != DIRTY {
            return None;
        }
        *state = WRITING;
        self.dirty -= 1;
        Some(self.blocks[slot as usize])
    }

    /// Its write is done; whether it became dirty meanwhile and must be queued again.
    pub(super) fn end_write(&mut self, slot: u32, block: u32) -> bool {
        if self.blocks[slot as usize] != block {
            return false;
        }
        let state = &mut self.state[slot as usize];
        *state &= !WRITING;
        let again = *state & (DIRTY | QUEUED) == DIRTY;
        if again {
            *state |= QUEUED;
        }
        again
    }
}
