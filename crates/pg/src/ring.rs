// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which pages come through a ring of frames: those that sequential scans of large tables, VACUUM and ANALYZE read, and those
//! that VACUUM, COPY and CREATE TABLE AS write.
//!
//! Purpose: such pages are used once. Admitted, they displace pages that are read often.
//!
//! # Reads
//! The C library sees no ring, only its effect: a frame that was filled a short time ago is filled again, with a page of
//! the same fork a little further on. In the clock order of ordinary reads a frame returns only after most others were
//! passed, and a page of the same place in the same fork follows by chance only.
//!
//! A page that is read into such a frame belongs to the scan, so it is not hashed, and not admitted when it leaves, whatever
//! replaces it. The hash would be the largest part of what the cache adds to the read of a page that the kernel caches.
//!
//! # Writes
//! A process that reuses its ring writes what is in it, in the order in which it went through the table: page after page of
//! one fork, each a little further on ([`Runs`]), and each at most a ring's length behind the end of the file (COPY) or behind
//! the page that it read last through its ring (VACUUM). What a process writes in the order of the clock lies about all of
//! shared buffers behind. From the ninth page of such a run on a page is admitted only if flash has an older version of it.
//! The frame would show more, but with checksums the server writes from a copy. The checkpointer and the background writer
//! write what all processes changed, and in order too; their writes are not judged.
//!
//! Errors of these rules cost hits, and no data: a page that is taken for one of a ring is not admitted when it leaves or is
//! written, and the first pages of a scan or a run may be.
//!
//! Why not the server's own word: strategies of buffers are arguments inside the server, which no import shows. Why not
//! runs of consecutive blocks: an index scan in the order of the table reads these too, and through shared buffers.

use std::cell::Cell;

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
    ahead(left.page, next, frames).is_some() && now.saturating_sub(left.fill) <= frames / SOON
}

/// How much further on a page is, if it is of the same fork and not further on than a ring is long.
fn ahead(page: u64, next: u64, frames: u64) -> Option<u64> {
    let (before, after) = (Number::of_page(page), Number::of_page(next));
    let ahead = after.1.saturating_sub(before.1);
    (before.0 == after.0 && (1..=frames / PART).contains(&ahead)).then_some(ahead)
}

/// Runs that a process may be in at the same time: a table's pages beside pages of its indexes and maps.
const RUNS: usize = 4;
/// Pages of a run before it is taken for one.
const SHORT: u64 = 8;
/// A table is extended by at most so many pages at once, before they are filled.
const AT_ONCE: u64 = 128;

/// The runs in which this process writes.
#[derive(Default)]
pub struct Runs {
    /// The last page of each, and how many were before it. The one that was used last is the first.
    runs: Cell<[(u64, u64); RUNS]>,
    /// The page that was read last through a ring.
    read: Cell<u64>,
}

impl Runs {
    /// This process reads a page through a ring.
    pub fn read(&self, page: u64) {
        self.read.set(page);
    }

    /// This process writes a page, so many pages before the end of the file. Returns whether it came through a ring.
    pub fn write(&self, page: u64, frames: u64, before_end: impl FnOnce() -> u64) -> bool {
        let mut runs = self.runs.get();
        // The nearest: COPY is in two runs of a table, a ring apart, since it writes new pages before it fills them.
        let near = |(i, (last, _)): (usize, &(u64, u64))| Some((ahead(*last, page, frames)?, i));
        let found = runs.iter().enumerate().filter_map(near).min().map(|(_, i)| i);
        let length = found.map_or(0, |found| runs[found].1 + 1);
        runs[..=found.unwrap_or(RUNS - 1)].rotate_right(1);
        runs[0] = (page, length);
        self.runs.set(runs);
        let is_near_end = || before_end() <= frames / PART + AT_ONCE;
        length >= SHORT && (ahead(page, self.read.get(), frames).is_some() || is_near_end())
    }
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

    const FRAMES: u64 = 1024;
    const NEAR: fn() -> u64 = || 0;

    fn one(fork: u64, block: u64) -> u64 {
        fork * EXTENT_BLOCKS + block
    }

    #[test]
    fn a_long_run_of_writes_comes_through_a_ring_also_beside_others() {
        let runs = Runs::default();
        let write = |page| runs.write(page, FRAMES, NEAR);
        for step in 0..100 {
            assert_eq!(write(one(7, 3 * step)), step >= SHORT, "{step}");
            assert_eq!(write(one(9, step)), step >= SHORT, "another run, {step}");
            assert!(!write(one(8, step * 7919 % 1000)), "an index, {step}");
        }
        for step in 0..100 {
            assert_eq!(write(one(4, 128 + step)), step >= SHORT, "a new page, {step}");
            assert_eq!(write(one(4, step)), step >= SHORT, "the ring's oldest, {step}");
        }
        assert!(!write(one(7, 3 * 99 + 129)), "further on than a ring is long");
        assert!(!write(one(7, 100)), "backwards");
    }

    #[test]
    fn a_run_in_the_order_of_the_clock_comes_through_no_ring() {
        let runs = Runs::default();
        for step in 0..50 {
            assert!(!runs.write(one(7, step), FRAMES, || FRAMES), "{step}");
        }
        runs.read(one(7, 49 + 32));
        assert!(runs.write(one(7, 50), FRAMES, || 1 << 20), "VACUUM, in the middle of a table");
        runs.read(one(8, 49 + 32));
        assert!(!runs.write(one(7, 51), FRAMES, || 1 << 20), "a scan of another table");
    }
}
