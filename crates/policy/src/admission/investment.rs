// SPDX-License-Identifier: MIT OR Apache-2.0
//! Population as an investment: a populated unit costs time of the origin, and its hits return it.
//!
//! The units that were populated recently are remembered with the hits that they have earned since. Their *payback* is the
//! time in which a unit returns what it cost. While it exceeds the bound, population takes a small share of the origin:
//! the load does not return to what it reads, or the cache already holds what it returns to.
//!
//! Why not the hit ratio: a cache too small for its load and a cold one have the same.

use alloc::vec::Vec;

use super::spread;
use crate::Nanos;

/// Units that are remembered.
const REMEMBERED: usize = 512;
/// Units without which nothing is judged, ...
const ENOUGH: u64 = 32;
/// ... and their least mean age.
const LEAST_AGE: f64 = 1e9;

/// Settings of the investment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct InvestmentSettings {
    /// A longer payback is too long.
    pub payback: Nanos,
    /// The share of the origin that population then may take.
    pub share: f64,
}

impl Default for InvestmentSettings {
    fn default() -> Self {
        Self { payback: 60_000_000_000, share: 0.05 }
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    /// Unit + 1; 0 for none.
    unit: u64,
    at: Nanos,
    hits: u64,
}

/// State of the investment.
#[derive(Debug)]
pub struct Investment {
    settings: InvestmentSettings,
    entries: Vec<Entry>,
    /// Sums over the entries.
    count: u64,
    at: u128,
    hits: u64,
}

impl Investment {
    /// The policy.
    #[must_use]
    pub fn new(settings: &InvestmentSettings) -> Self {
        let entries = alloc::vec![Entry::default(); REMEMBERED];
        Self { settings: *settings, entries, count: 0, at: 0, hits: 0 }
    }

    /// A unit was populated.
    pub fn populated(&mut self, unit: u64, now: Nanos) {
        let entry = &mut self.entries[place(unit)];
        if entry.unit != 0 {
            self.at -= u128::from(entry.at);
            self.hits -= entry.hits;
        } else {
            self.count += 1;
        }
        *entry = Entry { unit: unit + 1, at: now, hits: 0 };
        self.at += u128::from(now);
    }

    /// A read of a unit hit.
    #[inline]
    pub fn hit(&mut self, unit: u64) {
        let entry = &mut self.entries[place(unit)];
        if entry.unit == unit + 1 {
            entry.hits += 1;
            self.hits += 1;
        }
    }

    /// The share of the origin that population may take, if that is less than the usual one; `cost`: the reads of a
    /// client that take as long as the population of a unit.
    #[must_use]
    pub fn share(&self, cost: f64, now: Nanos) -> Option<f64> {
        if self.count < ENOUGH {
            return None;
        }
        let age = (u128::from(now) * u128::from(self.count)).saturating_sub(self.at) as f64;
        if age < LEAST_AGE * self.count as f64 {
            return None;
        }
        // Half a hit: no hit yet is not never.
        let payback = cost * age / (self.hits as f64 + 0.5);
        (payback > self.settings.payback as f64).then_some(self.settings.share)
    }
}

/// Where a unit is remembered.
fn place(unit: u64) -> usize {
    spread(unit, REMEMBERED as u64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Nanos = 1_000_000_000;

    /// The share after 100 seconds in which each of 100 units earned a hit every `every` seconds.
    fn share(every: u64) -> Option<f64> {
        let mut policy = Investment::new(&InvestmentSettings::default());
        (0..100).for_each(|unit| policy.populated(unit, 0));
        for _ in 0..100 / every {
            (0..100).for_each(|unit| policy.hit(unit));
        }
        policy.share(4.0, 100 * SECOND)
    }

    #[test]
    fn population_slows_down_when_hits_do_not_return_its_cost() {
        assert_eq!(share(1), None, "four hits return it within seconds");
        assert_eq!(share(50), Some(0.05), "four hits take 200 seconds");
        assert_eq!(share(1000), Some(0.05), "no hit");
    }

    #[test]
    fn nothing_is_judged_before_there_is_something_to_judge() {
        let mut policy = Investment::new(&InvestmentSettings::default());
        assert_eq!(policy.share(4.0, SECOND), None);
        (0..100).for_each(|unit| policy.populated(unit, 10 * SECOND));
        assert_eq!(policy.share(4.0, 10 * SECOND), None, "they had no time for a hit");
    }

    #[test]
    fn sums_stay_those_of_the_entries() {
        let mut policy = Investment::new(&InvestmentSettings::default());
        let mut seed = 3_u64;
        for now in 0..20_000 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let unit = (seed >> 40) % 2000;
            if seed & 1 == 0 { policy.populated(unit, now) } else { policy.hit(unit) }
        }
        let used = policy.entries.iter().filter(|e| e.unit != 0);
        let sums =
            used.fold((0, 0, 0), |(n, at, hits), e| (n + 1, at + u128::from(e.at), hits + e.hits));
        assert_eq!(sums, (policy.count, policy.at, policy.hits));
    }
}
