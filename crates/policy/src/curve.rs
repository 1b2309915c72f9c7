// SPDX-License-Identifier: MIT OR Apache-2.0
//! The miss-ratio curve of a running load: the hit ratio that an LRU cache of any size would have had.
//!
//! A page of an LRU cache hits if fewer different pages than the cache has were referenced since its last reference (its
//! *distance*). Only pages whose hash lies below a bound are followed, a share `rate` of all; a distance between them, divided
//! by the rate, estimates the distance between all (SHARDS, Waldspurger et al., FAST 2015). References that the rate predicts and the
//! sample lacks count as distance 0, as its authors correct it: a few very hot pages are either in the sample or not.
//!
//! Invariants: at most [`MOST`] pages are followed. The least recently referenced one is forgotten, which is exact for
//! caches of up to `most_pages`, the size for which the curve was made. Counts are halved every [`HALVED`], so
//! that the curve follows the load.
//!
//! Why a rate that is fixed, and not one that falls as pages come (the authors' second algorithm): the sizes that are asked for
//! are known, so the stack needs no pages beyond the largest of them, and a scan does not reduce the sample.

use alloc::vec::Vec;

use hashbrown::HashMap;

use crate::Nanos;

/// Pages that are followed at most.
pub const MOST: usize = 12_288;
/// Places in the order of references: each reference takes the next, and the used ones are moved together when none is left.
const PLACES: usize = 2 * MOST;
/// How often counts are halved.
pub const HALVED: Nanos = 3_600_000_000_000;
/// A place without a page.
const NONE: u64 = u64::MAX;

/// Which pages are followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    below: u64,
}

impl Sample {
    /// No page.
    pub const NOTHING: Self = Self { below: 0 };

    /// The share of the pages of which `most_pages` different ones give [`MOST`].
    #[must_use]
    pub fn of(most_pages: u64) -> Self {
        let below = match most_pages {
            most if most <= MOST as u64 => u64::MAX,
            most => u64::MAX / most * MOST as u64,
        };
        Self { below }
    }

    /// From [`bound`](Self::bound).
    #[must_use]
    pub fn of_bound(below: u64) -> Self {
        Self { below }
    }

    /// The hash below which pages are followed.
    #[must_use]
    pub fn bound(self) -> u64 {
        self.below
    }

    /// Whether a page is followed.
    #[inline]
    #[must_use]
    pub fn has(self, page: u64) -> bool {
        mixed(page) < self.below
    }

    fn rate(self) -> f64 {
        if self.below == u64::MAX { 1.0 } else { self.below as f64 / u64::MAX as f64 }
    }
}

