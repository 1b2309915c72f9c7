// SPDX-License-Identifier: MIT OR Apache-2.0
//! Eviction of whole buckets (as in bcache): slots are filled bucket by bucket, and all units of a bucket are evicted
//! together, so that flash is written in long runs.
//!
//! The bucket to evict is the least recently used (an access to any of its units counts), the first filled, or a random
//! one.

use alloc::vec;
use alloc::vec::Vec;

use super::Replacement;
use super::list::{Links, Queue};

/// Which bucket is evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BucketOrder {
    /// The least recently used.
    Lru,
    /// The first filled.
    Fifo,
    /// A random one, from this seed.
    Random(u64),
}

/// State of bucket eviction.
#[derive(Debug)]
pub struct Buckets {
    order: BucketOrder,
    random: u64,
    per_bucket: u32,
    /// Buckets that hold units, in order of eviction.
    links: Links,
    queue: Queue,
    /// Units in each bucket.
    filled: Vec<u32>,
    /// The bucket in eviction: all its units are evicted before another bucket's.
    evicting: Option<u32>,
    slots: u32,
}

impl Buckets {
    /// Over `slots` slots in buckets of `per_bucket` slots.
    #[must_use]
    pub fn new(slots: u32, per_bucket: u32, order: BucketOrder) -> Self {
        let per_bucket = per_bucket.clamp(1, slots.max(1));
        let buckets = slots.div_ceil(per_bucket);
        let (links, queue) = (Links::new(buckets), Queue::default());
        let filled = vec![0; buckets as usize];
        let random = if let BucketOrder::Random(seed) = order { seed } else { 0 };
        Self { order, random, per_bucket, links, queue, filled, evicting: None, slots }
    }

    fn of(&self, slot: u32) -> u32 {
        slot / self.per_bucket
    }

    fn slots_of(&self, bucket: u32) -> core::ops::Range<u32> {
        let first = bucket * self.per_bucket;
        first..(first + self.per_bucket).min(self.slots)
    }

    /// A bucket with at least one evictable unit.
    fn choose(&mut self, may_evict: &dyn Fn(u32) -> bool) -> Option<u32> {
        let skip = match self.order {
            BucketOrder::Random(_) => self.random() % u64::from(self.queue.len().max(1)),
            _ => 0,
        };
        let fits = |bucket: &u32| self.slots_of(*bucket).any(may_evict);
        let found = self.queue.iter(&self.links).skip(skip as usize).find(fits);
        found.or_else(|| self.queue.iter(&self.links).find(fits))
    }

    /// SplitMix64.
    fn random(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.random ^ (self.random >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }
}

impl Replacement for Buckets {
    fn inserted(&mut self, slot: u32, _unit: u64) {
        let bucket = self.of(slot);
        self.filled[bucket as usize] += 1;
        if self.filled[bucket as usize] == 1 {
            self.queue.push(&mut self.links, bucket);
        }
        if self.order == BucketOrder::Lru {
            self.accessed(slot);
        }
    }

    fn accessed(&mut self, slot: u32) {
        let bucket = self.of(slot);
        if self.order == BucketOrder::Lru {
            self.queue.remove(&mut self.links, bucket);
            self.queue.push(&mut self.links, bucket);
        }
    }

    fn removed(&mut self, slot: u32) {
        let bucket = self.of(slot);
        self.filled[bucket as usize] -= 1;
        if self.filled[bucket as usize] == 0 {
            self.queue.remove(&mut self.links, bucket);
            self.evicting.take_if(|b| *b == bucket);
        }
    }

    fn victim(
        &mut self,
        _incoming: u64,
        _set: u32,
        may_evict: &dyn Fn(u32) -> bool,
    ) -> Option<u32> {
        let evicting = self.evicting.filter(|b| self.slots_of(*b).any(may_evict));
        self.evicting = evicting.or_else(|| self.choose(may_evict));
        // From the bucket's end, so that its free slots are refilled from the beginning.
        self.slots_of(self.evicting?).rev().find(|slot| may_evict(*slot))
    }

    fn evicted_together(&self) -> u32 {
        self.per_bucket
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn full(order: BucketOrder) -> Buckets {
        let mut buckets = Buckets::new(10, 4, order);
        (0..10).for_each(|s| buckets.inserted(s, u64::from(s)));
        buckets
    }

    fn next(buckets: &mut Buckets) -> Option<u32> {
        let slot = buckets.victim(99, 0, &|_| true)?;
        buckets.removed(slot);
        Some(slot)
    }

    #[test]
    fn a_bucket_is_evicted_whole_and_an_access_to_one_unit_renews_it() {
        let mut buckets = full(BucketOrder::Lru);
        buckets.accessed(1);
        let first = buckets.victim(99, 0, &|_| true);
        assert_eq!(first, Some(7), "bucket 1: bucket 0 was used more recently");
        let mut fifo = full(BucketOrder::Fifo);
        fifo.accessed(1);
        assert_eq!(next(&mut fifo), Some(3));
    }

    #[test]
    fn random_order_evicts_every_slot_eventually() {
        let mut buckets = full(BucketOrder::Random(1));
        let mut gone = [false; 10];
        for _ in 0..10 {
            let here = gone;
            let slot = buckets.victim(99, 0, &|s| !here[s as usize]).unwrap();
            buckets.removed(slot);
            gone[slot as usize] = true;
        }
        assert!(gone.iter().all(|g| *g));
    }
}
