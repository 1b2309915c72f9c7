// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which parts of a unit clients have read.
//!
//! The first read of a part shows what it was worth to have the part before a client asked for it. Later reads of it do not:
//! its single pages, admitted by the first read, would serve them too.

/// Parts of a range.
pub(super) const PARTS: u64 = 256;

/// The parts of a range that were read.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Parts([u64; (PARTS / 64) as usize]);

impl Parts {
    /// `len` bytes at `at` of a range of `bytes` are read. Returns whether a part had not been read before.
    #[inline]
    pub(super) fn read(&mut self, (at, len): (u64, u64), bytes: u64) -> bool {
        let each = (bytes / PARTS).max(1);
        let (first, last) = (at / each, (at + len.max(1) - 1) / each);
        let mut is_new = false;
        for (word, base) in self.0.iter_mut().zip((0..PARTS).step_by(64)) {
            let (from, to) = (first.max(base), last.min(base + 63));
            if from <= to {
                let bits = (u64::MAX >> (63 - (to - from))) << (from - base);
                is_new |= bits & !*word != 0;
                *word |= bits;
            }
        }
        is_new
    }

    /// The share of the parts that were read.
    pub(super) fn share(&self) -> f64 {
        let read: u32 = self.0.iter().map(|word| word.count_ones()).sum();
        f64::from(read) / PARTS as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_read_of_a_part_is_new_and_no_later_one() {
        let mut parts = Parts::default();
        assert!(parts.read((4096, 4096), 1 << 20));
        assert!(!parts.read((4096, 512), 1 << 20) && !parts.read((8191, 1), 1 << 20));
        assert!(parts.read((8191, 2), 1 << 20), "it reaches into the next");
        assert!(!parts.read((4096, 8192), 1 << 20));
        assert_eq!(parts.share(), 2.0 / 256.0);
    }

    #[test]
    fn a_read_of_the_whole_range_and_beyond_counts_all_parts() {
        for bytes in [256, 4 << 10, 64 << 10, 1 << 20, 8 << 20] {
            let mut parts = Parts::default();
            assert!(parts.read((0, 2 * bytes), bytes) && !parts.read((bytes / 2, 1), bytes));
            assert_eq!(parts.share(), 1.0);
        }
    }
}
