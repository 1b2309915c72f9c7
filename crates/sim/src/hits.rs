// SPDX-License-Identifier: MIT OR Apache-2.0
//! Hit/miss replay: a replacement policy alone, without devices, time or writes.
//!
//! Every access to a page that is not resident is a miss and enters (admission on miss). The
//! engine's own policies run, so what is found here holds for a served volume's third choice.
//!
//! Invariants: at most `capacity` pages are resident; equal accesses give equal counts.

use std::collections::HashMap;

use larder_core::policy::replacement::Replacement;
use larder_core::preset::ReplacementChoice;

use larder_trace::PAGE_BYTES;

/// What a replay counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hits {
    /// Pages asked for.
    pub accesses: u64,
    /// Of which were not resident.
    pub misses: u64,
}

impl Hits {
    /// Misses per access.
    #[must_use]
    pub fn miss_ratio(&self) -> f64 {
        self.misses as f64 / self.accesses.max(1) as f64
    }
}

/// A cache of page numbers under a policy.
pub struct HitCache {
    policy: Box<dyn Replacement>,
    slot_of: HashMap<u64, u32>,
    owner: Vec<u64>,
    capacity: u32,
    hits: Hits,
}

impl HitCache {
    /// An empty cache of `capacity` pages.
    #[must_use]
    pub fn new(choice: ReplacementChoice, capacity: u32) -> Self {
        Self {
            policy: choice.build(capacity, capacity, PAGE_BYTES),
            slot_of: HashMap::with_capacity(capacity as usize),
            owner: Vec::with_capacity(capacity as usize),
            capacity,
            hits: Hits::default(),
        }
    }

    /// What was counted.
    #[must_use]
    pub fn hits(&self) -> Hits {
        self.hits
    }

    /// An access; whether it hit.
    pub fn access(&mut self, page: u64) -> bool {
        self.hits.accesses += 1;
        self.policy.requested();
        if let Some(slot) = self.slot_of.get(&page) {
            self.policy.accessed(*slot);
            return true;
        }
        self.hits.misses += 1;
        if let Some(slot) = self.slot_for(page) {
            self.slot_of.insert(page, slot);
            self.policy.inserted(slot, page);
        }
        false
    }

    fn slot_for(&mut self, page: u64) -> Option<u32> {
        let used = self.owner.len() as u32;
        if used < self.capacity {
            self.owner.push(page);
            return Some(used);
        }
        // A policy that finds everybody worth keeping lets nobody in.
        let slot = self.policy.victim(page, 0, &|_| true)?;
        self.policy.removed(slot);
        let before = std::mem::replace(&mut self.owner[slot as usize], page);
        self.slot_of.remove(&before);
        Some(slot)
    }
}