/// A hash of a page's number (the finalizer of SplitMix64).
#[inline]
fn mixed(page: u64) -> u64 {
    let a = (page ^ (page >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let b = (a ^ (a >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    b ^ (b >> 31)
}

/// The curve, see the module.
#[derive(Debug)]
pub struct Curve {
    sample: Sample,
    most_pages: u64,
    /// The place of each page that is followed.
    place_of: HashMap<u64, u32>,
    /// The page at each place, in the order of references.
    pages: Vec<u64>,
    /// Counts the places with a page.
    used: Counts,
    /// No place before it has a page.
    oldest: usize,
    /// References by distance.
    distances: Vec<u64>,
    /// References of pages that are followed.
    followed: u64,
    /// References of all pages.
    references: u64,
    halved_at: Nanos,
}

impl Curve {
    /// A curve for caches of up to `most_pages`. It takes no memory until a page is referenced.
    #[must_use]
    pub fn new(most_pages: u64) -> Self {
        Self {
            sample: Sample::of(most_pages),
            most_pages,
            place_of: HashMap::new(),
            pages: Vec::new(),
            used: Counts::default(),
            oldest: 0,
            distances: Vec::new(),
            followed: 0,
            references: 0,
            halved_at: 0,
        }
    }

    /// Which pages it follows.
    #[must_use]
    pub fn sample(&self) -> Sample {
        self.sample
    }

    /// The largest cache that it knows.
    #[must_use]
    pub fn most_pages(&self) -> u64 {
        self.most_pages
    }

    /// References of all pages; halved with the other counts.
    #[must_use]
    pub fn references(&self) -> u64 {
        self.references
    }

    /// Takes references: the pages among them that are followed, in order, and how many there were of all pages.
    pub fn take(&mut self, now: Nanos, followed: &[u64], references: u64) {
        if self.halved_at == 0 {
            self.halved_at = now;
        }
        let hours = now.saturating_sub(self.halved_at) / HALVED;
        if hours > 0 {
            self.halved_at += hours * HALVED;
            let halves = hours.min(63);
            self.distances.iter_mut().for_each(|count| *count >>= halves);
            self.followed >>= halves;
            self.references >>= halves;
        }
        self.references += references;
        self.followed += followed.len() as u64;
        followed.iter().for_each(|page| self.refer(*page));
    }

    fn refer(&mut self, page: u64) {
        if self.pages.capacity() == 0 {
            self.pages.reserve_exact(PLACES);
            self.distances.resize(MOST, 0);
            self.used = Counts::of(PLACES);
        }
        if self.pages.len() == PLACES {
            self.compact();
        }
        let place = self.pages.len();
        match self.place_of.insert(page, place as u32) {
            Some(before) => {
                let since = self.place_of.len() - self.used.up_to(before as usize);
                self.distances[since] += 1;
                self.free(before as usize);
            }
            None if self.place_of.len() > MOST => self.forget_oldest(),
            None => {}
        }
        self.pages.push(page);
        self.used.add(place, 1);
    }

    fn free(&mut self, place: usize) {
        self.pages[place] = NONE;
        self.used.add(place, -1);
    }

    fn forget_oldest(&mut self) {
        while self.pages[self.oldest] == NONE {
            self.oldest += 1;
        }
        self.place_of.remove(&self.pages[self.oldest]);
        self.free(self.oldest);
    }

    /// Moves the used places together.
    fn compact(&mut self) {
        self.pages.retain(|page| *page != NONE);
        self.oldest = 0;
        self.used = Counts::of(PLACES);
        for (place, page) in self.pages.iter().enumerate() {
            self.used.add(place, 1);
            self.place_of.insert(*page, place as u32);
        }
    }

    /// The share of the references that an LRU cache of so many pages would have had; `None` before the first reference, and
    /// above [`most_pages`](Self::most_pages).
    #[must_use]
    pub fn hit_ratio(&self, pages: u64) -> Option<f64> {
        if self.references == 0 || pages > self.most_pages {
            return None;
        }
        let rate = self.sample.rate();
        let expected = self.references as f64 * rate;
        // A cache between two distances of the sample has a part of the references between them.
        let size = (pages as f64 * rate).min(self.distances.len() as f64);
        let (whole, part) = (size as usize, size - (size as usize) as f64);
        let below: u64 = self.distances[..whole].iter().sum();
        let next = self.distances.get(whole).map_or(0.0, |count| *count as f64 * part);
        let missing = if size > 0.0 { expected - self.followed as f64 } else { 0.0 };
        Some(((below as f64 + next + missing) / expected).clamp(0.0, 1.0))
    }

    /// Its memory, in bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        let map = self.place_of.allocation_size();
        let words = self.pages.capacity() + self.distances.capacity();
        (map + words * 8 + self.used.sums.capacity() * 4) as u64
    }
}

/// Sums of the counts up to any place (a Fenwick tree).
#[derive(Debug, Default)]
struct Counts {
    sums: Vec<i32>,
}

impl Counts {
    fn of(places: usize) -> Self {
        Self { sums: alloc::vec![0; places + 1] }
    }

    fn add(&mut self, place: usize, count: i32) {
        let mut at = place + 1;
        while let Some(sum) = self.sums.get_mut(at) {
            *sum += count;
            at += at & at.wrapping_neg();
        }
    }

    /// The sum up to a place, with it.
    fn up_to(&self, place: usize) -> usize {
        let (mut at, mut sum) = (place + 1, 0);
        while at > 0 {
            sum += self.sums[at];
            at &= at - 1;
        }
        sum as usize
    }
}

#[cfg(test)]
mod tests {
    use alloc::collections::VecDeque;

    use super::*;

    /// Numbers with a seed.
    struct Random(u64);

    impl Random {
        fn next(&mut self) -> f64 {
            self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
            (mixed(self.0) >> 11) as f64 / (1_u64 << 53) as f64
        }

        /// A page of `pages`, of which few are much asked for.
        fn page(&mut self, pages: u64) -> u64 {
            let place = (self.next().powi(4) * pages as f64) as u64;
            mixed(place) % (1 << 40)
        }
    }

    /// References through a real LRU cache.
    fn hits(references: &[u64], pages: usize) -> f64 {
        let mut lru: HashMap<u64, usize> = HashMap::new();
        let (mut order, mut hits) = (VecDeque::new(), 0);
        for (turn, page) in references.iter().enumerate() {
            hits += u64::from(lru.insert(*page, turn).is_some());
            order.push_back((*page, turn));
            while lru.len() > pages {
                let Some((page, turn)) = order.pop_front() else { break };
                if lru.get(&page) == Some(&turn) {
                    lru.remove(&page);
                }
            }
        }
        hits as f64 / references.len() as f64
    }

    fn taken(curve: &mut Curve, references: &[u64]) {
        let sample = curve.sample();
        let followed: Vec<u64> =
            references.iter().copied().filter(|page| sample.has(*page)).collect();
        curve.take(1, &followed, references.len() as u64);
    }

    #[test]
    fn if_all_pages_are_followed_the_curve_is_exact() {
        let mut random = Random(7);
        // More references than there are places, so that these are moved together.
        let references: Vec<u64> = (0..3 * PLACES).map(|_| random.page(9_000)).collect();
        let mut curve = Curve::new(10_000);
        taken(&mut curve, &references);
        for pages in [0, 1, 2, 100, 3_000, 10_000] {
            let ratio = curve.hit_ratio(pages).unwrap();
            assert!((ratio - hits(&references, pages as usize)).abs() < 1e-9, "{pages}: {ratio}");
        }
        assert_eq!(curve.hit_ratio(10_001), None);
    }

    #[test]
    fn pages_beyond_the_largest_cache_are_forgotten() {
        // A loop over one page more than are followed never hits, and over as many always does.
        for (length, expected) in [(MOST as u64 + 1, 0.0), (MOST as u64, 0.75)] {
            let mut curve = Curve::new(MOST as u64);
            let references: Vec<u64> = (0..4 * length).map(|n| n % length).collect();
            taken(&mut curve, &references);
            let ratio = curve.hit_ratio(MOST as u64).unwrap();
            assert!((ratio - expected).abs() < 1e-9, "{length}: {ratio}");
            assert!(curve.place_of.len() <= MOST);
        }
    }

    #[test]
    fn a_sample_is_within_two_points() {
        for seed in 1..=5 {
            let mut random = Random(seed);
            let references: Vec<u64> = (0..2_000_000)
                // One page has a tenth of the references, whether it is in the sample or not.
                .map(|n| if n % 10 == 0 { seed } else { random.page(600_000) })
                .collect();
            let mut curve = Curve::new(1_000_000);
            taken(&mut curve, &references);
            for pages in [10_000, 30_000, 100_000, 200_000, 400_000, 1_000_000] {
                let (ratio, real) =
                    (curve.hit_ratio(pages).unwrap(), hits(&references, pages as usize));
                assert!((ratio - real).abs() < 0.02, "{seed} {pages}: {ratio} for {real}");
            }
            assert!(curve.memory_bytes() < 1 << 20, "{}", curve.memory_bytes());
        }
    }

    #[test]
    fn an_hour_halves_what_was_counted() {
        let mut curve = Curve::new(100);
        curve.take(5, &[1, 1, 1, 1], 4);
        curve.take(5 + HALVED, &[2, 3], 2);
        assert_eq!((curve.references(), curve.followed), (4, 4));
        assert_eq!(curve.hit_ratio(10), Some(0.25));
        // Long idle spans cost nothing.
        curve.take(u64::MAX / 2, &[2], 1);
        curve.take(u64::MAX / 2, &[2], 1);
        assert_eq!(curve.references(), 2);
        assert_eq!(Curve::new(100).hit_ratio(1), None);
    }
}
