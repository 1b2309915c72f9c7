// SPDX-License-Identifier: MIT OR Apache-2.0
//! The pages of tombstones, as ranges. The cost of a rebuild depends on the number of entries, not on the counts in
//! tombstones.

use std::collections::BTreeMap;
use std::ops::Range;

/// Pages of the tombstones between two positions.
#[derive(Default)]
pub(super) struct Ended {
    /// First page; end, and position of the newest tombstone. The ranges are disjoint.
    newest: BTreeMap<u64, (u64, u64)>,
    /// The same pages, adjoining ranges merged: first page; end.
    all: BTreeMap<u64, u64>,
}

impl Ended {
    /// Adds a tombstone that is older than those before.
    pub fn add_older(&mut self, pages: Range<u64>, position: u64) {
        if pages.is_empty() {
            return;
        }
        let (mut first, mut end) = (pages.start, pages.end);
        let mut next = pages.start;
        // A range that touches this one is merged into it, so each is visited once.
        let touching = |all: &BTreeMap<u64, u64>, end: u64| {
            all.range(..=end).next_back().map(|(start, end)| (*start, *end))
        };
        let mut merged = Vec::new();
        while let Some((start, stop)) = touching(&self.all, end).filter(|(_, stop)| *stop >= first)
        {
            self.all.remove(&start);
            merged.push(start..stop);
            (first, end) = (first.min(start), end.max(stop));
        }
        for old in merged.into_iter().rev() {
            if next < old.start {
                self.newest.insert(next, (old.start.min(pages.end), position));
            }
            next = next.max(old.end);
        }
        if next < pages.end {
            self.newest.insert(next, (pages.end, position));
        }
        self.all.insert(first, end);
    }

    /// The position of the newest tombstone of a page.
    pub fn at(&self, page: u64) -> Option<u64> {
        let (_, (end, position)) = self.newest.range(..=page).next_back()?;
        (page < *end).then_some(*position)
    }

    /// The pages, without those in `but`, which is sorted.
    pub fn without(&self, but: &[u64]) -> Vec<Range<u64>> {
        let mut left = Vec::new();
        let mut but = but.iter().copied().peekable();
        for (&first, &end) in &self.all {
            let mut next = first;
            while let Some(page) = but.next_if(|page| *page < end) {
                if page < next {
                    continue;
                }
                if next < page {
                    left.push(next..page);
                }
                next = page + 1;
            }
            if next < end {
                left.push(next..end);
            }
        }
        left
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers that look random, the same in every run.
    struct Numbers(u64);

    impl Numbers {
        fn below(&mut self, end: u64) -> u64 {
            self.0 = self
                .0
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (self.0 >> 33) % end
        }
    }

    #[test]
    fn ranges_are_what_single_pages_would_be() {
        let mut numbers = Numbers(1);
        for round in 0..2_000 {
            let (mut ended, mut plain) = (Ended::default(), BTreeMap::new());
            for age in 0..numbers.below(20) {
                let first = numbers.below(60);
                let (pages, position) = (first..first + numbers.below(12), 1_000 - age);
                ended.add_older(pages.clone(), position);
                pages.for_each(|page| {
                    plain.entry(page).or_insert(position);
                });
            }
            for page in 0..80 {
                assert_eq!(ended.at(page), plain.get(&page).copied(), "round {round}, page {page}");
            }
            let but: Vec<u64> = (0..70).filter(|_| numbers.below(4) == 0).collect();
            let left: Vec<u64> = ended.without(&but).into_iter().flatten().collect();
            let expected: Vec<u64> = plain.into_keys().filter(|page| !but.contains(page)).collect();
            assert_eq!(left, expected, "round {round}");
            let merged = ended.without(&[]);
            assert!(merged.windows(2).all(|pair| pair[0].end < pair[1].start));
        }
    }

    #[test]
    fn a_tombstone_of_all_pages_costs_no_more_than_one_of_one() {
        let mut ended = Ended::default();
        for i in 0..100_000 {
            ended.add_older(3 * i..3 * i + 1, 1 << 40);
        }
        for i in 0..100_000 {
            ended.add_older(0..u64::from(u32::MAX), i);
        }
        assert_eq!((ended.at(3), ended.at(4)), (Some(1 << 40), Some(0)));
        assert_eq!(ended.without(&[7]), [0..7, 8..u64::from(u32::MAX)]);
    }
}
