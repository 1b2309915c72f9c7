// SPDX-License-Identifier: MIT OR Apache-2.0
//! Single pages: how much of flash holds single pages of many units instead of whole units.
//!
//! Where reads are scattered, few pages of a unit are read again, and a slot that holds a whole unit holds mostly pages
//! that are not. A *mixed* slot holds the pages that missed, of any units, in the order in which they missed. Mixed slots
//! are recycled in the order in which they were opened.
//!
//! Two prices decide how many slots are mixed, both in reads per [window](Benefit): the reads of the unit that would be
//! evicted, and the mean hits of a mixed slot, as far as the load's hits are scattered (`Investment::scatter`). A mixed slot
//! displaces a unit if mixed slots earn more, beyond noise; a unit displaces a mixed slot if the unit is read more. A few
//! slots are always mixed, so that their price is known.
//!
//! While it is known that more mixed slots do not pay off, only a sample of the pages is admitted: those that a hash of the page's place
//! selects. A sampled page stays as long as it would if many more slots were mixed, so the hits of a few slots predict
//! those of many.
//!
//! Why not a fixed share: an order-entry load reads neighbours, for which whole units are better; single pages of a
//! scattered load fill a cache of whole units with pages that nothing reads.

use super::benefit::{exceeds, per_window};
use super::{Mean, spread};

/// One slot in so many is mixed at least.
const TRIAL: u64 = 64;
/// At least one page in so many is admitted.
const SPARSEST: f64 = 64.0;
/// Mixed slots judged before their price is known.
const JUDGED: u32 = 4;
/// Distinct places of the sample.
const PLACES: u64 = 1 << 16;

/// Settings of single pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SinglesSettings {
    /// Bytes of memory that the directories of all mixed slots of a volume may take.
    pub memory_bytes: u64,
    /// A request of more bytes is not admitted as single pages.
    pub most_bytes: u64,
}

impl Default for SinglesSettings {
    fn default() -> Self {
        Self { memory_bytes: 64 << 20, most_bytes: 64 << 10 }
    }
}

/// State of the share of single pages.
#[derive(Debug)]
pub struct Singles {
    settings: SinglesSettings,
    slots: u64,
    /// How many slots may be mixed.
    most: u64,
    mixed: u64,
    reads: u64,
    /// Hits of a mixed slot per window: a mean over the slots, which are judged in turn.
    price: Mean,
    /// One page in so many is admitted, unless enough slots are mixed.
    sparse: f64,
    /// How scattered hits are, from 0 to 1.
    scatter: f64,
}

impl Singles {
    /// The policy of a cache without slots.
    #[must_use]
    pub fn new(settings: &SinglesSettings) -> Self {
        Self {
            settings: *settings,
            slots: 0,
            most: 0,
            mixed: 0,
            reads: 0,
            price: Mean::default(),
            sparse: 1.0,
            scatter: 1.0,
        }
    }

    /// This part of `parts` of the cache has so many slots; none is mixed. `each`: bytes of memory of a mixed slot.
    pub fn attached(&mut self, slots: u32, each: u64, parts: u32) {
        self.resized(slots, each, parts);
        (self.mixed, self.price, self.sparse) = (0, Mean::default(), 1.0);
    }

    /// The same, in use: as many are mixed as before.
    pub fn resized(&mut self, slots: u32, each: u64, parts: u32) {
        self.slots = u64::from(slots);
        let memory = self.settings.memory_bytes / u64::from(parts.max(1));
        self.most = (memory / each.max(1)).min(self.slots);
    }

    /// Hits are scattered so much, from 0 to 1 ([`Investment::scatter`](super::Investment::scatter)).
    pub fn set_scatter(&mut self, share: f64) {
        self.scatter = share;
    }

    /// A client reads.
    #[inline]
    pub fn requested(&mut self) {
        self.reads += 1;
    }

    /// Reads of clients up to now.
    #[must_use]
    pub fn reads(&self) -> u64 {
        self.reads
    }

    /// Whether a miss of so many bytes at this place of the volume, in pages, is admitted as single pages.
    #[must_use]
    pub fn admits(&self, place: u64, bytes: u64) -> bool {
        // As if the whole cache were mixed.
        let one_in = (self.slots as f64 / self.mixed.max(1) as f64).min(self.sparse);
        let selected = spread(place, PLACES) as f64 * one_in < PLACES as f64;
        self.most > 0 && bytes <= self.settings.most_bytes && selected
    }

    /// A slot became mixed.
    pub fn opened(&mut self) {
        self.mixed += 1;
    }

    /// A mixed slot was recycled or displaced.
    pub fn closed(&mut self) {
        self.mixed = self.mixed.saturating_sub(1);
    }

    /// One of the mixed slots was opened when there had been so many reads, and has had so many hits.
    pub fn judge(&mut self, opened_at: u64, hits: u32) {
        self.price.add(self.frequency(opened_at, hits));
    }

