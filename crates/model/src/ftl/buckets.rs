// SPDX-License-Identifier: MIT OR Apache-2.0
//! Erase blocks by number of valid pages: finds the one with the fewest at bounded cost.
//!
//! There is a list for each number; a page that becomes invalid moves its block down by one. Of blocks with equally
//! many valid pages the one that reached that number first is chosen, so that the choice is the same on every machine
//! and no block waits indefinitely.
//!
//! Cost: `fewest` decreases by one when a page becomes invalid, or to the count of a block that was just filled, and
//! `pop` increases it step by step. So it increases less often than pages are programmed and invalidated, which makes
//! every call O(1) amortised.
//!
//! Why not a heap: each overwrite of a page would cost a logarithm and random memory accesses.

/// The end of a list.
const NONE: u32 = u32::MAX;
/// The `next` of a block that is in no list.
const OUTSIDE: u32 = u32::MAX - 1;

#[derive(Clone, Copy)]
struct Link {
    next: u32,
    prev: u32,
    valid: u32,
}

#[derive(Clone, Copy)]
struct List {
    first: u32,
    last: u32,
}

pub(super) struct Buckets {
    blocks: Vec<Link>,
    /// The blocks with as many valid pages as the index.
    lists: Vec<List>,
    /// No list before this one has a block.
    fewest: usize,
}

impl Buckets {
    /// Blocks without valid pages, none of which may be chosen yet.
    pub(super) fn new(blocks: u32, pages_per_block: u32) -> Self {
        let lists = pages_per_block as usize + 1;
        Self {
            blocks: vec![Link { next: OUTSIDE, prev: NONE, valid: 0 }; blocks as usize],
            lists: vec![List { first: NONE, last: NONE }; lists],
            fewest: lists,
        }
    }

    /// Number of valid pages of a block.
    pub(super) fn valid(&self, block: u32) -> u32 {
        self.blocks[block as usize].valid
    }

    /// A page of the block was programmed; the block may not be chosen yet.
    pub(super) fn add_valid(&mut self, block: u32) {
        self.blocks[block as usize].valid += 1;
    }

    /// A page of the block became invalid.
    pub(super) fn drop_valid(&mut self, block: u32) {
        let listed = self.blocks[block as usize].next != OUTSIDE;
        if listed {
            self.unlink(block);
        }
        self.blocks[block as usize].valid -= 1;
        if listed {
            self.push(block);
        }
    }

    /// Makes the block available to be chosen.
    pub(super) fn push(&mut self, block: u32) {
        let valid = self.valid(block) as usize;
        let last = std::mem::replace(&mut self.lists[valid].last, block);
        match last {
            NONE => self.lists[valid].first = block,
            last => self.blocks[last as usize].next = block,
        }
        let link = &mut self.blocks[block as usize];
        (link.next, link.prev) = (NONE, last);
        self.fewest = self.fewest.min(valid);
    }

    /// Removes the block with the fewest valid pages.
    pub(super) fn pop(&mut self) -> Option<u32> {
        let from = self.lists.get(self.fewest..)?;
        self.fewest += from.iter().position(|list| list.first != NONE)?;
        let block = self.lists[self.fewest].first;
        self.unlink(block);
        Some(block)
    }

    fn unlink(&mut self, block: u32) {
        let Link { next, prev, valid } = self.blocks[block as usize];
        let list = &mut self.lists[valid as usize];
        match prev {
            NONE => list.first = next,
            prev => self.blocks[prev as usize].next = next,
        }
        match next {
            NONE => list.last = prev,
            next => self.blocks[next as usize].prev = prev,
        }
        self.blocks[block as usize].next = OUTSIDE;
    }
}

#[cfg(test)]
mod tests {
    use super::Buckets;
    use crate::SplitMix64;

    /// Compares with a plain list of blocks in the order in which they reached their number.
    #[test]
    fn agrees_with_an_exhaustive_search() {
        const BLOCKS: u32 = 12;
        const PAGES: u32 = 5;
        let mut random = SplitMix64::new(3);
        let mut buckets = Buckets::new(BLOCKS, PAGES);
        let mut valid = [0_u32; BLOCKS as usize];
        let mut listed: Vec<u32> = Vec::new();
        for _ in 0..20_000 {
            let block = random.below(u64::from(BLOCKS)) as u32;
            let count = &mut valid[block as usize];
            let at = listed.iter().position(|&b| b == block);
            match random.below(4) {
                0 if at.is_none() && *count < PAGES => {
                    buckets.add_valid(block);
                    *count += 1;
                }
                1 if at.is_none() => {
                    buckets.push(block);
                    listed.push(block);
                }
                2 if *count > 0 => {
                    buckets.drop_valid(block);
                    *count -= 1;
                    if let Some(at) = at {
                        listed.remove(at);
                        listed.push(block);
                    }
                }
                3 => {
                    let want = listed.iter().copied().min_by_key(|&b| valid[b as usize]);
                    assert_eq!(buckets.pop(), want);
                    listed.retain(|&b| Some(b) != want);
                }
                _ => {}
            }
            assert!((0..BLOCKS).all(|b| buckets.valid(b) == valid[b as usize]));
        }
    }
}
