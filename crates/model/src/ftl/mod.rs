// SPDX-License-Identifier: MIT OR Apache-2.0
//! A flash translation layer: a page map with greedy garbage collection.
//!
//! Flash is programmed page by page (4 KiB) and erased in blocks. A page that is written again goes elsewhere, and its
//! old place becomes invalid. Before a block is erased, its valid pages are relocated. How many these are depends on
//! the pattern of writes, so write amplification is a result here.
//!
//! - The host's pages go to one open block, relocated pages to another.
//! - When at most two blocks' worth of pages is erased, the block with the fewest valid pages becomes the victim. Its
//!   `v` pages are relocated gradually while the host writes `b - v` further pages, so that no request waits for a
//!   whole block.
//! - A request is applied as a whole: the pages that it replaces are invalid from its arrival, because the drive has
//!   the new data in its buffer. (Page by page, garbage collection would relocate the second half of a block that is
//!   being overwritten, and again in each round of a queue.)
//! - A trim invalidates pages. A flush has no effect on the map.
//!
//! Invariants, checked in `tests.rs` after each step of a random history: a logical and a physical page refer to each
//! other, or neither refers to anything; a block's count is the number of its valid pages; there is always an erased
//! page. The last holds because a victim frees more pages than it takes: two blocks' worth is erased when it is chosen,
//! the host and the victim together take one until it is erased, and at most one of the two open blocks ends without a
//! whole one to follow. [`SPARE_BLOCKS`] beyond the capacity guarantee that a victim has a page to free.
//!
//! Cost: 4 bytes for each logical page, 4 for each physical one and 12 for each block (64 GiB with 7 % of spare flash:
//! 142 MB with blocks of 256 KiB; on most systems pages never written take none); O(1) amortised for each programmed
//! page, written or relocated.
//!
//! Not modelled: wear levelling (blocks are reused in the order of their erasure), separation of hot and cold data, the
//! map's own pages, read disturbance.
//!
//! Why not a hybrid map of blocks and pages: it is a family of designs, each with its own constants, and drives since
//! 2010 map pages.

mod buckets;
mod greedy;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use serde::Deserialize;

use self::buckets::Buckets;
use crate::{Nanos, SplitMix64, bounds};

/// Bytes of a page, the unit of mapping; a smaller write also programs a whole page.
pub const PAGE_BYTES: u64 = 4 << 10;
/// The fewest blocks beyond the capacity: two blocks' worth of erased pages and two open blocks.
const SPARE_BLOCKS: u64 = 4;
/// A victim is chosen when at most this many blocks' worth of pages is erased.
const ERASED_BLOCKS: u64 = 2;
/// The largest drive, so that 32 bits number its pages including as much spare flash. Larger ones are modelled as this
/// one, and addresses wrap around.
const CAPACITY_BYTES_MAX: u64 = 4 << 40;
/// Refers to no page. Tables hold page numbers plus one, so that a new table is all zero.
const NOTHING: u32 = 0;

/// The parameters of a flash translation layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub struct FtlSpec {
    /// Bytes of an erase block, in whole pages.
    #[serde(deserialize_with = "bounds::block_bytes::<_, PAGE_BYTES>")]
    pub block_bytes: u64,
    /// Flash beyond the capacity, in thousandths of the capacity.
    #[serde(deserialize_with = "bounds::per_mille")]
    pub spare_per_mille: u64,
    /// How long an erasure occupies the drive. Dies erase in parallel.
    #[serde(deserialize_with = "bounds::nanos")]
    pub erase_ns: Nanos,
    /// How often the drive in use was overwritten: filled sequentially, then overwritten page by page at random, this
    /// many times its capacity. `None`: a new drive.
    #[serde(default, deserialize_with = "bounds::overwrites")]
    pub overwrites: Option<u64>,
}

/// Counters of flash operations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wear {
    /// Pages programmed because the host wrote them.
    pub host_pages: u64,
    /// Pages programmed to relocate them from a block to be erased.
    pub relocated_pages: u64,
    /// Blocks erased.
    pub erased_blocks: u64,
}

