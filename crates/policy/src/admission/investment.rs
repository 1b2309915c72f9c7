// SPDX-License-Identifier: MIT OR Apache-2.0
//! Population as an investment: a populated unit costs time of the origin, and its hits return it.
//!
//! The units that were populated recently are remembered with the hits that they have earned since. Their *payback* is the
//! time in which a unit returns what it cost. While it exceeds the bound, population takes a small share of the origin:
//! the load does not return to what it reads, or the cache already holds what it returns to.
//!
//! Why not the hit ratio: a cache too small for its load and a cold one have the same.
//!
//! The same units show how *scattered* the load's hits are: what share of them single pages, admitted by the first read of
//! each, would have had in less space (`Singles`). A slot of single pages would have all hits of a unit but the first of each
//! part, and the parts that no client read would be free for others. So a unit is worth its slot if its first hits exceed what
//! those free parts would earn. Each first hit therefore counts `1 / (1 - read)`, where `read` is the share of the unit that
//! was read before it, and each later hit nothing. In a unit that is read evenly this is one for each hit; in a unit of few
//! hot pages it is nearly nothing.

use alloc::vec::Vec;

use super::parts::Parts;
use super::{Mean, spread};
use crate::Nanos;

/// Units that are remembered.
const REMEMBERED: usize = 512;
/// Units without which nothing is judged, ...
const ENOUGH: u64 = 32;
/// ... and their least mean age.
const LEAST_AGE: f64 = 1e9;
/// Hits without which it is not known how scattered they are, ...
const JUDGED: u32 = 256;
/// ... and so many are recent.
const RECENT: u32 = 4096;
/// Single pages would take as much space as a unit of which so much was read: all its hits count.
const DENSE: f64 = 0.75;
/// Up to this mean count of a hit, single pages would do as well as units.
const SCATTERED: f64 = 0.5;

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
    parts: Parts,
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
    /// What a hit counts for its unit, against single pages.
    counts: Mean,
    unit_bytes: u64,
}

impl Investment {
    /// The policy.
    #[must_use]
    pub fn new(settings: &InvestmentSettings, unit_bytes: u64) -> Self {
        let entries = alloc::vec![Entry::default(); REMEMBERED];
        Self {
            settings: *settings,
            entries,
            count: 0,
            at: 0,
            hits: 0,
            counts: Mean::default(),
            unit_bytes,
        }
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
        *entry = Entry { unit: unit + 1, at: now, hits: 0, parts: Parts::default() };
        self.at += u128::from(now);
    }

    /// A read of `len` bytes at byte `at` of a unit hit.
    #[inline]
    pub fn hit(&mut self, unit: u64, (at, len): (u64, u64)) {
        let entry = &mut self.entries[place(unit)];
        if entry.unit != unit + 1 {
            return;
        }
        entry.hits += 1;
        self.hits += 1;
        let read = entry.parts.share();
        let is_new = entry.parts.read((at, len), self.unit_bytes);
        let counts = match is_new {
            _ if read >= DENSE => 1.0,
            true => 1.0 / (1.0 - read),
            false => 0.0,
        };
        self.counts.add_of(counts, RECENT);
    }

    /// How scattered hits are: from 0, where units are read evenly, to 1, where single pages would have had nearly all
    /// hits in less space, or while that is not known.
    #[must_use]
    pub fn scatter(&self) -> f64 {
        if self.counts.count < JUDGED {
            return 1.0;
        }
        ((1.0 - self.counts.value) / (1.0 - SCATTERED)).clamp(0.0, 1.0)
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
        let mut policy = Investment::new(&InvestmentSettings::default(), 1 << 20);
        (0..100).for_each(|unit| policy.populated(unit, 0));
        for _ in 0..100 / every {
            (0..100).for_each(|unit| policy.hit(unit, (0, 4096)));
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
        let mut policy = Investment::new(&InvestmentSettings::default(), 1 << 20);
        assert_eq!(policy.share(4.0, SECOND), None);
        (0..100).for_each(|unit| policy.populated(unit, 10 * SECOND));
        assert_eq!(policy.share(4.0, 10 * SECOND), None, "they had no time for a hit");
    }

    /// How scattered hits on so many pages of each of 100 units are, which a hash chooses.
    fn scatter(pages: u64) -> f64 {
        let mut policy = Investment::new(&InvestmentSettings::default(), 1 << 20);
        (0..100).for_each(|unit| policy.populated(unit, 0));
        let mut seed = 5_u64;
        for _ in 0..100_000 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let (unit, page) = ((seed >> 33) % 100, (seed >> 45) % pages * (256 / pages));
            policy.hit(unit, (page << 12, 4096));
        }
        policy.scatter()
    }

    #[test]
    fn few_hot_pages_of_each_unit_are_scattered_and_units_that_are_read_evenly_are_not() {
        assert_eq!(Investment::new(&InvestmentSettings::default(), 1 << 20).scatter(), 1.0);
        assert!(scatter(4) > 0.99 && scatter(32) > 0.9, "{} {}", scatter(4), scatter(32));
        assert!(scatter(256) < 0.1, "{}", scatter(256));
    }

    #[test]
    fn sums_stay_those_of_the_entries() {
        let mut policy = Investment::new(&InvestmentSettings::default(), 1 << 20);
        let mut seed = 3_u64;
        for now in 0..20_000 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let unit = (seed >> 40) % 2000;
            if seed & 1 == 0 { policy.populated(unit, now) } else { policy.hit(unit, (0, 4096)) }
        }
        let used = policy.entries.iter().filter(|e| e.unit != 0);
        let sums =
            used.fold((0, 0, 0), |(n, at, hits), e| (n + 1, at + u128::from(e.at), hits + e.hits));
        assert_eq!(sums, (policy.count, policy.at, policy.hits));
    }
}
