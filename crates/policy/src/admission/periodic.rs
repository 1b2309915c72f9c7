// SPDX-License-Identifier: MIT OR Apache-2.0
//! Periodic update (PRWC 2.5 and 2.6): now and then what became hot enters in exchange for what
//! went cold.
//!
//! Every origin unit has a reference factor (RF): 20 more for each request to it, but requests in
//! a row to the same unit count once. A unit whose RF lies above 50 is hot. An update first lets
//! all RF decay by a fifth while more units are hot than there are slots. Then two hands turn: the
//! one over the origin, from its beginning and once around, stops at hot units that are not
//! cached; the one over flash goes on from where it last was and stops at slots whose unit is
//! cold. What both stop at is exchanged. Until flash was full once, every unit that was asked for
//! counts as hot, and enters free slots.
//!
//! Resolutions (paper-tables 3.5): a request that spans units counts for each; decay is repeated
//! and floors; RF saturates at 16 bits. With several shards "in a row" is meant within a shard.
//!
//! Invariants: no unit and no slot is exchanged twice in one update (the origin's hand turns once,
//! the flash's at most once); one step of a hand looks at a bounded number of units.

use alloc::vec;
use alloc::vec::Vec;

use crate::Nanos;

/// What one request adds.
const HIT: u16 = 20;
/// Units that a hand passes in one step.
const STEP: u32 = 1 << 16;

/// Settings of periodic update.
#[derive(Clone, Debug, PartialEq)]
pub struct PeriodicSettings {
    /// From the end of one update to the beginning of the next, in nanoseconds.
    pub period: Nanos,
    /// A unit with a higher RF is hot.
    pub hot: u16,
}

impl Default for PeriodicSettings {
    /// Hourly, one of the two periods that the paper names.
    fn default() -> Self {
        Self { period: 3_600_000_000_000, hot: 50 }
    }
}

/// What is cached where, as the hands need to know it.
pub trait Slots {
    /// Slots.
    fn count(&self) -> u32;
    /// The unit in a slot.
    fn unit_in(&self, slot: u32) -> Option<u32>;
    /// Whether the unit has a slot.
    fn is_cached(&self, unit: u32) -> bool;
}

/// A unit that is to enter, in exchange for what is in a slot or into a free one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Swap {
    /// The unit.
    pub incoming: u32,
    /// The slot whose unit leaves; none where a slot is free.
    pub outgoing: Option<u32>,
}

/// One step of an update.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// To be exchanged; to be asked again afterwards.
    Swap(Swap),
    /// Nothing found so far; to be asked again.
    More,
    /// The update is over.
    Done,
}

/// Periodic update, see the module.
pub struct Periodic {
    settings: PeriodicSettings,
    factors: Vec<u16>,
    last: Option<u64>,
    /// Flash was full once.
    filled: bool,
    origin_hand: u32,
    flash_hand: u32,
    /// Slots that the flash's hand passed in this update.
    passed: u32,
    /// A hot unit that waits for a slot.
    waiting: Option<u32>,
}

impl Periodic {
    /// The policy for so many units.
    #[must_use]
    pub fn new(settings: &PeriodicSettings, units: u64) -> Self {
        Self {
            settings: settings.clone(),
            factors: vec![0; usize::try_from(units).unwrap_or(usize::MAX)],
            last: None,
            filled: false,
            origin_hand: 0,
            flash_hand: 0,
            passed: 0,
            waiting: None,
        }
    }

    /// The time between two updates.
    #[must_use]
    pub fn period(&self) -> Nanos {
        self.settings.period
    }

    /// The reference factor of every unit.
    #[must_use]
    pub fn factors(&self) -> &[u16] {
        &self.factors
    }

    /// Puts back what [`factors`](Self::factors) was in an earlier run.
    pub fn restore(&mut self, factors: impl Iterator<Item = u16>) {
        self.factors.iter_mut().zip(factors).for_each(|(own, old)| *own = old);
    }

    /// Begins an update over so many slots.
    pub fn begin(&mut self, slots: u32) {
        let hot = self.settings.hot;
        while self.factors.iter().filter(|rf| **rf > hot).count() > slots as usize {
            self.factors.iter_mut().for_each(|rf| *rf = (u32::from(*rf) * 4 / 5) as u16);
        }
        (self.origin_hand, self.passed, self.waiting) = (0, 0, None);
    }

    /// Goes on with the update.
    pub fn step(&mut self, slots: &dyn Slots, free: bool) -> Step {
        self.filled |= !free;
        let units = self.factors.len() as u32;
        let end = units.min(self.origin_hand.saturating_add(STEP));
        while self.waiting.is_none() && self.origin_hand < end {
            let unit = self.origin_hand;
            self.origin_hand += 1;
            let rf = self.factors[unit as usize];
            let hot = if self.filled { rf > self.settings.hot } else { rf > 0 };
            self.waiting = Some(unit).filter(|u| hot && !slots.is_cached(*u));
        }
        let Some(incoming) = self.waiting else {
            return if self.origin_hand >= units { Step::Done } else { Step::More };
        };
        if free {
            self.waiting = None;
            return Step::Swap(Swap { incoming, outgoing: None });
        }
        let most = slots.count().min(self.passed.saturating_add(STEP));
        while self.passed < most {
            let slot = self.flash_hand % slots.count();
            (self.flash_hand, self.passed) = (slot + 1, self.passed + 1);
            if slots.unit_in(slot).is_some_and(|unit| self.is_cold(unit)) {
                self.waiting = None;
                return Step::Swap(Swap { incoming, outgoing: Some(slot) });
            }
        }
        if self.passed >= slots.count() { Step::Done } else { Step::More }
    }

