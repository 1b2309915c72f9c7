// SPDX-License-Identifier: MIT OR Apache-2.0
//! Periodic update (PRWC, sections 2.5 and 2.6): at intervals, hot units are admitted in exchange for cold ones.
//!
//! Every origin unit has a reference factor (RF). A request adds 20; consecutive requests to the same unit count once.
//! A unit with an RF above 50 is hot. Whenever more units are hot than there are slots, all RF decay by a fifth, until no
//! more are hot than that.
//!
//! An update begins at intervals, or at times of day; if that is asked for, it makes progress only while the volume is idle.
//! Two hands advance.
//! The origin hand starts at unit 0, passes every unit once and stops at hot units that are not cached. The flash hand
//! continues at the slot where the last update ended and stops at slots whose unit is cold. The two units are
//! exchanged. Until the flash was full once, every unit that was requested counts as hot and takes a free slot.
//!
//! Where the paper is ambiguous: a request that spans units counts for each of them, decay is repeated and rounds down,
//! and RF saturates at 16 bits. With several shards, "consecutive" means consecutive within one shard.
//!
//! Invariants: an update exchanges no unit and no slot twice (each hand passes its range at most once); one step of a
//! hand examines a bounded number of units; no more units are hot than there are slots. A decay passes all RF, two bytes each,
//! and happens at most once for each slot that became hot since the last one.

use alloc::vec;
use alloc::vec::Vec;

use crate::Nanos;

/// RF that one request adds.
const HIT: u16 = 20;
/// Units or slots that a hand passes in one step.
const STEP: u32 = 1 << 16;

/// Nanoseconds of a day.
pub const DAY: Nanos = 86_400_000_000_000;

/// When updates begin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Schedule {
    /// So many nanoseconds after the end of the last update.
    Every(Nanos),
    /// At these times of day, in nanoseconds after midnight, below [`DAY`]; at least one.
    At(Vec<Nanos>),
}

impl Schedule {
    /// The time to wait for the next update, at this time of day.
    #[must_use]
    pub fn wait(&self, time_of_day: Nanos) -> Nanos {
        let until = |at: &Nanos| (at + DAY - time_of_day % DAY - 1) % DAY + 1;
        match self {
            Self::Every(period) => *period,
            Self::At(times) => times.iter().map(until).min().unwrap_or(DAY),
        }
    }
}

/// Settings of periodic update.
#[derive(Clone, Debug, PartialEq)]
pub struct PeriodicSettings {
    /// When updates begin.
    pub schedule: Schedule,
    /// Units are exchanged only after so many nanoseconds without a request of a client to this shard; 0: at any time.
    pub idle: Nanos,
    /// A unit whose RF exceeds this is hot.
    pub hot: u16,
}

impl Default for PeriodicSettings {
    /// One hour, one of the two periods that the paper evaluates.
    fn default() -> Self {
        Self { schedule: Schedule::Every(3_600_000_000_000), idle: 0, hot: 50 }
    }
}

/// The mapping between slots and units, as far as the hands need it.
pub trait Slots {
    /// Number of slots.
    fn count(&self) -> u32;
    /// The unit in a slot, unless it stays there whatever its factor.
    fn unit_in(&self, slot: u32) -> Option<u32>;
    /// Whether the origin hand passes `unit`: it is cached, or may not be.
    fn is_passed(&self, unit: u32) -> bool;
}

/// A unit to admit, and the slot that it takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Swap {
    /// The unit to admit.
    pub incoming: u32,
    /// The slot whose unit is evicted; `None` if a slot is free.
    pub outgoing: Option<u32>,
}

/// One step of an update.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The caller exchanges these units, then calls `step` again.
    Swap(Swap),
    /// Nothing found in this step; the caller calls `step` again.
    More,
    /// The update is complete.
    Done,
}