    /// Hits per window of a mixed slot that was opened when there had been so many reads.
    #[must_use]
    pub fn frequency(&self, opened_at: u64, hits: u32) -> f64 {
        let age = self.reads.saturating_sub(opened_at).max(1);
        per_window(f64::from(hits), age, self.slots)
    }

    fn price(&self) -> Option<f64> {
        (self.price.count >= JUDGED).then_some(self.price.value * self.scatter)
    }

    fn is_trial(&self) -> bool {
        self.mixed <= (self.slots / TRIAL).max(1)
    }

    /// Whether another slot may become mixed.
    #[must_use]
    pub fn may_grow(&self) -> bool {
        self.mixed < self.most
    }

    /// Whether another mixed slot may displace a unit that is read so often per window. The sample grows while that pays,
    /// and shrinks while it does not.
    pub fn displaces(&mut self, frequency: f64) -> bool {
        let pays = self.price().map(|price| exceeds(price, frequency));
        let sparse = match pays {
            // As long as the price is not known, a sample would only keep it unknown for longer.
            None => self.sparse,
            Some(true) => self.sparse / 2.0,
            Some(false) => self.sparse * 2.0,
        };
        self.sparse = sparse.clamp(1.0, SPARSEST);
        self.may_grow() && (self.is_trial() || pays == Some(true))
    }

    /// Whether a mixed slot is evicted for a unit that is read so often per window.
    #[must_use]
    pub fn yields(&self, frequency: f64) -> bool {
        !self.is_trial() && self.price().is_some_and(|price| exceeds(frequency, price))
    }

    /// Whether a mixed slot would earn more than a unit that is read so often per window.
    #[must_use]
    pub fn outbids(&self, frequency: f64) -> bool {
        self.may_grow() && self.price().is_some_and(|price| exceeds(price, frequency))
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    fn policy(slots: u32, mixed: u32) -> Singles {
        let mut policy = Singles::new(&SinglesSettings::default());
        policy.attached(slots, 1, 1);
        (0..mixed).for_each(|_| policy.opened());
        policy
    }

    fn admitted(policy: &Singles) -> Vec<u64> {
        (0..64_000).filter(|place| policy.admits(*place, 4096)).collect()
    }

    #[test]
    fn a_sample_grows_with_the_mixed_slots_and_keeps_its_pages() {
        assert_eq!(admitted(&policy(1000, 1)).len(), 64_000, "all while slots are free");
        let mut before = Vec::new();
        for (mixed, share) in [(1, 1.0 / 64.0), (100, 0.1), (500, 0.5), (1000, 1.0)] {
            let mut policy = policy(1000, mixed);
            assert!(!policy.displaces(1e9) || mixed == 1);
            assert_eq!(admitted(&policy).len(), 64_000, "all while the price is not known");
            (0..JUDGED).for_each(|_| policy.judge(0, 0));
            for _ in 0..10 {
                let _ = policy.displaces(1e9);
            }
            let now = admitted(&policy);
            assert!((now.len() as f64 / 64_000.0 / share - 1.0).abs() < 0.1, "{mixed}");
            assert!(before.iter().all(|place| now.contains(place)));
            before = now;
        }
    }

    #[test]
    fn the_higher_price_displaces_the_lower_and_equal_prices_exchange_nothing() {
        let mut policy = policy(1000, 500);
        assert!(!policy.displaces(0.0) && !policy.yields(1000.0), "no price is known");
        for _ in 0..64_000 {
            policy.requested();
        }
        // As many reads as a window has, so hits are a frequency.
        (0..100).for_each(|_| policy.judge(0, 60));
        assert!(policy.displaces(10.0) && !policy.yields(10.0));
        assert!(!policy.displaces(60.0) && !policy.yields(60.0));
        assert!(!policy.displaces(200.0) && policy.yields(200.0));
    }

    #[test]
    fn single_pages_that_units_would_hold_as_well_have_no_price() {
        let mut policy = policy(1000, 500);
        (0..JUDGED).for_each(|_| policy.judge(0, 60));
        assert!(policy.outbids(10.0) && policy.displaces(10.0) && !policy.yields(100.0));
        policy.set_scatter(0.0);
        assert!(!policy.outbids(10.0) && !policy.displaces(10.0) && policy.yields(100.0));
    }

    #[test]
    fn a_few_slots_are_always_mixed_and_never_more_than_memory_allows() {
        let mut policy = policy(1000, 15);
        (0..100).for_each(|_| policy.judge(0, 0));
        assert!(policy.displaces(1e9) && !policy.yields(1e9));
        policy.attached(1000, 16 << 20, 1);
        (0..4).for_each(|_| policy.opened());
        assert!(!policy.displaces(0.0));
        policy.attached(1000, 128 << 20, 1);
        assert!(!policy.admits(0, 4096));
    }

    #[test]
    fn large_requests_are_not_admitted() {
        let policy = policy(1000, 1000);
        assert!(policy.admits(7, 64 << 10));
        assert!(!policy.admits(7, (64 << 10) + 512));
    }
}
