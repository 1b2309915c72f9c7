// SPDX-License-Identifier: MIT OR Apache-2.0
//! Generalised CLOCK (SCE, section 3.5): each unit has a counter, raised by an access up to a ceiling and lowered by
//! each pass of the hand. The victim is a unit whose counter is zero.
//!
//! A unit starts with a count of one; the paper leaves this open. The hand moves no faster than requests arrive: one
//! slot for every `ceiling` requests, up to a credit for one search. During a revolution the clients thus make
//! `ceiling` requests per slot. A unit that gets its share of them reaches the ceiling, and one that gets less than one
//! request a revolution falls to zero. When all slots that a search may pass are in use, nothing is displaced (design
//! rule 6). The decrements stay, so a later search finds units that are no longer accessed.
//!
//! Why not the paper's search, which continues until a counter is zero: any candidate would displace a unit, however
//! hot, and each search would lower the counters of all units that it passes.

use alloc::vec;
use alloc::vec::Vec;

use super::Replacement;

/// The paper's ceiling.
pub const DEFAULT_CEILING: u8 = 4;

/// A search passes at most this share of the slots ...
const SEARCH_SHARE: u32 = 8;
/// ... but at least this many, and never more than one revolution.
const SEARCH_LEAST: u32 = 64;

/// State of generalised CLOCK.
#[derive(Debug)]
pub struct GClock {
    counts: Vec<u8>,
    hand: u32,
    ceiling: u8,
    /// How far the hand may move, in slots times the ceiling.
    credit: u64,
    most_credit: u64,
}

impl GClock {
    /// A clock over `slots` slots with the given ceiling (at least 1).
    #[must_use]
    pub fn new(slots: u32, ceiling: u8) -> Self {
        let ceiling = ceiling.max(1);
        let search = (slots / SEARCH_SHARE).max(SEARCH_LEAST).min(slots);
        let most_credit = u64::from(search) * u64::from(ceiling);
        let counts = vec![0; slots as usize];
        Self { counts, hand: 0, ceiling, credit: most_credit, most_credit }
    }
}

impl Replacement for GClock {
    fn inserted(&mut self, slot: u32, _unit: u64) {
        self.counts[slot as usize] = 1;
    }

    fn accessed(&mut self, slot: u32) {
        let count = &mut self.counts[slot as usize];
        if *count < self.ceiling {
            *count += 1;
        }
    }

    fn removed(&mut self, slot: u32) {
        self.counts[slot as usize] = 0;
    }

    fn requested(&mut self) {
        self.credit = (self.credit + 1).min(self.most_credit);
    }

    fn may_search(&self) -> bool {
        self.credit >= u64::from(self.ceiling)
    }

    fn victim(
        &mut self,
        _incoming: u64,
        _set: u32,
        may_evict: &dyn Fn(u32) -> bool,
    ) -> Option<u32> {
        let slots = self.counts.len() as u32;
        while self.may_search() {
            self.credit -= u64::from(self.ceiling);
            let slot = self.hand;
            self.hand = if slot + 1 >= slots { 0 } else { slot + 1 };
            if !may_evict(slot) {
                continue;
            }
            let count = &mut self.counts[slot as usize];
            if *count == 0 {
                return Some(slot);
            }
            *count -= 1;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn full(slots: u32) -> GClock {
        let mut clock = GClock::new(slots, DEFAULT_CEILING);
        (0..slots).for_each(|s| clock.inserted(s, u64::from(s)));
        clock
    }

    /// Requests that do not hit.
    fn misses(clock: &mut GClock, count: u32) {
        (0..count).for_each(|_| clock.requested());
    }

    #[test]
    fn the_least_used_is_evicted_and_the_ceiling_bounds_how_long_others_stay() {
        let mut clock = full(3);
        (0..100).for_each(|_| clock.accessed(1));
        clock.accessed(2);
        let mut search = || {
            (0..9).find_map(|_| {
                misses(&mut clock, 100);
                clock.victim(0, 0, &|_| true)
            })
        };
        assert_eq!(search(), Some(0), "its count is the lowest");
    }

    #[test]
    fn pinned_slots_stay_and_the_search_is_bounded() {
        let mut clock = full(1000);
        assert_eq!(clock.victim(0, 0, &|_| false), None);
        misses(&mut clock, 10_000);
        // All counters are one: a search passes an eighth of the slots and finds no victim.
        assert_eq!(clock.victim(0, 0, &|_| true), None);
        assert!(!clock.may_search());
        let mut found = 0;
        for _ in 0..16 {
            misses(&mut clock, 10_000);
            found += u32::from(clock.victim(0, 0, &|_| true).is_some());
        }
        assert!(found > 0);
    }

    /// A unit that receives its share of the requests is at the ceiling whenever the hand arrives.
    #[test]
    fn a_unit_with_its_share_of_the_requests_is_never_displaced() {
        let mut clock = full(64);
        for _ in 0..1000 {
            for slot in 0..64 {
                clock.accessed(slot);
                misses(&mut clock, 2);
            }
            assert_eq!(clock.victim(0, 0, &|_| true), None);
        }
    }

    #[test]
    fn a_unit_with_less_than_its_share_is_evicted() {
        let mut clock = full(64);
        for round in 0..1000 {
            for slot in 0..64 {
                misses(&mut clock, 1);
                if slot != 7 || round % 10 == 0 {
                    clock.accessed(slot);
                }
            }
            if let Some(slot) = clock.victim(0, 0, &|_| true) {
                return assert_eq!(slot, 7);
            }
        }
        panic!("the coldest stayed");
    }
}
