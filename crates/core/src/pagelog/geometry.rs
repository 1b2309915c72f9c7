// SPDX-License-Identifier: MIT OR Apache-2.0
//! The places of a log's parts: `header | header | segments | blocks`.
//!
//! Segments form a ring with room for all that cover the log, one that is written, and one more. A segment covers 65,536
//! positions (FaCE 5.1), or an eighth of a smaller log.

use std::ops::Range;

use crate::buf::PAGE;

/// Pages in a batch by default (FaCE 6.4: 64 of 4 KiB).
pub const BATCH_PAGES: u32 = 64;
/// The most pages in a batch.
pub const BATCH_PAGES_MOST: u32 = 256;
/// The most bytes of a page (4 KiB by default; PostgreSQL has 8 KiB).
pub const PAGE_BYTES_MOST: usize = 32_768;
/// Blocks of a batch before its pages: two copies of its header.
pub const BATCH_HEADERS: u32 = 2;

/// The most positions of a segment.
pub const SEGMENT_MOST: u64 = 65_536;
/// Bytes on flash of a block's entry: page and kind, and checksum.
pub const ENTRY_BYTES: usize = 12;
/// First byte of the entries within a segment or batch header.
pub const ENTRIES_AT: usize = 64;

/// The place of a log on flash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// First byte of the log on the device.
    pub base: u64,
    /// Blocks of the ring.
    pub blocks: u32,
    /// Bytes of a page, and so of a block: a power of two from [`PAGE`] to [`PAGE_BYTES_MOST`].
    pub page_bytes: u32,
    /// Pages of a full batch.
    pub batch_pages: u32,
    /// The volume that it belongs to; a new one with every formatting.
    pub volume: u64,
}

impl Geometry {
    /// The largest log of 4 KiB pages that fits into `bytes`; `None` if the smallest does not fit.
    #[must_use]
    pub fn fit(base: u64, bytes: u64, batch_pages: u32, volume: u64) -> Option<Self> {
        Self { base, blocks: 0, page_bytes: PAGE as u32, batch_pages, volume }.grown_to(bytes)
    }

    /// The same log with as many blocks as fit into `bytes`; `None` if the smallest log does not fit.
    #[must_use]
    pub fn grown_to(self, bytes: u64) -> Option<Self> {
        if !(1..=BATCH_PAGES_MOST).contains(&self.batch_pages) {
            return None;
        }
        let most = (bytes / self.page()).min(u64::from(u32::MAX) - 1) as u32;
        let of = |blocks: u32| Self { blocks, ..self };
        let (mut fits, mut not) = (0_u32, most + 1);
        while not - fits > 1 {
            let middle = fits + (not - fits) / 2;
            if of(middle).bytes() <= bytes { fits = middle } else { not = middle }
        }
        (fits >= of(0).least_blocks()).then(|| of(fits))
    }

    /// Whether a log can have this geometry. Then no place in it overflows.
    #[must_use]
    pub fn is_possible(&self) -> bool {
        let page = self.page_bytes as usize;
        page.is_power_of_two()
            && (PAGE..=PAGE_BYTES_MOST).contains(&page)
            && (1..=BATCH_PAGES_MOST).contains(&self.batch_pages)
            && self.blocks >= self.least_blocks()
            && self.base.is_multiple_of(PAGE as u64)
            && self.base.checked_add(self.bytes()).is_some_and(|end| end <= i64::MAX as u64)
    }

    /// Whether a log can have this tail and head when a log header counts these segments: each slot has one position at most,
    /// and the head is at most two segments ahead (rule L6), or three if the newest log header is damaged.
    pub(super) fn may_span(&self, tail: u64, segments: u64, head: u64) -> bool {
        tail <= head
            && head - tail <= u64::from(self.blocks)
            && head.saturating_sub(segments) <= 3 * self.segment()
    }

    /// Identifies the metadata of this log: the volume's id and the log's first byte, since a device may hold several logs.
    pub(super) fn identity(&self) -> u64 {
        self.volume.wrapping_add(self.base)
    }

    /// The fewest blocks of a log: room for every batch that may be in flight, and segments of two batches.
    #[must_use]
    pub fn least_blocks(&self) -> u32 {
        16 * self.batch_blocks()
    }

    /// Bytes of a page.
    pub(super) fn page(&self) -> u64 {
        u64::from(self.page_bytes)
    }

