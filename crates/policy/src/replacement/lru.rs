// SPDX-License-Identifier: MIT OR Apache-2.0
//! LRU: who was not used for longest leaves. In each set by itself where there are several.

use alloc::vec::Vec;

use super::Replacement;
use super::list::{Links, Queue};

/// The policy, see the module.
#[derive(Debug)]
pub struct Lru {
    links: Links,
    sets: Vec<Queue>,
    ways: u32,
}

impl Lru {
    /// Over `slots` slots in sets of `ways` neighbours; a last, smaller set stays unused.
    #[must_use]
    pub fn new(slots: u32, ways: u32) -> Self {
        let ways = ways.clamp(1, slots.max(1));
        let sets = (0..slots / ways).map(|_| Queue::default()).collect();
        Self { links: Links::new(slots), sets, ways }
    }

    /// With one set alone there is nothing to divide, which would take longer than all else.
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

    fn victim(&mut self, _incoming: u64, set: u32, may_leave: &dyn Fn(u32) -> bool) -> Option<u32> {
        self.sets.get(set as usize)?.iter(&self.links).find(|slot| may_leave(*slot))
    }
}
