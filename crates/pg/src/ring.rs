// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which pages the server reads through a ring of frames: sequential scans of large tables, VACUUM and ANALYZE.
//!
//! Purpose: such pages are read once. Admitted, they displace pages that are read often.
//!
//! The C library sees no ring, only its effect: a frame that was filled a short time ago is filled again, with a page of
//! the same fork a little further on. In the clock order of ordinary reads a frame returns only after most others were
//! passed, and a page of the same place in the same fork follows by chance only.
//!
//! A page that is read into such a frame belongs to the scan, so it is not hashed, and not admitted when it leaves, whatever
//! replaces it. The hash would be the largest part of what the cache adds to the read of a page that the kernel caches.
//!
//! Errors of this rule cost hits, and no data: a page that is taken for one of a ring is not admitted when it leaves, and
//! the first pages of a scan, whose frames come from others, may be.
//!
//! Why not the server's own word: strategies of buffers are arguments inside the server, which no import shows. Why not
//! runs of consecutive blocks: an index scan in the order of the table reads these too, and through shared buffers.

use crate::area::Record;
use crate::names::Number;

/// The server limits a ring to this part of shared buffers.
const PART: u64 = 8;
/// A frame of a ring is filled again after at most this part of shared buffers was filled, by all processes.
const SOON: u64 = 2;

/// Whether a page that leaves its frame was read through a ring: `next` replaces it, `now` frames were filled since the
/// server started, of which there are `frames`.
#[must_use]
pub fn has(left: &Record, next: u64, now: u64, frames: u64) -> bool {
    let (before, after) = (Number::of_page(left.page), Number::of_page(next));
    let ahead = after.1.saturating_sub(before.1);
    before.0 == after.0
        && (1..=frames / PART).contains(&ahead)
        && now.saturating_sub(left.fill) <= frames / SOON
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::extent::EXTENT_BLOCKS;

    #[test]
    fn a_frame_of_a_ring_returns_soon_with_a_page_further_on() {
        let frames = 1024;
        let one = |block| 7 * EXTENT_BLOCKS + block;
        let left =
            |block, fill| Record { page: one(block), epoch: 0, hash: None, checksum: 0, fill };
        assert!(has(&left(100, 50), one(132), 82, frames));
        assert!(has(&left(100, 50), one(228), 50 + 512, frames), "beside reads of others");
        assert!(!has(&left(100, 50), one(229), 82, frames), "further on than a ring is long");
        assert!(!has(&left(100, 50), one(68), 82, frames), "backwards");
        assert!(!has(&left(100, 50), one(100), 82, frames), "the same page");
        assert!(!has(&left(100, 50), one(132), 50 + 513, frames), "in the clock's order");
        assert!(!has(&left(100, 50), 8 * EXTENT_BLOCKS + 132, 82, frames), "another file");
    }
}
