// SPDX-License-Identifier: MIT OR Apache-2.0
//! Admission by benefit: in a full cache a candidate displaces a unit only if it is read more often, beyond noise.
//!
//! Each origin unit has a count of its recent reads, two bytes. Counts age by halves: a hand passes over all units once
//! while as many reads arrive as [`WINDOW`] times the slots. When the hit ratio falls well below its usual value, the
//! working set has moved, and all counts shrink at once, so that the past does not protect what is no longer read.
//!
//! Invariant: under a steady load a full cache exchanges nothing, because two units of equal frequency are never exchanged.

use alloc::vec::Vec;

/// Reads per slot in which every count is halved once.
const WINDOW: u64 = 64;
/// A candidate's count exceeds its victim's by this share ...
const MARGIN: f64 = 0.25;
/// ... and by this many standard deviations of a count.
const DEVIATIONS: f64 = 2.0;
/// The hit ratio is judged over so many reads at least.
const LEAST_READS: u64 = 4096;
/// A hit ratio below this share of the usual one shows that the working set has moved.
const FELL: f64 = 0.7;
/// Counts then shrink to this share: a shift.
const FORGET: u32 = 3;
/// Weight of the newest hit ratio in the usual one.
const NEWEST: f64 = 0.1;

/// Bytes of memory per origin unit.
pub const BYTES_PER_UNIT: u64 = 2;

/// State of admission by benefit.
#[derive(Debug)]
pub struct Benefit {
    counts: Vec<u16>,
    /// The next count to age, and how many are due, in units of `1 / (WINDOW * slots)`.
    hand: usize,
    due: u64,
    /// Reads since the start, up to a window.
    seen: u64,
    /// Units whose count is not zero.
    touched: u64,
    reads: u64,
    hits: u64,
    usual: f64,
    slots: u64,
}

impl Benefit {
    /// The policy over so many origin units.
    #[must_use]
    pub fn new(units: u32) -> Self {
        let counts = alloc::vec![0; units as usize];
        Self {
            counts,
            hand: 0,
            due: 0,
            seen: 0,
            touched: 0,
            reads: 0,
            hits: 0,
            usual: 0.0,
            slots: 1,
        }
    }

    /// The cache has so many slots.
    pub fn attached(&mut self, slots: u32) {
        self.slots = u64::from(slots.max(1));
    }

    /// A client reads; `unit`: the unit that this read counts for.
    pub fn requested(&mut self, unit: Option<u32>) {
        self.passed(unit);
        self.reads += 1;
        if self.reads >= LEAST_READS.max(2 * self.slots) {
            self.judge();
        }
    }

    /// A client reads past the cache: the read counts for its unit, but not for the hit ratio.
    pub fn passed(&mut self, unit: Option<u32>) {
        let units = self.counts.len();
        let counted = unit.map(|unit| unit as usize).filter(|unit| *unit < units);
        if let Some(count) = counted.map(|unit| &mut self.counts[unit]) {
            self.touched += u64::from(*count == 0);
            *count = count.saturating_add(1);
        }
        self.seen = (self.seen + 1).min(WINDOW * self.slots);
        self.age();
    }

    /// Whether a unit was read in the recent past: within some windows, more if it was read often.
    #[must_use]
    pub fn remembers(&self, unit: u32) -> bool {
        self.counts.get(unit as usize).is_some_and(|count| *count > 0)
    }

    /// The read was a hit.
    pub fn hit(&mut self) {
        self.hits += 1;
    }

    fn age(&mut self) {
        let window = WINDOW * self.slots;
        self.due += self.counts.len() as u64;
        while self.due >= window && !self.counts.is_empty() {
            self.due -= window;
            let count = &mut self.counts[self.hand];
            self.touched -= u64::from(*count == 1);
            *count /= 2;
            self.hand = (self.hand + 1) % self.counts.len();
        }
    }