    fn is_cold(&self, unit: u32) -> bool {
        self.factors.get(unit as usize).is_none_or(|rf| *rf <= self.settings.hot)
    }

    /// A client asks for `unit`.
    pub fn asked(&mut self, unit: u64) {
        if self.last.replace(unit) == Some(unit) {
            return;
        }
        if let Some(rf) = self.factors.get_mut(unit as usize) {
            *rf = rf.saturating_add(HIT);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Slots as a plain list.
    struct Table(Vec<Option<u32>>);

    impl Slots for Table {
        fn count(&self) -> u32 {
            self.0.len() as u32
        }
        fn unit_in(&self, slot: u32) -> Option<u32> {
            self.0[slot as usize]
        }
        fn is_cached(&self, unit: u32) -> bool {
            self.0.contains(&Some(unit))
        }
    }

    fn policy(units: u64) -> Periodic {
        Periodic::new(&PeriodicSettings::default(), units)
    }

    /// One update; what was exchanged.
    fn update(policy: &mut Periodic, table: &mut Table) -> Vec<(u32, Option<u32>)> {
        policy.begin(table.count());
        let mut swaps = Vec::new();
        loop {
            let free = table.0.iter().position(Option::is_none);
            match policy.step(table, free.is_some()) {
                Step::Done => return swaps,
                Step::More => {}
                Step::Swap(swap) => {
                    let slot = swap.outgoing.map_or_else(|| free.unwrap(), |s| s as usize);
                    let old = table.0[slot].replace(swap.incoming);
                    swaps.push((swap.incoming, old));
                }
            }
        }
    }

    /// Requests to unit, each after one to another (the last).
    fn ask(policy: &mut Periodic, unit: u64, times: usize) {
        for _ in 0..times {
            policy.asked(unit);
            policy.asked(u64::MAX);
        }
    }

    #[test]
    fn requests_in_a_row_count_once_and_the_third_makes_hot() {
        let mut policy = policy(4);
        (0..9).for_each(|_| policy.asked(2));
        assert_eq!(policy.factors()[2], 20);
        ask(&mut policy, 2, 2);
        assert!(policy.is_cold(2), "40");
        ask(&mut policy, 2, 1);
        assert!(!policy.is_cold(2), "60");
        ask(&mut policy, 2, 9999);
        assert_eq!(policy.factors()[2], u16::MAX);
    }

    #[test]
    fn until_flash_is_full_whatever_was_touched_enters_first_come() {
        let (mut policy, mut table) = (policy(8), Table(vec![None; 3]));
        [6, 1, 4, 2].into_iter().for_each(|unit| ask(&mut policy, unit, 1));
        assert_eq!(update(&mut policy, &mut table), [(1, None), (2, None), (4, None)]);
        // Full: one request is not enough any more.
        ask(&mut policy, 7, 1);
        assert_eq!(update(&mut policy, &mut table), []);
        ask(&mut policy, 7, 2);
        assert_eq!(update(&mut policy, &mut table), [(7, Some(1))]);
    }

    #[test]
    fn the_hand_over_flash_goes_on_where_it_was_and_spares_the_hot() {
        let (mut policy, mut table) = (policy(16), Table((0..4).map(Some).collect()));
        ask(&mut policy, 1, 3);
        ask(&mut policy, 8, 3);
        assert_eq!(update(&mut policy, &mut table), [(8, Some(0))]);
        ask(&mut policy, 9, 3);
        assert_eq!(update(&mut policy, &mut table), [(9, Some(2))], "1 is hot");
        ask(&mut policy, 10, 3);
        assert_eq!(update(&mut policy, &mut table), [(10, Some(3))]);
        // Five are hot, four fit: all decay to 48, and then nothing is.
        ask(&mut policy, 11, 3);
        assert_eq!(update(&mut policy, &mut table), []);
        assert_eq!(policy.factors()[1], 48);
    }

    #[test]
    fn nothing_is_exchanged_twice_in_an_update() {
        let (mut policy, mut table) = (policy(400_000), Table((0..4).map(Some).collect()));
        [100_000, 200_000, 300_000, 399_999].into_iter().for_each(|u| ask(&mut policy, u, 4));
        let swaps = update(&mut policy, &mut table);
        assert_eq!(swaps.len(), 4);
        assert_eq!(update(&mut policy, &mut table), []);
        let saved = policy.factors().to_vec();
        let mut other = super::tests::policy(400_000);
        other.restore(saved.into_iter());
        assert!(!other.is_cold(200_000));
    }
}