/// State of periodic update.
pub struct Periodic {
    settings: PeriodicSettings,
    factors: Vec<u16>,
    /// Units that are hot, and slots of the cache; `None` before the first cache.
    hot: usize,
    slots: Option<u32>,
    last: Option<u64>,
    /// Whether the flash was full once.
    filled: bool,
    origin_hand: u32,
    flash_hand: u32,
    /// Slots that the flash hand has passed in this update.
    passed: u32,
    /// A hot unit for which the flash hand searches a slot.
    waiting: Option<u32>,
}

impl Periodic {
    /// The policy for an origin of `units` units.
    #[must_use]
    pub fn new(settings: &PeriodicSettings, units: u64) -> Self {
        Self {
            settings: settings.clone(),
            factors: vec![0; usize::try_from(units).unwrap_or(usize::MAX)],
            hot: 0,
            slots: None,
            last: None,
            filled: false,
            origin_hand: 0,
            flash_hand: 0,
            passed: 0,
            waiting: None,
        }
    }

    /// The settings.
    #[must_use]
    pub fn settings(&self) -> &PeriodicSettings {
        &self.settings
    }

    /// A cache with so many slots is used from now on.
    pub fn attached(&mut self, slots: u32) {
        self.slots = Some(slots);
        self.decay();
    }

    /// Reduces all factors until no more units are hot than there are slots.
    fn decay(&mut self) {
        let Some(slots) = self.slots else { return };
        while self.hot > slots as usize {
            let most = self.settings.hot;
            let reduce = |rf: &mut u16| {
                *rf = (u32::from(*rf) * 4 / 5) as u16;
                usize::from(*rf > most)
            };
            self.hot = self.factors.iter_mut().map(reduce).sum();
        }
    }

    /// The reference factor of every unit.
    #[must_use]
    pub fn factors(&self) -> &[u16] {
        &self.factors
    }

    /// Restores the factors that [`factors`](Self::factors) returned in an earlier run.
    pub fn restore(&mut self, factors: impl Iterator<Item = u16>) {
        self.factors.iter_mut().zip(factors).for_each(|(own, old)| *own = old);
        self.hot = self.factors.iter().filter(|rf| **rf > self.settings.hot).count();
        self.decay();
    }

    /// Begins an update.
    pub fn begin(&mut self) {
        (self.origin_hand, self.passed, self.waiting) = (0, 0, None);
    }

