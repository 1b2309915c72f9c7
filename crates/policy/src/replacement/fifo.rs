// SPDX-License-Identifier: MIT OR Apache-2.0
//! FIFO: the oldest unit is evicted first. A set-associative cache has one queue a set.

use alloc::vec::Vec;

use super::Replacement;
use super::list::{Links, Queue};

/// State of FIFO.
#[derive(Debug)]
pub struct Fifo {
    links: Links,
    sets: Vec<Queue>,
    ways: u32,
}

impl Fifo {
    /// FIFO over `slots` slots in sets of `ways` neighbours; slots beyond the last whole set are unused.
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

    fn victim(&mut self, _incoming: u64, set: u32, may_evict: &dyn Fn(u32) -> bool) -> Option<u32> {
        self.sets.get(set as usize)?.iter(&self.links).find(|slot| may_evict(*slot))
    }
}