    fn judge(&mut self) {
        let ratio = self.hits as f64 / self.reads as f64;
        let fell = ratio < FELL * self.usual;
        if fell {
            self.counts.iter_mut().for_each(|count| *count >>= FORGET);
            self.touched = self.counts.iter().filter(|count| **count > 0).count() as u64;
        }
        let first = self.usual == 0.0;
        self.usual = if first || fell { ratio } else { self.usual + NEWEST * (ratio - self.usual) };
        (self.reads, self.hits) = (0, 0);
    }

    /// The count of a unit, as it would be right after its halving. A unit that is read steadily doubles its count from
    /// one halving to the next, and the hand halves each unit at another time.
    #[must_use]
    pub fn frequency(&self, unit: u32) -> f64 {
        let (units, unit) = (self.counts.len(), unit as usize);
        let Some(count) = self.counts.get(unit) else { return 0.0 };
        let since = (self.hand + units - 1 - unit) % units;
        let aged = f64::from(*count) / (1.0 + since as f64 / units as f64);
        aged * ((WINDOW * self.slots) as f64 / self.seen.max(1) as f64)
    }

    /// Whether more units are read than the cache has slots.
    #[must_use]
    pub fn is_scarce(&self) -> bool {
        self.touched > self.slots
    }

    /// Whether `candidate` is read more often than `victim`, beyond noise.
    #[must_use]
    pub fn prefers(&self, candidate: u32, victim: u32) -> bool {
        exceeds(self.frequency(candidate), self.frequency(victim))
    }
}

/// Whether a frequency exceeds another beyond noise.
pub(super) fn exceeds(own: f64, theirs: f64) -> bool {
    // The square root without `std`: own - a > b * sqrt(theirs + 1), both sides squared.
    let excess = own - theirs * (1.0 + MARGIN);
    excess > 0.0 && excess * excess > DEVIATIONS * DEVIATIONS * (theirs + 1.0)
}

/// The frequency of what is read `count` times in `reads` reads of a cache of so many slots.
pub(super) fn per_window(count: f64, reads: u64, slots: u64) -> f64 {
    count * (WINDOW * slots) as f64 / reads as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_of_equal_frequency_is_never_preferred() {
        let mut policy = Benefit::new(1000);
        policy.attached(500);
        let mut seed = 7_u64;
        for _ in 0..2_000_000 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            policy.requested(Some((seed >> 33) as u32 % 1000));
        }
        let preferred = (0..1000).filter(|n| policy.prefers(*n, (*n + 500) % 1000)).count();
        assert!(preferred <= 5, "{preferred} of 1000 by chance");
    }

    /// So many reads hit the first half of the units, in turn.
    fn read_evenly(reads: u32) -> Benefit {
        let mut policy = Benefit::new(200);
        policy.attached(100);
        for n in 0..reads {
            policy.requested(Some(n % 100));
            policy.hit();
        }
        policy
    }

    #[test]
    fn a_hot_candidate_is_preferred_to_a_cold_victim_and_not_the_reverse() {
        let mut policy = Benefit::new(100);
        policy.attached(100);
        (0..30).for_each(|_| policy.requested(Some(1)));
        (0..3).for_each(|_| policy.requested(Some(2)));
        assert!(policy.prefers(1, 2) && !policy.prefers(2, 1));
        assert!(!policy.prefers(1, 1), "nothing displaces itself");
    }

    #[test]
    fn what_bypasses_the_cache_is_remembered_and_does_not_look_like_a_moved_working_set() {
        let mut policy = read_evenly(20_000);
        let before = policy.usual;
        assert!(!policy.remembers(150));
        (0..20_000).for_each(|_| policy.passed(Some(150)));
        assert!(policy.remembers(150) && !policy.remembers(151));
        policy.judge();
        assert!((policy.usual - before).abs() < 0.01, "{} was {before}", policy.usual);
    }

    #[test]
    fn counts_age_and_a_moved_working_set_is_followed() {
        let mut policy = read_evenly(200_000);
        for n in 0..8_300_u32 {
            policy.requested(Some(100 + n % 100));
        }
        assert!(policy.prefers(150, 50), "{:?}", (policy.counts[150], policy.counts[50]));
    }
}