impl Wear {
    /// Write amplification: pages programmed for each page that the host wrote.
    #[must_use]
    pub fn write_amplification(&self) -> f64 {
        (self.host_pages + self.relocated_pages) as f64 / self.host_pages.max(1) as f64
    }

    /// The operations after an earlier state of the counters.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            host_pages: self.host_pages - earlier.host_pages,
            relocated_pages: self.relocated_pages - earlier.relocated_pages,
            erased_blocks: self.erased_blocks - earlier.erased_blocks,
        }
    }
}

/// The two open blocks: for pages of the host, and for relocated pages.
const HOST: usize = 0;
const RELOCATED: usize = 1;

/// A block being filled: its pages from `next` on are erased.
#[derive(Clone, Copy, Default)]
struct Open {
    block: u32,
    next: u32,
    end: u32,
}

/// A block being emptied.
struct Victim {
    block: u32,
    /// No page of the block before this one is valid.
    next: u32,
    /// Number of valid and of other pages when it was chosen.
    valid: u32,
    free: u32,
    /// Fractions of relocations due; `free` of them make one.
    due: u32,
}

/// The map and the flash behind it.
pub struct Ftl {
    pages_per_block: u32,
    /// Logical page to physical page.
    map: Vec<u32>,
    /// Physical page to logical page.
    owner: Vec<u32>,
    buckets: Buckets,
    /// Erased blocks, the oldest erasure first.
    erased: VecDeque<u32>,
    erased_pages: u64,
    /// The open blocks of [`HOST`] and [`RELOCATED`].
    open: [Open; 2],
    victim: Option<Victim>,
    wear: Wear,
}

impl Ftl {
    /// A new drive of at least this capacity, which is rounded up to whole blocks.
    #[must_use]
    pub fn new(spec: &FtlSpec, capacity_bytes: u64) -> Self {
        let pages_per_block = (spec.block_bytes / PAGE_BYTES).clamp(2, 1 << 20) as u32;
        let capacity_bytes = capacity_bytes.clamp(1, CAPACITY_BYTES_MAX);
        let pages = capacity_bytes.div_ceil(PAGE_BYTES);
        let block_pages = u64::from(pages_per_block);
        let spare_pages = pages * spec.spare_per_mille.min(1_000) / 1_000;
        let logical_blocks = pages.div_ceil(block_pages);
        let spare_blocks = (spare_pages / block_pages).max(SPARE_BLOCKS);
        let blocks = (logical_blocks + spare_blocks) as u32;
        let pages = blocks as usize * pages_per_block as usize;
        Self {
            pages_per_block,
            map: vec![NOTHING; (logical_blocks * block_pages) as usize],
            owner: vec![NOTHING; pages],
            buckets: Buckets::new(blocks, pages_per_block),
            erased: (0..blocks).collect(),
            erased_pages: pages as u64,
            open: [Open::default(); 2],
            victim: None,
            wear: Wear::default(),
        }
    }

    /// The capacity in pages.
    #[must_use]
    pub fn pages(&self) -> u64 {
        self.map.len() as u64
    }

    /// Pages of a block.
    #[must_use]
    pub fn pages_per_block(&self) -> u32 {
        self.pages_per_block
    }

    /// The flash operations since the drive was new or preconditioned.
    #[must_use]
    pub fn wear(&self) -> Wear {
        self.wear
    }

    /// The computed write amplification of uniformly random writes of single pages (see `greedy.rs`). The pages kept
    /// erased are not part of the flash over which they spread.
    #[must_use]
    pub fn steady_write_amplification(&self) -> f64 {
        let kept = ERASED_BLOCKS * u64::from(self.pages_per_block);
        let valid_share = self.map.len() as f64 / (self.owner.len() as u64 - kept) as f64;
        greedy::write_amplification(self.pages_per_block, valid_share)
    }

