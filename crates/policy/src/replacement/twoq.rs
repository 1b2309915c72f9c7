// SPDX-License-Identifier: MIT OR Apache-2.0
//! 2Q, full version (Johnson and Shasha, VLDB 1994): a FIFO for what is seen once, ghosts of what
//! left it, and an LRU for what comes back after that. Variant: the FIFO gives way above 25 % of
//! the slots, ghosts for 50 %.

use alloc::vec;
use alloc::vec::Vec;

use super::Replacement;
use super::ghost::Ghosts;
use super::list::{Links, Queue};

/// The policy, see the module.
#[derive(Debug)]
pub struct TwoQ {
    links: Links,
    once: Queue,
    often: Queue,
    ghosts: Ghosts,
    is_often: Vec<bool>,
    units: Vec<u64>,
    once_most: u32,
    /// The slot that is about to leave, and for which unit.
    leaving: Option<(u32, u64)>,
    /// A unit whose ghost was found while room was made for it.
    returning: Option<u64>,
}

impl TwoQ {
    /// The policy over `slots` slots.
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
            leaving: None,
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
        // Accesses soon after the first say little: who is in the FIFO stays where it is.
        if self.is_often[slot as usize] {
            self.often.renew(&mut self.links, slot);
        }
    }

    fn removed(&mut self, slot: u32) {
        let leaving = self.leaving.take();
        if self.is_often[slot as usize] {
            self.often.remove(&mut self.links, slot);
            return;
        }
        self.once.remove(&mut self.links, slot);
        if let Some((victim, incoming)) = leaving
            && victim == slot
        {
            // Before the new ghost pushes it out.
            if self.ghosts.take(incoming) {
                self.returning = Some(incoming);
            }
            self.ghosts.add(self.units[slot as usize]);
        }
    }

    fn victim(&mut self, incoming: u64, _set: u32, may_leave: &dyn Fn(u32) -> bool) -> Option<u32> {
        self.returning = None;
        let oldest = |queue: &Queue| queue.iter(&self.links).find(|slot| may_leave(*slot));
        let (first, second) = if self.once.len() > self.once_most {
            (&self.once, &self.often)
        } else {
            (&self.often, &self.once)
        };
        let victim = oldest(first).or_else(|| oldest(second));
        self.leaving = victim.map(|slot| (slot, incoming));
        victim
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_back_after_it_left_outlives_what_is_seen_once() {
        let mut policy = TwoQ::new(4);
        (0..4).for_each(|slot| policy.inserted(slot, u64::from(slot)));
        assert_eq!(policy.victim(9, 0, &|_| true), Some(0), "first in, first out");
        policy.removed(0);
        policy.inserted(0, 9);
        // Unit 0 left a ghost, and its return is not seen once.
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
