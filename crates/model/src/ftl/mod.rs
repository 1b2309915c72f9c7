// SPDX-License-Identifier: MIT OR Apache-2.0
//! A flash translation layer: a page map with greedy garbage collection.
//!
//! Flash is programmed page by page (4 KiB) and erased in blocks. A page that is written again goes
//! elsewhere, its old place holds nothing from then on, and to erase a block what it still holds
//! must be relocated. How much that is follows from what is written where: write amplification is
//! a result here.
//!
//! - The host's pages go to one open block, relocated ones to another.
//! - When no more than two blocks' worth of pages is erased, the block with the fewest valid pages
//!   becomes the victim. Its `v` pages move bit by bit while the host writes as many as `b - v`
//!   more, so that no request waits for a whole block.
//! - A request is taken as a whole: what it replaces holds nothing from its arrival on, as the drive
//!   has the new data in its buffer. (Page by page, garbage collection would relocate the second
//!   half of a block that is just being written anew, and again in each round of a queue.)
//! - A trim forgets pages. A flush concerns what is in flight, not the map: there is nothing to do.
//!
//! Invariants, checked in `tests.rs` after each step of a random history: logical and physical page
//! refer to each other or neither does to anything; a block's count is the number of its valid
//! pages; there is always an erased page. The last holds because a victim frees more than it
//! takes: two blocks' worth is erased when it is chosen, the host and the victim together take one
//! until it is erased, and at most one of the two open blocks ends without a whole one to follow.
//! That the victim has a page to free needs [`SPARE_BLOCKS`] beyond the capacity.
//!
//! Costs: 4 bytes a logical page, 4 a physical one and 12 a block (64 GiB with 7 % of spare: 142
//! MB with blocks of 256 KiB; what was never written takes none on most systems); O(1) amortised
//! for a page programmed, host's or relocated.
//!
//! Left out: wear levelling (blocks are reused in the order of their erasure), hot and cold data
//! told apart, the map's own pages, read disturbance. Why not a hybrid map of blocks and pages: it
//! is a family of designs with a constant each, and drives since 2010 map pages.

mod buckets;
mod greedy;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use serde::Deserialize;

use self::buckets::Buckets;
use crate::{Nanos, SplitMix64, bounds};

/// Bytes of a page: what is mapped, and what a smaller write programs too.
pub const PAGE_BYTES: u64 = 4 << 10;
/// The fewest blocks beyond the capacity: two blocks' worth of erased pages, two open ones.
const SPARE_BLOCKS: u64 = 4;
/// So many blocks' worth of erased pages, and no more, when a victim is chosen.
const ERASED_BLOCKS: u64 = 2;
/// The largest drive, so that with as much to spare 32 bits number its pages. Larger ones are
/// modelled as this one, and addresses go round.
const CAPACITY_BYTES_MAX: u64 = 4 << 40;
/// What refers to nothing. Tables hold numbers of pages plus one, so that a new table is all zero.
const NOTHING: u32 = 0;

/// What to model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub struct FtlSpec {
    /// What is erased at once; in whole pages.
    #[serde(deserialize_with = "bounds::block_bytes::<_, PAGE_BYTES>")]
    pub block_bytes: u64,
    /// Flash beyond the capacity, in thousandths of the capacity.
    #[serde(deserialize_with = "bounds::per_mille")]
    pub spare_per_mille: u64,
    /// How long an erasure keeps the drive from other work. Dies erase side by side.
    #[serde(deserialize_with = "bounds::nanos")]
    pub erase_ns: Nanos,
    /// The drive in use: filled from end to end, and then overwritten page by page at random, as
    /// many times its capacity. None: a new one.
    #[serde(default, deserialize_with = "bounds::overwrites")]
    pub overwrites: Option<u64>,
}

/// What flash has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wear {
    /// Pages programmed because the host wrote them.
    pub host_pages: u64,
    /// Pages programmed because their block was to be erased.
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

    /// What was done after an earlier state of the counters.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            host_pages: self.host_pages - earlier.host_pages,
            relocated_pages: self.relocated_pages - earlier.relocated_pages,
            erased_blocks: self.erased_blocks - earlier.erased_blocks,
        }
    }
}

/// Which open block: for pages of the host, or for those that are relocated.
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
    /// Before this page of it nothing is valid.
    next: u32,
    /// Valid pages when it was chosen, and the others.
    valid: u32,
    free: u32,
    /// Parts of a relocation that are due; one is due at `free` of them.
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
    /// Blocks erased, the longest ago first.
    erased: VecDeque<u32>,
    erased_pages: u64,
    /// Those of [`HOST`] and [`RELOCATED`].
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

    /// Its capacity in pages.
    #[must_use]
    pub fn pages(&self) -> u64 {
        self.map.len() as u64
    }

    /// Pages of a block.
    #[must_use]
    pub fn pages_per_block(&self) -> u32 {
        self.pages_per_block
    }

    /// What flash has done since the drive was new, or since it was brought into use.
    #[must_use]
    pub fn wear(&self) -> Wear {
        self.wear
    }

    /// The write amplification that uniformly random writes of single pages tend to, computed (see
    /// `greedy.rs`). What is kept erased is not part of what they spread over.
    #[must_use]
    pub fn steady_write_amplification(&self) -> f64 {
        let kept = ERASED_BLOCKS * u64::from(self.pages_per_block);
        let valid_share = self.map.len() as f64 / (self.owner.len() as u64 - kept) as f64;
        greedy::write_amplification(self.pages_per_block, valid_share)
    }

    /// Writes so many pages from one on; addresses beyond the last page go round. Returns what
    /// flash did for it.
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

    /// Forgets what so many pages from one on hold.
    pub fn trim(&mut self, first: u64, count: u64) {
        for logical in self.round(first, count) {
            self.forget(logical);
        }
    }

    /// Makes of a new drive one in use, and begins to count anew: all of it is written in order,
    /// then at random, a page at a time, as often as makes `overwrites` times its capacity. Three
    /// times are enough for write amplification to be steady.
    pub fn precondition(&mut self, overwrites: u64, seed: u64) {
        self.write(0, self.pages());
        let mut random = SplitMix64::new(seed);
        for _ in 0..self.pages().saturating_mul(overwrites) {
            self.write(random.below(self.pages()), 1);
        }
        self.wear = Wear::default();
    }

    /// Logical pages, each at most once.
    fn round(&self, first: u64, count: u64) -> impl Iterator<Item = u32> + use<> {
        let pages = self.pages();
        let first = first % pages;
        let end = first + count.min(pages);
        let (straight, wrapped) = (first..end.min(pages), 0..end.saturating_sub(pages));
        straight.chain(wrapped).map(|page| page as u32)
    }

    /// Takes away what a logical page refers to.
    fn forget(&mut self, logical: u32) {
        let place = std::mem::replace(&mut self.map[logical as usize], NOTHING);
        if place != NOTHING {
            self.owner[place as usize - 1] = NOTHING;
            self.buckets.drop_valid((place - 1) / self.pages_per_block);
        }
    }

    /// Puts a logical page, which refers to nothing that is valid, on the next page of an open
    /// block. If there is none an erased one is opened; a full one may be chosen from now on.
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

    /// Does the share of garbage collection that goes with the next page of the host.
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

    /// Moves the next valid page of a victim that has one.
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