    /// Writes `count` pages from `first` on; addresses beyond the last page wrap around. Returns the flash operations
    /// that this took.
    pub fn write(&mut self, first: u64, count: u64) -> Wear {
        let before = self.wear;
        self.trim(first, count);
        for logical in self.round(first, count) {
            self.collect();
            self.wear.host_pages += 1;
            self.program(logical, HOST);
        }
        self.wear.since(&before)
    }

    /// Invalidates `count` pages from `first` on.
    pub fn trim(&mut self, first: u64, count: u64) {
        for logical in self.round(first, count) {
            self.forget(logical);
        }
    }

    /// Turns a new drive into one in use, and resets the counters: the drive is written sequentially, then at random in
    /// single pages, `overwrites` times its capacity. Three times suffice for a steady write amplification.
    pub fn precondition(&mut self, overwrites: u64, seed: u64) {
        self.write(0, self.pages());
        let mut random = SplitMix64::new(seed);
        for _ in 0..self.pages().saturating_mul(overwrites) {
            self.write(random.below(self.pages()), 1);
        }
        self.wear = Wear::default();
    }

    /// Logical pages with wrap-around, each at most once.
    fn round(&self, first: u64, count: u64) -> impl Iterator<Item = u32> + use<> {
        let pages = self.pages();
        let first = first % pages;
        let end = first + count.min(pages);
        let (straight, wrapped) = (first..end.min(pages), 0..end.saturating_sub(pages));
        straight.chain(wrapped).map(|page| page as u32)
    }

    /// Invalidates a logical page.
    fn forget(&mut self, logical: u32) {
        let place = std::mem::replace(&mut self.map[logical as usize], NOTHING);
        if place != NOTHING {
            self.owner[place as usize - 1] = NOTHING;
            self.buckets.drop_valid((place - 1) / self.pages_per_block);
        }
    }

    /// Programs a logical page, which has no valid place, to the next page of an open block. If the block is full an
    /// erased one is opened; a block that becomes full may be chosen from then on.
    fn program(&mut self, logical: u32, stream: usize) {
        if self.open[stream].next == self.open[stream].end {
            let Some(block) = self.erased.pop_front() else {
                unreachable!("a victim frees more than it takes")
            };
            let next = block * self.pages_per_block;
            self.open[stream] = Open { block, next, end: next + self.pages_per_block };
        }
        let open = &mut self.open[stream];
        let (block, physical) = (open.block, open.next);
        open.next += 1;
        let full = open.next == open.end;
        self.erased_pages -= 1;
        self.map[logical as usize] = physical + 1;
        self.owner[physical as usize] = logical + 1;
        self.buckets.add_valid(block);
        if full {
            self.buckets.push(block);
        }
    }

    /// Does the share of garbage collection for the next page of the host.
    fn collect(&mut self) {
        if self.victim.is_none() {
            if self.erased_pages > ERASED_BLOCKS * u64::from(self.pages_per_block) {
                return;
            }
            let Some(block) = self.buckets.pop() else { return };
            let (next, valid) = (block * self.pages_per_block, self.buckets.valid(block));
            let free = self.pages_per_block - valid;
            self.victim = Some(Victim { block, next, valid, free, due: 0 });
        }
        let Some(mut victim) = self.victim.take() else { return };
        victim.due += victim.valid;
        while victim.due >= victim.free && self.buckets.valid(victim.block) > 0 {
            victim.due -= victim.free;
            self.relocate_one(&mut victim);
        }
        if self.buckets.valid(victim.block) == 0 {
            self.erased.push_back(victim.block);
            self.erased_pages += u64::from(self.pages_per_block);
            self.wear.erased_blocks += 1;
        } else {
            self.victim = Some(victim);
        }
    }

    /// Relocates the next valid page of a victim that has one.
    fn relocate_one(&mut self, victim: &mut Victim) {
        while self.owner[victim.next as usize] == NOTHING {
            victim.next += 1;
        }
        let owner = std::mem::replace(&mut self.owner[victim.next as usize], NOTHING);
        self.buckets.drop_valid(victim.block);
        self.wear.relocated_pages += 1;
        self.program(owner - 1, RELOCATED);
    }
}
