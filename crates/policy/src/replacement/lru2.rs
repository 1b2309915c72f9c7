// SPDX-License-Identifier: MIT OR Apache-2.0
//! LRU-2 (O'Neil, O'Neil and Weikum, SIGMOD 1993): whose last use but one was longest ago leaves.
//!
//! A unit that was used once has no last use but one and leaves before all others, of these the one
//! whose use was longest ago. The last use of as many units as there are slots is remembered after
//! they left, so that a unit that comes back soon is one that was used twice.
//!
//! Cost: O(log n) a use. Why not a heap with stale entries: a search passes over slots that may not
//! leave and has to come back to them.

use std::collections::BTreeSet;
use std::collections::VecDeque;

use hashbrown::HashMap;

use super::Replacement;

/// Uses of a unit by the clock of the policy; 0 is never.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Uses {
    before: u64,
    last: u64,
}

/// The policy, see the module.
#[derive(Debug)]
pub struct Lru2 {
    clock: u64,
    uses: Vec<Uses>,
    units: Vec<u64>,
    /// Who leaves first: by last use but one, then by last use.
    order: BTreeSet<(u64, u64, u32)>,
    /// The last use of units that left, and the order in which they did.
    departed: HashMap<u64, u64>,
    departures: VecDeque<(u64, u64)>,
}

impl Lru2 {
    /// Over `slots` slots.
    #[must_use]
    pub fn new(slots: u32) -> Self {
        Self {
            clock: 0,
            uses: vec![Uses::default(); slots as usize],
            units: vec![0; slots as usize],
            order: BTreeSet::new(),
            departed: HashMap::new(),
            departures: VecDeque::new(),
        }
    }

    fn put(&mut self, slot: u32, uses: Uses) {
        self.uses[slot as usize] = uses;
        self.order.insert((uses.before, uses.last, slot));
    }

    fn take(&mut self, slot: u32) -> Uses {
        let uses = self.uses[slot as usize];
        self.order.remove(&(uses.before, uses.last, slot));
        uses
    }

    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }
}

impl Replacement for Lru2 {
    fn inserted(&mut self, slot: u32, unit: u64) {
        let last = self.tick();
        let before = self.departed.remove(&unit).unwrap_or(0);
        self.units[slot as usize] = unit;
        self.put(slot, Uses { before, last });
    }

    fn accessed(&mut self, slot: u32) {
        let last = self.tick();
        let before = self.take(slot).last;
        self.put(slot, Uses { before, last });
    }

    fn removed(&mut self, slot: u32) {
        let (unit, last) = (self.units[slot as usize], self.take(slot).last);
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
        may_leave: &dyn Fn(u32) -> bool,
    ) -> Option<u32> {
        self.order.iter().map(|(_, _, slot)| *slot).find(|slot| may_leave(*slot))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn coldest(policy: &mut Lru2) -> u32 {
        policy.victim(99, 0, &|_| true).unwrap()
    }

    #[test]
    fn the_last_use_but_one_decides_and_once_is_less_than_twice() {
        let mut policy = Lru2::new(3);
        (0..3).for_each(|slot| policy.inserted(slot, slot.into()));
        policy.accessed(0);
        assert_eq!(coldest(&mut policy), 1, "used once, before 2 was");
        policy.accessed(1);
        policy.accessed(2);
        // Last uses but one: 0 at 1, 1 at 2, 2 at 3.
        assert_eq!(coldest(&mut policy), 0, "though 1 was used before it last");
        policy.accessed(0);
        assert_eq!(coldest(&mut policy), 1);
        assert_eq!(policy.victim(99, 0, &|slot| slot == 2), Some(2));
    }

    #[test]
    fn who_comes_back_soon_was_used_twice_and_much_later_once() {
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
        assert!(policy.departed.len() <= 2 && policy.order.len() == 2);
    }
}
