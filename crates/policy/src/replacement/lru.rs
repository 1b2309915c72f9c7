// SPDX-License-Identifier: MIT OR Apache-2.0
//! LRU: the least recently used unit is evicted first. A set-associative cache has one queue a set.

use alloc::vec::Vec;

use super::Replacement;
use super::list::{Links, Queue};

/// State of LRU.
#[derive(Debug)]
pub struct Lru {
    links: Links,
    sets: Vec<Queue>,
    ways: u32,
}

impl Lru {
    /// LRU over `slots` slots in sets of `ways` neighbours; slots beyond the last whole set are unused.
    #[must_use]
    pub fn new(slots: u32, ways: u32) -> Self {
        let ways = ways.clamp(1, slots.max(1));
        let sets = (0..slots / ways).map(|_| Queue::default()).collect();
        Self { links: Links::new(slots), sets, ways }
    }

    /// The set of a slot. A single set is special-cased because the division would cost more than the rest of an
    /// access.
    fn set_of(&self, slot: u32) -> usize {
        if self.sets.len() == 1 { 0 } else { (slot / self.ways) as usize }
    }
}

impl Replacement for Lru {
    fn inserted(&mut self, slot: u32, _unit: u64) {
        let set = self.set_of(slot);
        self.sets[set].push(&mut self.links, slot);
    }

    fn accessed(&mut self, slot: u32) {
        let set = self.set_of(slot);
        self.sets[set].renew(&mut self.links, slot);
    }

    fn removed(&mut self, slot: u32) {
        let set = self.set_of(slot);
        self.sets[set].remove(&mut self.links, slot);
    }

    fn victim(&mut self, _incoming: u64, set: u32, may_evict: &dyn Fn(u32) -> bool) -> Option<u32> {
        self.sets.get(set as usize)?.iter(&self.links).find(|slot| may_evict(*slot))
    }
}