    /// Blocks of a full batch.
    #[must_use]
    pub fn batch_blocks(&self) -> u32 {
        BATCH_HEADERS + self.batch_pages
    }

    /// Positions that a segment covers.
    #[must_use]
    pub fn segment(&self) -> u64 {
        (u64::from(self.blocks) / 8).clamp(1, SEGMENT_MOST)
    }

    /// Bytes of a segment on flash.
    #[must_use]
    pub fn segment_bytes(&self) -> u64 {
        (ENTRIES_AT as u64 + self.segment() * ENTRY_BYTES as u64).next_multiple_of(PAGE as u64)
    }

    fn segments(&self) -> u64 {
        u64::from(self.blocks).div_ceil(self.segment()) + 3
    }

    /// Bytes of the log.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        2 * PAGE as u64
            + self.segments() * self.segment_bytes()
            + u64::from(self.blocks) * self.page()
    }

    /// First byte of the `n`th log header that is written.
    pub(super) fn header(&self, n: u64) -> u64 {
        self.base + (n % 2) * PAGE as u64
    }

    /// First byte of the segment that covers the positions from `first` on.
    pub(super) fn segment_at(&self, first: u64) -> u64 {
        let place = first / self.segment() % self.segments();
        self.base + 2 * PAGE as u64 + place * self.segment_bytes()
    }

    /// First byte of a position's block.
    #[must_use]
    pub fn block(&self, position: u64) -> u64 {
        let blocks = self.base + 2 * PAGE as u64 + self.segments() * self.segment_bytes();
        blocks + u64::from(self.slot(position)) * self.page()
    }

    /// The slot of a position.
    #[must_use]
    pub fn slot(&self, position: u64) -> u32 {
        (position % u64::from(self.blocks)) as u32
    }

    /// The start of a batch that follows at `position`: the rest of the ring may be too short for one page.
    pub(super) fn batch_start(&self, position: u64) -> u64 {
        let left = self.blocks - self.slot(position);
        if left > BATCH_HEADERS { position } else { position + u64::from(left) }
    }

    /// The most positions of a batch that begins at `start`.
    pub(super) fn batch_range(&self, start: u64) -> Range<u64> {
        let left = self.blocks - self.slot(start);
        start..start + u64::from(self.batch_blocks().min(left))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_of_10_gb_has_the_papers_forty_segments() {
        // FM1: 10 GB of 4 KiB pages are 40 segments of 65,536.
        let log =
            Geometry { base: 0, blocks: 2_621_440, page_bytes: 4096, batch_pages: 64, volume: 1 };
        assert_eq!(log.segment(), 65_536);
        assert_eq!(u64::from(log.blocks) / log.segment(), 40);
        assert_eq!(log.segments(), 43);
    }

    #[test]
    fn the_largest_log_is_found_and_its_parts_do_not_overlap() {
        for bytes in [5_u64 << 20, (5 << 20) + 4095, 64 << 20, 1 << 30] {
            let log = Geometry::fit(1 << 20, bytes, 64, 1).unwrap();
            assert!(log.bytes() <= bytes);
            let larger = Geometry { blocks: log.blocks + 1, ..log };
            assert!(larger.bytes() > bytes);
            assert_eq!(log.block(0), log.base + log.bytes() - u64::from(log.blocks) * 4096);
            let segments: Vec<u64> =
                (0..log.segments()).map(|j| log.segment_at(j * log.segment())).collect();
            assert_eq!(segments[0], log.base + 8192);
            assert!(segments.windows(2).all(|w| w[1] - w[0] == log.segment_bytes()));
            assert_eq!(segments.last().unwrap() + log.segment_bytes(), log.block(0));
        }
        assert_eq!(Geometry::fit(0, 1 << 20, 64, 1), None);
        assert_eq!(Geometry::fit(0, 1 << 30, 257, 1), None);
    }

    #[test]
    fn a_batch_never_crosses_the_end_of_the_ring() {
        let log = Geometry { base: 0, blocks: 1056, page_bytes: 4096, batch_pages: 64, volume: 1 };
        assert_eq!(log.batch_range(0), 0..66);
        assert_eq!(log.batch_range(1050), 1050..1056);
        assert_eq!(log.batch_start(1053), 1053);
        assert_eq!(log.batch_start(1054), 1056);
        assert_eq!(log.batch_start(1055), 1056);
    }
}
