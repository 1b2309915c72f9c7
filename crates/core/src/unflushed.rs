// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ranges of the origin that were changed and that no flush has covered yet.
//!
//! A record that pages on flash equal the origin needs no flush of the origin if none of them is in this set: a crash leaves
//! the origin as the pages were read from it.
//!
//! A range is one of `BLOCKS` bits, which the hash of its place chooses. There are two sets of bits: changes that ended
//! before the flush in flight began, and later ones. A flush that succeeds empties the first.
//!
//! Invariants: a changed block is in a set until a flush that began after its change has succeeded. Blocks that share a bit
//! are in the set together, and every block is until the first flush, because an earlier run may have changed it. Neither
//! loses a change; both only delay a record.
//!
//! Why not the set of blocks: its size is bounded by nothing but the origin's.

use std::cell::{Cell, RefCell};

use crate::mutant;

/// Bits of a set: 16 KiB.
const BLOCKS: u64 = 1 << 17;
/// Bytes of memory of both sets.
pub(crate) const UNFLUSHED_BYTES: u64 = 2 * BLOCKS / 8;

/// The set.
pub(crate) struct Unflushed {
    block_bytes: u64,
    /// Changes that the flush in flight covers, or the last one that failed.
    covered: RefCell<Vec<u64>>,
    later: RefCell<Vec<u64>>,
    /// No flush has succeeded.
    all: Cell<bool>,
}

fn empty() -> RefCell<Vec<u64>> {
    RefCell::new(vec![0; (BLOCKS / 64) as usize])
}

impl Unflushed {
    /// The set in blocks of so many bytes.
    pub(crate) fn new(block_bytes: u64) -> Self {
        Self { block_bytes, covered: empty(), later: empty(), all: Cell::new(true) }
    }

    fn bits(&self, offset: u64, len: u64) -> impl Iterator<Item = (usize, u64)> {
        let blocks = offset / self.block_bytes..(offset + len).div_ceil(self.block_bytes);
        blocks.map(|block| {
            let bit = block.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - BLOCKS.ilog2());
            ((bit / 64) as usize, 1 << (bit % 64))
        })
    }

    /// A change of a range has ended.
    pub(crate) fn changed(&self, offset: u64, len: u64) {
        let mut later = self.later.borrow_mut();
        if len / self.block_bytes >= BLOCKS {
            return later.fill(u64::MAX);
        }
        self.bits(offset, len).for_each(|(word, bit)| later[word] |= bit);
    }

    /// A flush begins.
    pub(crate) fn flush_began(&self) {
        let mut later = self.later.borrow_mut();
        for (covered, later) in self.covered.borrow_mut().iter_mut().zip(later.iter_mut()) {
            *covered |= std::mem::take(later);
        }
    }

    /// The flush succeeded.
    pub(crate) fn flushed(&self) {
        self.covered.borrow_mut().fill(0);
        if mutant::is_active("flush-covers-later") {
            self.later.borrow_mut().fill(0);
        }
        self.all.set(false);
    }

    /// Whether a change of a part of this range is not covered by a flush.
    pub(crate) fn has(&self, offset: u64, len: u64) -> bool {
        let (covered, later) = (self.covered.borrow(), self.later.borrow());
        let is_set = |(word, bit): (usize, u64)| (covered[word] | later[word]) & bit != 0;
        self.all.get() || self.bits(offset, len).any(is_set)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: u64 = 16 << 10;

    /// A set after a first flush.
    fn flushed() -> Unflushed {
        let set = Unflushed::new(BLOCK);
        set.flush_began();
        set.flushed();
        set
    }

    #[test]
    fn everything_is_unflushed_until_the_first_flush() {
        let set = Unflushed::new(BLOCK);
        assert!(set.has(7 * BLOCK, 1));
        set.flush_began();
        assert!(set.has(7 * BLOCK, 1));
        set.flushed();
        assert!(!set.has(7 * BLOCK, 1));
    }

    #[test]
    fn a_flush_covers_only_changes_that_ended_before_it_began() {
        let set = flushed();
        set.changed(BLOCK, 4096);
        set.flush_began();
        set.changed(9 * BLOCK, 4096);
        assert!(set.has(BLOCK, 1) && set.has(9 * BLOCK, 1), "until it succeeds");
        set.flushed();
        assert!(!set.has(BLOCK, BLOCK) && set.has(9 * BLOCK, BLOCK));
        set.flush_began();
        set.flushed();
        assert!(!set.has(9 * BLOCK, BLOCK));
    }

    #[test]
    fn a_flush_that_fails_covers_nothing() {
        let set = flushed();
        set.changed(BLOCK, 4096);
        set.flush_began();
        set.flush_began();
        assert!(set.has(BLOCK, 1));
    }

    #[test]
    fn no_block_of_a_range_is_missing() {
        for (offset, len) in
            [(0, 1), (BLOCK - 1, 2), (5 * BLOCK + 512, 3 * BLOCK), (0, 3 * BLOCKS * BLOCK)]
        {
            let set = flushed();
            set.changed(offset, len);
            let step = (len / 4096).max(1);
            assert!((offset..offset + len).step_by(step as usize).all(|at| set.has(at, 1)));
            let elsewhere = (1 << 40..(1 << 40) + 100 * BLOCK).step_by(BLOCK as usize);
            let found = elsewhere.filter(|at| set.has(*at, 1)).count();
            assert!(found < 3 || len > BLOCKS * BLOCK, "{found} blocks that did not change");
        }
    }
}
