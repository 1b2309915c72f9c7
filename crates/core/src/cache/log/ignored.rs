// SPDX-License-Identifier: MIT OR Apache-2.0
//! The pages of a log that its recovery ignores, and the state of changes past the log (`bypass.rs`).

use std::cell::{Cell, RefCell};
use std::ops::Range;

use crate::request::Errno;

/// What a log has ignored, and the changes that go past it.
#[derive(Default)]
pub(super) struct Bypass {
    /// The pages that recovery ignores, in order and apart from each other.
    pub(super) ignored: RefCell<Vec<Range<u64>>>,
    /// Changes that go past the log at the moment.
    pub(super) passing: Cell<u32>,
    /// The log returns: no change may begin to go past it.
    pub(super) returning: Cell<bool>,
    /// A record is being made.
    pub(super) recording: Cell<bool>,
    /// Its result.
    pub(super) recorded: Cell<Option<Result<(), Errno>>>,
}

impl Bypass {
    pub(super) fn ignoring(ignored: Vec<Range<u64>>) -> Self {
        Self { ignored: RefCell::new(ignored), ..Self::default() }
    }

    /// Nothing is ignored.
    pub(super) fn clear(&self) {
        self.ignored.borrow_mut().clear();
    }

    pub(super) fn ignored(&self) -> Vec<Range<u64>> {
        self.ignored.borrow().clone()
    }

    pub(super) fn has_ignored(&self, page: u64) -> bool {
        has(&self.ignored.borrow(), page)
    }

    /// Whether the log may continue without a return: nothing is ignored or about to be.
    pub(super) fn is_unused(&self) -> bool {
        self.passing.get() == 0 && self.ignored.borrow().is_empty()
    }
}

/// Whether the ranges, in order, have the page.
pub(super) fn has(ranges: &[Range<u64>], page: u64) -> bool {
    let after = ranges.partition_point(|pages| pages.end <= page);
    ranges.get(after).is_some_and(|pages| pages.contains(&page))
}

/// The ranges and these pages, in order and apart from each other.
pub(super) fn with(ranges: &[Range<u64>], pages: &[u64]) -> Vec<Range<u64>> {
    let mut all: Vec<Range<u64>> = ranges.to_vec();
    all.extend(pages.iter().map(|page| *page..page + 1));
    all.sort_unstable_by_key(|pages| pages.start);
    let mut merged: Vec<Range<u64>> = Vec::new();
    for pages in all {
        match merged.last_mut() {
            Some(last) if pages.start <= last.end => last.end = last.end.max(pages.end),
            _ => merged.push(pages),
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_merged_and_found() {
        let ranges = with(&[3..5, 9..10], &[5, 1, 11, 10]);
        assert_eq!(ranges, [1..2, 3..6, 9..12]);
        let found: Vec<u64> = (0..13).filter(|page| has(&ranges, *page)).collect();
        assert_eq!(found, [1, 3, 4, 5, 9, 10, 11]);
    }
}
