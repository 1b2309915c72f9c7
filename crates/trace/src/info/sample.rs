// SPDX-License-Identifier: MIT OR Apache-2.0
//! A sample of pages by hash (SHARDS, Waldspurger et al., FAST 2015). All accesses of a page are sampled or none, so
//! distances in the sample are those of the trace times the sampling ratio.
//!
//! The sample has the [`SAMPLE_PAGES`] pages with the smallest hashes. The largest of these hashes gives the sampling
//! ratio and so the estimated number of pages. A trace with fewer pages is sampled completely.

use std::collections::BinaryHeap;

use hashbrown::HashSet;

/// Pages of the sample.
const SAMPLE_PAGES: usize = 16 << 10;

/// The finaliser of splitmix64: a bijection, so different pages have different hashes.
fn hash(page: u64) -> u64 {
    let mut mixed = page.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// The pages with the smallest hashes.
pub(super) struct Sample {
    largest_first: BinaryHeap<u64>,
    members: HashSet<u64>,
    /// The largest hash in the sample.
    most: u64,
}

impl Default for Sample {
    fn default() -> Self {
        Self { largest_first: BinaryHeap::new(), members: HashSet::new(), most: u64::MAX }
    }
}

impl Sample {
    pub(super) fn add(&mut self, page: u64) {
        let hash = hash(page);
        if hash > self.most || !self.members.insert(hash) {
            return;
        }
        self.largest_first.push(hash);
        if self.largest_first.len() > SAMPLE_PAGES
            && let Some(largest) = self.largest_first.pop()
        {
            self.members.remove(&largest);
            self.most = self.largest_first.peek().copied().unwrap_or(u64::MAX);
        }
    }

    /// Whether the sample contains a page.
    pub(super) fn has(&self, page: u64) -> bool {
        hash(page) <= self.most
    }

    /// The sampled share of all page numbers; 1 if all pages are sampled.
    pub(super) fn ratio(&self) -> f64 {
        (self.most as f64 + 1.0) / 2_f64.powi(64)
    }

    pub(super) fn estimated_pages(&self) -> u64 {
        (self.members.len() as f64 / self.ratio()) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_pages_are_all_sampled_and_many_are_estimated() {
        let mut sample = Sample::default();
        (0..SAMPLE_PAGES as u64).for_each(|page| sample.add(page * 7));
        assert!(sample.ratio() == 1.0 && sample.has(3));
        let mut sample = Sample::default();
        (0..2_000_000).for_each(|n| sample.add(n % 1_000_000));
        assert_eq!(sample.members.len(), SAMPLE_PAGES);
        assert_eq!((0..1_000_000).filter(|page| sample.has(*page)).count(), SAMPLE_PAGES);
        let estimated = sample.estimated_pages();
        assert!((970_000..1_030_000).contains(&estimated), "{estimated}");
    }
}
