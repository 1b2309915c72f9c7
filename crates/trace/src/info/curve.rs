// SPDX-License-Identifier: MIT OR Apache-2.0
//! Miss ratios of LRU at every cache size, computed from reuse distances: an access hits if fewer distinct other pages
//! were accessed in between than the cache holds.
//!
//! For a sample, distances are divided by the sampling ratio. The difference between the expected and the actual number
//! of sampled accesses is added to the smallest distance (SHARDS-adj): a few frequently accessed pages cause most of
//! that difference.

/// A miss-ratio curve.
#[derive(Clone, Debug)]
pub struct Curve {
    /// Accesses with a distance up to each index, as counted.
    cumulated: Vec<u64>,
    /// Added to the smallest distance.
    adjustment: f64,
    /// Accesses that the sample should have.
    total: f64,
    ratio: f64,
    accesses: u64,
    first: u64,
}

/// Number of sizes at which two curves are compared.
const POINTS: u64 = 100;

impl Curve {
    /// From the number of accesses with each distance and the number of first accesses. `accesses` are those of the
    /// whole trace, and `ratio` is the sampled share of the pages.
    pub(super) fn new(counts: &[u64], first: u64, accesses: u64, ratio: f64) -> Self {
        let mut sum = 0;
        let cumulated: Vec<u64> = counts
            .iter()
            .map(|count| {
                sum += count;
                sum
            })
            .collect();
        let total = accesses as f64 * ratio;
        let adjustment = total - (sum + first) as f64;
        Self { cumulated, adjustment, total, ratio, accesses, first }
    }

    /// The share of accesses whose page was accessed before.
    #[must_use]
    pub fn reuse_ratio(&self) -> f64 {
        let first = self.first as f64 / self.ratio;
        (1.0 - first / self.accesses.max(1) as f64).clamp(0.0, 1.0)
    }

    /// The miss ratio of an LRU cache of `pages` pages.
    #[must_use]
    pub fn miss_ratio(&self, pages: u64) -> f64 {
        if self.total == 0.0 || pages == 0 {
            return 1.0;
        }
        // Distances below `pages`, scaled to the sample.
        let below = (pages as f64 * self.ratio).ceil() as usize;
        let counted = self.cumulated.get(below.min(self.cumulated.len()).wrapping_sub(1));
        let hits = counted.copied().unwrap_or(0) as f64 + self.adjustment;
        (1.0 - hits / self.total).clamp(0.0, 1.0)
    }

    /// The distance in pages that this share of the reuses does not exceed; `None` without reuse.
    #[must_use]
    pub fn distance(&self, share: f64) -> Option<u64> {
        let all = *self.cumulated.last()? as f64;
        let at = self.cumulated.partition_point(|sum| (*sum as f64) < share * all);
        Some((at.min(self.cumulated.len() - 1) as f64 / self.ratio).round() as u64)
    }

    /// The mean absolute difference to another curve, over each hundredth of `unique` pages.
    #[must_use]
    pub fn mean_difference(&self, other: &Self, unique: u64) -> f64 {
        let at = |point: u64| (u128::from(unique) * u128::from(point) / u128::from(POINTS)) as u64;
        let difference = |pages| (self.miss_ratio(pages) - other.miss_ratio(pages)).abs();
        (1..=POINTS).map(|point| difference(at(point))).sum::<f64>() / POINTS as f64
    }
}

/// This many percent of a number of pages, rounded down.
#[must_use]
pub fn percent_of(pages: u64, percent: u64) -> u64 {
    (u128::from(pages) * u128::from(percent) / 100) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cache_hits_at_distances_below_its_size() {
        // Four first accesses, two immediate repeats, and one repeat after three other pages.
        let curve = Curve::new(&[2, 0, 0, 1], 4, 7, 1.0);
        let expected = [(0, 7.0), (1, 5.0), (3, 5.0), (4, 4.0), (99, 4.0)];
        for (pages, misses) in expected {
            assert!((curve.miss_ratio(pages) - misses / 7.0).abs() < 1e-12, "{pages}");
        }
        assert_eq!((curve.distance(0.5), curve.distance(1.0)), (Some(0), Some(3)));
        assert!((curve.reuse_ratio() - 3.0 / 7.0).abs() < 1e-12);
        assert_eq!(Curve::new(&[], 0, 0, 1.0).miss_ratio(5), 1.0);
        assert_eq!(Curve::new(&[], 3, 3, 1.0).distance(0.5), None);
    }
}
