// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ranges of pages within a unit, and small sets of pages.

use std::ops::Range;

use crate::buf::PAGE;

/// Pages of a unit, first to one past the last.
pub type Pages = Range<u32>;

/// The most pages that one piece or one population step covers.
pub const MOST_PAGES: u32 = 256;

/// The pages that `len` bytes from `offset` (within the unit) touch.
#[must_use]
pub fn touched(offset: u64, len: u64) -> Pages {
    let page = PAGE as u64;
    (offset / page) as u32..(offset + len).div_ceil(page) as u32
}

/// Whether two ranges share a page.
#[must_use]
pub fn overlap(a: &Pages, b: &Pages) -> bool {
    a.start < b.end && b.start < a.end
}

/// Regions of a unit, at most: a mask of them is one word.
pub const REGIONS: u32 = u64::BITS;

/// Regions of a unit: the granularity of touched records and of dirty data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Regions {
    /// Pages of a region.
    pub pages_each: u32,
}

impl Regions {
    /// The regions of a unit of `unit_pages` pages.
    #[must_use]
    pub fn of(unit_pages: u32) -> Self {
        Self { pages_each: unit_pages.div_ceil(REGIONS) }
    }

    /// The regions that pages belong to, a bit each.
    #[must_use]
    pub fn mask_of(&self, pages: &Pages) -> u64 {
        let (first, last) = (pages.start / self.pages_each, (pages.end - 1) / self.pages_each);
        (first..=last).fold(0, |mask, region| mask | 1 << region)
    }

    /// The pages of consecutive regions.
    #[must_use]
    pub fn pages(&self, regions: Range<u32>) -> Pages {
        regions.start * self.pages_each..regions.end * self.pages_each
    }
}

/// A set of pages within a window of [`MOST_PAGES`] pages that begins at `base`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PageSet {
    base: u32,
    words: [u64; (MOST_PAGES / 64) as usize],
}

impl PageSet {
    /// An empty set over the window that begins at `base`.
    #[must_use]
    pub fn at(base: u32) -> Self {
        Self { base, words: Default::default() }
    }

    /// Adds the pages of `range` that lie in the window.
    pub fn add(&mut self, range: &Pages) {
        let from = range.start.saturating_sub(self.base);
        let to = range.end.saturating_sub(self.base).min(MOST_PAGES);
        for page in from..to {
            self.words[(page / 64) as usize] |= 1 << (page % 64);
        }
    }

    /// Whether it holds this page.
    #[must_use]
    pub fn has(&self, page: u32) -> bool {
        let at = page.wrapping_sub(self.base);
        at < MOST_PAGES && self.words[(at / 64) as usize] & (1 << (at % 64)) != 0
    }

    /// Whether the set is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.words == [0; (MOST_PAGES / 64) as usize]
    }

    /// The pages of `range` for which `wanted` holds.
    pub fn of(range: &Pages, wanted: impl Fn(u32) -> bool) -> Self {
        let mut set = Self::at(range.start);
        Self::runs(range.clone(), wanted).for_each(|run| set.add(&run));
        set
    }

    /// The maximal runs of pages of `range` for which `wanted` holds.
    pub fn runs(range: Pages, wanted: impl Fn(u32) -> bool) -> impl Iterator<Item = Pages> {
        let mut at = range.start;
        std::iter::from_fn(move || {
            let start = (at..range.end).find(|p| wanted(*p))?;
            let end = (start..range.end).find(|p| !wanted(*p)).unwrap_or(range.end);
            at = end;
            Some(start..end)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn touched_pages_include_partly_covered_ones() {
        assert_eq!(touched(0, 4096), 0..1);
        assert_eq!(touched(512, 4096), 0..2);
        assert_eq!(touched(8191, 1), 1..2);
    }

    #[test]
    fn runs_are_maximal() {
        let mut set = PageSet::at(100);
        set.add(&(90..103));
        set.add(&(110..111));
        let runs: Vec<_> = PageSet::runs(100..120, |p| set.has(p)).collect();
        assert_eq!(runs, [100..103, 110..111]);
        assert!(!set.has(99) && !set.is_empty());
    }
}
