// SPDX-License-Identifier: MIT OR Apache-2.0
//! LRU-2 (O'Neil, O'Neil and Weikum, SIGMOD 1993): evicts the unit whose second-last use was longest ago.
//!
//! A unit that was used once has no second-last use and is evicted before all others; among such units the one used
//! longest ago goes first. The last use of evicted units is remembered, for as many units as there are slots, so that a
//! unit that returns soon counts as used twice.
//!
//! Cost: O(1) a use, O(log n) a search. A heap orders the slots by the uses that each had when it was pushed. A use
//! makes the heap entry too old, never too new. So an entry that comes up with outdated uses is pushed again with the
//! current ones, and an entry of a removed unit is dropped.

use alloc::vec;
use alloc::vec::Vec;

use alloc::collections::{BinaryHeap, VecDeque};
use core::cmp::Reverse;

use hashbrown::HashMap;

use super::Replacement;

/// The last two uses of a unit by the policy's clock; 0 is never.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Uses {
    before: u64,
    last: u64,
}

/// State of LRU-2.
#[derive(Debug)]
pub struct Lru2 {
    clock: u64,
    uses: Vec<Uses>,
    units: Vec<u64>,
    /// Slots in order of eviction: by second-last use, then by last use.
    order: BinaryHeap<Reverse<(u64, u64, u32)>>,
    /// For each slot the last use in its current heap entry; 0 if the slot has no unit.
    queued: Vec<u64>,
    /// The last use of removed units, and the order in which they were removed.
    departed: HashMap<u64, u64>,
    departures: VecDeque<(u64, u64)>,
}

impl Lru2 {
    /// LRU-2 over `slots` slots.
    #[must_use]
    pub fn new(slots: u32) -> Self {
        Self {
            clock: 0,
            uses: vec![Uses::default(); slots as usize],
            units: vec![0; slots as usize],
            order: BinaryHeap::new(),
            queued: vec![0; slots as usize],
            departed: HashMap::new(),
            departures: VecDeque::new(),
        }
    }

    fn queue(&mut self, slot: u32) {
        let Uses { before, last } = self.uses[slot as usize];
        self.queued[slot as usize] = last;
        self.order.push(Reverse((before, last, slot)));
    }

    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }
}

impl Replacement for Lru2 {
    fn inserted(&mut self, slot: u32, unit: u64) {
        let last = self.tick();
        let (at, before) = (slot as usize, self.departed.remove(&unit).unwrap_or(0));
        self.units[at] = unit;
        self.uses[at] = Uses { before, last };
        self.queue(slot);
        // Bounds the heap: entries of removed units that have not come up yet are dropped here.
        if self.order.len() > 2 * self.queued.len() + 16 {
            let queued = &self.queued;
            self.order.retain(|Reverse((_, last, slot))| queued[*slot as usize] == *last);
        }
    }

    fn accessed(&mut self, slot: u32) {
        let last = self.tick();
        let uses = &mut self.uses[slot as usize];
        *uses = Uses { before: uses.last, last };
    }

    fn removed(&mut self, slot: u32) {
        let (unit, last) = (self.units[slot as usize], self.uses[slot as usize].last);
        self.queued[slot as usize] = 0;
        self.departed.insert(unit, last);
        self.departures.push_back((unit, last));
        while self.departures.len() > self.units.len() {
            if let Some((unit, last)) = self.departures.pop_front()
                && self.departed.get(&unit) == Some(&last)
            {
                self.departed.remove(&unit);
            }
        }
    }

    fn victim(
        &mut self,
        _incoming: u64,
        _set: u32,
        may_evict: &dyn Fn(u32) -> bool,
    ) -> Option<u32> {
        let mut passed = Vec::new();
        let mut found = None;
        while found.is_none()
            && let Some(Reverse((before, last, slot))) = self.order.pop()
        {
            let at = slot as usize;
            if self.queued[at] != last {
                continue;
            }
            if self.uses[at] != (Uses { before, last }) {
                self.queue(slot);
            } else {
                passed.push(slot);
                found = may_evict(slot).then_some(slot);
            }
        }
        passed.into_iter().for_each(|slot| self.queue(slot));
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn coldest(policy: &mut Lru2) -> u32 {
        policy.victim(99, 0, &|_| true).unwrap()
    }

    #[test]
    fn the_second_last_use_decides_and_units_used_once_go_first() {
        let mut policy = Lru2::new(3);
        (0..3).for_each(|slot| policy.inserted(slot, slot.into()));
        policy.accessed(0);
        assert_eq!(coldest(&mut policy), 1, "1 and 2 were used once, 1 earlier");
        policy.accessed(1);
        policy.accessed(2);
        // Second-last uses: slot 0 at 1, slot 1 at 2, slot 2 at 3.
        assert_eq!(coldest(&mut policy), 0, "although slot 1 has the older last use");
        policy.accessed(0);
        assert_eq!(coldest(&mut policy), 1);
        assert_eq!(policy.victim(99, 0, &|slot| slot == 2), Some(2));
    }

    #[test]
    fn a_unit_that_returns_soon_counts_as_used_twice() {
        let mut policy = Lru2::new(2);
        policy.inserted(0, 7);
        policy.inserted(1, 8);
        policy.accessed(1);
        policy.removed(0);
        policy.inserted(0, 7);
        // 7 at 1, 8 at 2.
        assert_eq!(coldest(&mut policy), 0);
        policy.accessed(0);
        assert_eq!(coldest(&mut policy), 1, "8 at 2, 7 at 4");
        for unit in 10..13 {
            policy.removed(1);
            policy.inserted(1, unit);
        }
        policy.removed(1);
        policy.inserted(1, 8);
        assert_eq!(coldest(&mut policy), 1, "8 is forgotten");
        assert!(policy.departed.len() <= 2 && policy.order.len() <= 2 * 2 + 16);
    }

    /// Compares with an exhaustive search over a plain list.
    #[test]
    fn victims_equal_those_of_an_exhaustive_search() {
        const SLOTS: u32 = 16;
        let mut policy = Lru2::new(SLOTS);
        let mut plain: Vec<(u32, u64, u64, u64)> = Vec::new(); // slot, unit, before, last
        let mut departed: Vec<(u64, u64)> = Vec::new();
        let (mut clock, mut state) = (0, 1_u64);
        let mut below = |n: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % n
        };
        for _ in 0..20_000 {
            let unit = below(40);
            clock += 1;
            if let Some(there) = plain.iter_mut().find(|entry| entry.1 == unit) {
                (there.2, there.3) = (there.3, clock);
                policy.accessed(there.0);
                continue;
            }
            let mut slot = plain.len() as u32;
            if slot == SLOTS {
                let barred = below(u64::from(SLOTS)) as u32;
                let may = |slot: u32| slot != barred;
                let open = plain.iter().filter(|entry| may(entry.0));
                let first = *open.min_by_key(|entry| (entry.2, entry.3)).unwrap();
                assert_eq!(policy.victim(unit, 0, &may), Some(first.0));
                policy.removed(first.0);
                plain.retain(|entry| entry.0 != first.0);
                departed.push((first.1, first.3));
                let from = departed.len().saturating_sub(SLOTS as usize);
                departed.drain(..from);
                slot = first.0;
            }
            let before = departed.iter().rev().find(|(left, _)| *left == unit);
            let before = before.map_or(0, |(_, last)| *last);
            departed.iter_mut().filter(|(left, _)| *left == unit).for_each(|left| left.0 = 99);
            plain.push((slot, unit, before, clock));
            policy.inserted(slot, unit);
            assert!(policy.order.len() <= 2 * SLOTS as usize + 17);
        }
    }
}
