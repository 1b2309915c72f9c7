// SPDX-License-Identifier: MIT OR Apache-2.0
//! Extents: the parts of forks that have numbers of their own (`names.rs`).
//!
//! An extent is 2^17 consecutive blocks of a segment, or its rest: with the usual sizes, blocks of 8 KiB and segments of 1 GiB,
//! a whole file.
//!
//! Invariant: an extent lies in one segment. The server truncates, drops and flushes file by file, so each of these concerns
//! whole extents, except for a segment that is cut in its middle.
//!
//! Why not a number for each fork: block numbers have 32 bits, and a page of the log is a number of 58. The numbers of forks
//! would have too few bits to be used only once.

use crate::file::Fork;

/// Bits of the number of a block in its extent.
pub const EXTENT_BITS: u32 = 17;
/// Blocks of an extent.
pub const EXTENT_BLOCKS: u64 = 1 << EXTENT_BITS;
/// Extents of a fork.
pub const INDEXES: u64 = 1 << 30;

/// An extent of a fork.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Extent {
    /// The fork.
    pub fork: Fork,
    /// How many extents of the fork precede it. Below [`INDEXES`].
    pub index: u32,
}

/// The extents of segments of a size.
#[derive(Clone, Copy, Debug)]
pub struct Extents {
    segment_blocks: u64,
}

impl Extents {
    /// Of segments with so many blocks.
    #[must_use]
    pub fn new(segment_blocks: u64) -> Self {
        Self { segment_blocks: segment_blocks.max(1) }
    }

    /// Blocks of a segment.
    #[must_use]
    pub fn segment_blocks(self) -> u64 {
        self.segment_blocks
    }

    /// Extents of a segment.
    fn in_segment(self) -> u64 {
        self.segment_blocks.div_ceil(EXTENT_BLOCKS)
    }

    fn extent(fork: &Fork, index: u64) -> Option<Extent> {
        (index < INDEXES).then_some(Extent { fork: *fork, index: index as u32 })
    }

    /// The extent of a fork's block, and the block in the extent; none if it can have no number.
    #[must_use]
    pub fn of(self, fork: &Fork, block: u64) -> Option<(Extent, u64)> {
        let (segment, block) = (block / self.segment_blocks, block % self.segment_blocks);
        let index = segment * self.in_segment() + block / EXTENT_BLOCKS;
        Some((Self::extent(fork, index)?, block % EXTENT_BLOCKS))
    }

    /// The extents of a segment.
    pub fn of_segment(self, fork: &Fork, segment: u32) -> impl Iterator<Item = Extent> + use<> {
        let (fork, first) = (*fork, u64::from(segment) * self.in_segment());
        (first..first + self.in_segment()).map_while(move |index| Self::extent(&fork, index))
    }

    /// The segment of an extent, and the first of its blocks there.
    #[must_use]
    pub fn place(self, extent: &Extent) -> (u64, u64) {
        let index = u64::from(extent.index);
        (index / self.in_segment(), index % self.in_segment() * EXTENT_BLOCKS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rig::FORK;

    #[test]
    fn each_block_has_a_place_in_one_extent_of_its_segment() {
        for segment_blocks in [6, 32, 131_072, 262_144, 300_000] {
            let extents = Extents::new(segment_blocks);
            let mut seen = std::collections::HashSet::new();
            let edges = [0, 1, 5, 31, 32, 131_071, 131_072, 262_143, 262_144, 299_999];
            for (segment, at) in [0, 1, 9].into_iter().flat_map(|s| edges.map(|at| (s, at))) {
                if at >= segment_blocks {
                    continue;
                }
                let (extent, block) = extents.of(&FORK, segment * segment_blocks + at).unwrap();
                assert!(block < EXTENT_BLOCKS && seen.insert((extent, block)));
                assert!(extents.of_segment(&FORK, segment as u32).any(|one| one == extent));
                let (found, first) = extents.place(&extent);
                assert_eq!((found, first + block), (segment, at));
            }
        }
        assert_eq!(Extents::new(1).of(&FORK, INDEXES), None);
        let most = Extents::new(131_072).of(&FORK, u64::from(u32::MAX)).unwrap();
        assert_eq!((most.0.index, most.1), (32_767, 131_071));
    }
}
