// SPDX-License-Identifier: MIT OR Apache-2.0
//! Selective admission (SCE, sections 3.1 and 3.6): background workers populate the hottest of the most recent misses.
//!
//! Each worker has its own heat list, and a missed fragment is hashed to one of the running workers. The paper does not
//! say over which workers to hash. Hashing over the running ones keeps every fragment a candidate when only one worker
//! runs; hashing over all eight would hide seven eighths of the fragments for as long as that lasts. When a worker
//! stops running, its list is cleared: the entries are no longer recent.
//!
//! When no slot is free, a candidate needs at least `displace_heat` misses to displace a unit (design rule 6). The
//! paper has no such bound and would exchange units of nearly equal heat continuously.

use alloc::vec::Vec;

use super::{
    Class, ExtendedSettings, InvestmentSettings, Regulator, SequentialSettings, SinglesSettings,
    spread,
};
use crate::Nanos;
use crate::heat::{DEFAULT_LENGTH, HeatList};

/// Settings of selective admission.
#[derive(Clone, Debug, PartialEq)]
pub struct SelectiveSettings {
    /// Worker classes, fastest first.
    pub classes: Vec<Class>,
    /// Fragments on each worker's heat list.
    pub list_length: usize,
    /// Span over which the miss ratio is measured.
    pub window_ns: Nanos,
    /// Misses that a fragment needs before it may displace a unit.
    pub displace_heat: u32,
    /// Misses read a block around the request.
    pub extended: Option<ExtendedSettings>,
    /// In a full cache a fragment displaces only a unit that is read less often.
    pub by_benefit: bool,
    /// Population takes less of the origin while it does not pay off.
    pub investment: Option<InvestmentSettings>,
    /// Some slots hold single pages of many units.
    pub singles: Option<SinglesSettings>,
    /// Sequential streams bypass the cache unless they return.
    pub sequential: Option<SequentialSettings>,
}

impl Default for SelectiveSettings {
    fn default() -> Self {
        Self {
            classes: Class::DEFAULT.to_vec(),
            list_length: DEFAULT_LENGTH,
            window_ns: 1_000_000_000,
            displace_heat: 8,
            extended: None,
            by_benefit: false,
            investment: None,
            singles: None,
            sequential: None,
        }
    }
}

/// State of selective admission.
#[derive(Debug)]
pub struct Selective {
    regulator: Regulator,
    lists: Vec<HeatList>,
    running: u32,
    displace_heat: u32,
}

impl Selective {
    /// The policy for one of `shards` shards.
    #[must_use]
    pub fn new(settings: &SelectiveSettings, shards: u32) -> Self {
        let classes = settings.classes.iter().map(|c| c.share_of(shards)).collect();
        let regulator = Regulator::new(classes, settings.window_ns);
        let running = regulator.workers();
        let lists = (0..running).map(|_| HeatList::new(settings.list_length)).collect();
        Self { regulator, lists, running, displace_heat: settings.displace_heat }
    }

    fn class(&mut self, free_ratio: f64, now: Nanos) -> Option<Class> {
        let class = self.regulator.class(free_ratio, now);
        let running = class.map_or(0, |c| c.workers);
        if running < self.running {
            self.lists[running as usize..].iter_mut().for_each(HeatList::clear);
        }
        self.running = running;
        class
    }

    /// How many background workers the policy uses.
    #[must_use]
    pub fn workers(&self) -> u32 {
        self.lists.len() as u32
    }

    /// A read was served, from flash (`hit`) or not.
    pub fn served(&mut self, hit: bool, now: Nanos) {
        self.regulator.served(hit, now);
    }

    /// A read of `unit` missed while this share of the cache was free; returns the worker that has a new candidate.
    pub fn missed(&mut self, unit: u64, free_ratio: f64, now: Nanos) -> Option<u32> {
        self.class(free_ratio, now);
        if self.running == 0 {
            return None;
        }
        let worker = spread(unit, u64::from(self.running)) as u32;
        self.lists[worker as usize].missed(unit);
        Some(worker)
    }

    /// How long `worker` sleeps before it takes its next candidate; `None` while it is not to run.
    pub fn turn(&mut self, worker: u32, free_ratio: f64, now: Nanos) -> Option<Nanos> {
        let class = self.class(free_ratio, now)?;
        (worker < class.workers).then_some(class.period_ns)
    }

    /// The unit that `worker` populates next. Without `room` only a unit hot enough to displace another is returned.
    pub fn next(&mut self, worker: u32, room: bool) -> Option<u64> {
        let least = if room { 1 } else { self.displace_heat };
        let (unit, _) = self.lists.get_mut(worker as usize)?.take_hottest(least)?;
        Some(unit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn with_one_worker_running_every_missed_fragment_is_its_candidate() {
        let mut policy = Selective::new(&SelectiveSettings::default(), 1);
        (0..1000).for_each(|_| policy.served(true, 0));
        for unit in 0..50 {
            assert_eq!(policy.missed(unit, 0.05, 0), Some(0));
        }
        assert_eq!(policy.turn(0, 0.05, 0), Some(500_000_000));
        assert_eq!(policy.turn(1, 0.05, 0), None);
        let taken = core::iter::from_fn(|| policy.next(0, true)).count();
        assert_eq!(taken, 50);
    }

    #[test]
    fn cold_misses_spread_over_eight_workers() {
        let mut policy = Selective::new(&SelectiveSettings::default(), 1);
        let mut seen = [0; 8];
        for unit in 0..800 {
            seen[policy.missed(unit, 1.0, 0).unwrap() as usize] += 1;
        }
        assert!(seen.iter().all(|n| (50..=150).contains(n)), "{seen:?}");
    }
}