    /// Advances the update by one step; `free` is whether a slot is free.
    pub fn step(&mut self, slots: &dyn Slots, free: bool) -> Step {
        self.filled |= !free;
        let units = self.factors.len() as u32;
        let end = units.min(self.origin_hand.saturating_add(STEP));
        while self.waiting.is_none() && self.origin_hand < end {
            let unit = self.origin_hand;
            self.origin_hand += 1;
            let rf = self.factors[unit as usize];
            let hot = if self.filled { rf > self.settings.hot } else { rf > 0 };
            self.waiting = Some(unit).filter(|u| hot && !slots.is_passed(*u));
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

    /// Records a client's request to `unit`.
    pub fn requested(&mut self, unit: u64) {
        if self.last.replace(unit) == Some(unit) {
            return;
        }
        if let Some(rf) = self.factors.get_mut(unit as usize) {
            let was_hot = *rf > self.settings.hot;
            *rf = rf.saturating_add(HIT);
            self.hot += usize::from(!was_hot && *rf > self.settings.hot);
            self.decay();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A mapping for tests.
    struct Table(Vec<Option<u32>>);

    impl Slots for Table {
        fn count(&self) -> u32 {
            self.0.len() as u32
        }
        fn unit_in(&self, slot: u32) -> Option<u32> {
            self.0[slot as usize]
        }
        fn is_passed(&self, unit: u32) -> bool {
            self.0.contains(&Some(unit))
        }
    }

    fn policy(units: u64) -> Periodic {
        Periodic::new(&PeriodicSettings::default(), units)
    }

    /// Runs one update and returns the exchanges: admitted unit, evicted unit.
    fn update(policy: &mut Periodic, table: &mut Table) -> Vec<(u32, Option<u32>)> {
        policy.attached(table.count());
        policy.begin();
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

    /// Requests `unit` so often, each time followed by a request to another unit.
    fn ask(policy: &mut Periodic, unit: u64, times: usize) {
        for _ in 0..times {
            policy.requested(unit);
            policy.requested(u64::MAX);
        }
    }

    #[test]
    fn consecutive_requests_count_once_and_three_make_a_unit_hot() {
        let mut policy = policy(4);
        (0..9).for_each(|_| policy.requested(2));
        assert_eq!(policy.factors()[2], 20);
        ask(&mut policy, 2, 2);
        assert!(policy.is_cold(2), "40");
        ask(&mut policy, 2, 1);
        assert!(!policy.is_cold(2), "60");
        ask(&mut policy, 2, 9999);
        assert_eq!(policy.factors()[2], u16::MAX);
    }

    #[test]
    fn until_the_flash_is_full_one_request_admits_in_unit_order() {
        let (mut policy, mut table) = (policy(8), Table(vec![None; 3]));
        [6, 1, 4, 2].into_iter().for_each(|unit| ask(&mut policy, unit, 1));
        assert_eq!(update(&mut policy, &mut table), [(1, None), (2, None), (4, None)]);
        // The flash is full: one request no longer makes a unit hot.
        ask(&mut policy, 7, 1);
        assert_eq!(update(&mut policy, &mut table), []);
        ask(&mut policy, 7, 2);
        assert_eq!(update(&mut policy, &mut table), [(7, Some(1))]);
    }

    #[test]
    fn the_flash_hand_continues_where_it_stopped_and_keeps_hot_units() {
        let (mut policy, mut table) = (policy(16), Table((0..4).map(Some).collect()));
        ask(&mut policy, 1, 3);
        ask(&mut policy, 8, 3);
        assert_eq!(update(&mut policy, &mut table), [(8, Some(0))]);
        ask(&mut policy, 9, 3);
        assert_eq!(update(&mut policy, &mut table), [(9, Some(2))], "1 is hot");
        ask(&mut policy, 10, 3);
        assert_eq!(update(&mut policy, &mut table), [(10, Some(3))]);
        // Five units are hot and four fit: all decay to 48 at once, so none is hot.
        ask(&mut policy, 11, 3);
        assert_eq!([1, 8, 11].map(|unit| policy.factors()[unit]), [48; 3]);
        assert_eq!(update(&mut policy, &mut table), []);
    }

    #[test]
    fn factors_decay_whenever_more_units_are_hot_than_fit() {
        let mut policy = policy(8);
        (0..3).for_each(|unit| ask(&mut policy, unit, 5));
        assert_eq!(policy.factors()[..3], [100; 3], "no cache yet");
        policy.attached(2);
        // 100, 80, 64, 51 and 40.
        assert_eq!(policy.factors()[..3], [40; 3]);
        ask(&mut policy, 0, 1);
        ask(&mut policy, 1, 1);
        assert_eq!(policy.factors()[..3], [60, 60, 40]);
        ask(&mut policy, 2, 1);
        assert_eq!(policy.factors()[..3], [48; 3]);
    }

    #[test]
    fn an_update_begins_at_the_next_of_its_times_of_day() {
        let hour = DAY / 24;
        let times = Schedule::At(vec![3 * hour, 12 * hour]);
        assert_eq!(times.wait(0), 3 * hour);
        assert_eq!(times.wait(3 * hour), 9 * hour, "not twice");
        assert_eq!(times.wait(DAY + 13 * hour), 14 * hour);
        assert_eq!(Schedule::At(vec![3 * hour]).wait(3 * hour), DAY);
        assert_eq!(Schedule::Every(hour).wait(5), hour);
    }

    #[test]
    fn an_update_exchanges_no_unit_twice() {
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
