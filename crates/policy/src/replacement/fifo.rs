// SPDX-License-Identifier: MIT OR Apache-2.0
//! FIFO: who entered first leaves first. In each set by itself where there are several.

use alloc::vec::Vec;

use super::Replacement;
use super::list::{Links, Queue};

/// The policy, see the module.
#[derive(Debug)]
pub struct Fifo {
    links: Links,
    sets: Vec<Queue>,
    ways: u32,
}

impl Fifo {
    /// Over `slots` slots in sets of `ways` neighbours; a last, smaller set stays unused.
    #[must_use]
    pub fn new(slots: u32, ways: u32) -> Self {
        let ways = ways.clamp(1, slots.max(1));
        let sets = (0..slots / ways).map(|_| Queue::default()).collect();
        Self { links: Links::new(slots), sets, ways }
    }
}

impl Replacement for Fifo {
    fn inserted(&mut self, slot: u32, _unit: u64) {
        self.sets[(slot / self.ways) as usize].push(&mut self.links, slot);
    }

    fn accessed(&mut self, _slot: u32) {}

    fn removed(&mut self, slot: u32) {
        self.sets[(slot / self.ways) as usize].remove(&mut self.links, slot);
    }

    fn victim(&mut self, _incoming: u64, set: u32, may_leave: &dyn Fn(u32) -> bool) -> Option<u32> {
        self.sets.get(set as usize)?.iter(&self.links).find(|slot| may_leave(*slot))
    }
}
