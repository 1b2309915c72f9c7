// SPDX-License-Identifier: MIT OR Apache-2.0
//! 2Q, full version (Johnson and Shasha, VLDB 1994): a FIFO for units seen once, ghosts of the units that it evicted,
//! and an LRU for units that return while their ghost exists.
//!
//! Variant: the FIFO is evicted from while it has more than 25 % of the slots; there are ghosts for 50 %.

use alloc::vec;
use alloc::vec::Vec;

use super::Replacement;
use super::ghost::Ghosts;
use super::list::{Links, Queue};

/// State of 2Q.
#[derive(Debug)]
pub struct TwoQ {
    links: Links,
    once: Queue,
    often: Queue,
    ghosts: Ghosts,
    is_often: Vec<bool>,
    units: Vec<u64>,
    once_most: u32,
    /// The slot chosen last as victim, and the unit that needs it.
    evicting: Option<(u32, u64)>,
    /// The incoming unit, if its ghost was found while its victim was removed.
    returning: Option<u64>,
}

impl TwoQ {
    /// 2Q over `slots` slots.
    #[must_use]
    pub fn new(slots: u32) -> Self {
        Self {
            links: Links::new(slots),
            once: Queue::default(),
            often: Queue::default(),
            ghosts: Ghosts::new(slots as usize / 2),
            is_often: vec![false; slots as usize],
            units: vec![0; slots as usize],
            once_most: slots / 4,
            evicting: None,
            returning: None,
        }
    }
}

impl Replacement for TwoQ {
    fn inserted(&mut self, slot: u32, unit: u64) {
        self.units[slot as usize] = unit;
        let known = self.returning.take() == Some(unit) || self.ghosts.take(unit);
        self.is_often[slot as usize] = known;
        let queue = if known { &mut self.often } else { &mut self.once };
        queue.push(&mut self.links, slot);
    }

    fn accessed(&mut self, slot: u32) {
        // A unit in the FIFO keeps its place: accesses soon after the first say little about reuse.
        if self.is_often[slot as usize] {
            self.often.renew(&mut self.links, slot);
        }
    }

    fn removed(&mut self, slot: u32) {
        let evicting = self.evicting.take();
        if self.is_often[slot as usize] {
            self.often.remove(&mut self.links, slot);
            return;
        }
        self.once.remove(&mut self.links, slot);
        if let Some((victim, incoming)) = evicting
            && victim == slot
        {
            // Before adding the new ghost, which could displace this one.
            if self.ghosts.take(incoming) {
                self.returning = Some(incoming);
            }
            self.ghosts.add(self.units[slot as usize]);
        }
    }

    fn victim(&mut self, incoming: u64, _set: u32, may_evict: &dyn Fn(u32) -> bool) -> Option<u32> {
        self.returning = None;
        let oldest = |queue: &Queue| queue.iter(&self.links).find(|slot| may_evict(*slot));
        let (first, second) = if self.once.len() > self.once_most {
            (&self.once, &self.often)
        } else {
            (&self.often, &self.once)
        };
        let victim = oldest(first).or_else(|| oldest(second));
        self.evicting = victim.map(|slot| (slot, incoming));
        victim
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_that_returns_outlives_units_seen_once() {
        let mut policy = TwoQ::new(4);
        (0..4).for_each(|slot| policy.inserted(slot, u64::from(slot)));
        assert_eq!(policy.victim(9, 0, &|_| true), Some(0), "first in, first out");
        policy.removed(0);
        policy.inserted(0, 9);
        // Unit 0 has a ghost, so its return puts it into the LRU.
        assert_eq!(policy.victim(0, 0, &|_| true), Some(1));
        policy.removed(1);
        policy.inserted(1, 0);
        for unit in 10..14 {
            let slot = policy.victim(unit, 0, &|_| true).unwrap();
            assert_ne!(slot, 1);
            policy.removed(slot);
            policy.inserted(slot, unit);
        }
    }
}
