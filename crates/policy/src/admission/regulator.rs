// SPDX-License-Identifier: MIT OR Apache-2.0
//! The number of population workers that run, by miss ratio and free share (SCE, section 3.6, Algorithm 1).
//!
//! Algorithm 1 as printed never promotes once the cache is full, which would make eviction dead code. It is read here
//! as follows. There are three classes of workers, and the first whose conditions hold is in force. The conditions are
//! `miss >= target` and `free > min_free`; there is no condition on free space where `min_free` is zero. The miss ratio
//! is that of a sliding window.
//!
//! Invariants: a window without reads has the last known ratio, and the ratio is 1 before the first read, so that a
//! cold cache starts at full speed.

use alloc::vec::Vec;

use crate::Nanos;

/// Buckets of the sliding window.
const BUCKETS: u64 = 10;

/// A class of population workers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Class {
    /// Workers that run while this class is in force.
    pub workers: u32,
    /// It is in force while at least this share of reads misses (`target_missrate`).
    pub target_miss_ratio: f64,
    /// It is in force while more than this share of the cache is free (`min_free_pcnt`).
    pub min_free_ratio: f64,
    /// How long each worker sleeps before each promotion (`period`).
    pub period_ns: Nanos,
}

impl Class {
    /// The paper's three classes: 8, 4 and 1 workers; miss ratios of 35 % and 15 %; 10 % free; 500 ms.
    pub const PAPER: [Self; 3] = [
        Self { workers: 8, target_miss_ratio: 0.35, min_free_ratio: 0.10, period_ns: 0 },
        Self { workers: 4, target_miss_ratio: 0.15, min_free_ratio: 0.0, period_ns: 0 },
        Self { workers: 1, target_miss_ratio: 0.0, min_free_ratio: 0.0, period_ns: 500_000_000 },
    ];
    /// The paper's classes with one more before the last: while more than a tenth of the cache is free, the last worker
    /// does not sleep. With the paper's classes a cache that has room and misses less than 15 % admits two units a
    /// second, however much is missing: in `larder bench warm-up` the final hit ratio stays at 0.91 instead of 0.94.
    pub const DEFAULT: [Self; 4] = [
        Self::PAPER[0],
        Self::PAPER[1],
        Self { workers: 1, target_miss_ratio: 0.0, min_free_ratio: 0.10, period_ns: 0 },
        Self::PAPER[2],
    ];

    /// This class's share for one of `shards` shards: fewer workers, and a longer period where the number does not
    /// divide evenly, so that the whole volume populates at the same rate.
    #[must_use]
    pub fn share_of(self, shards: u32) -> Self {
        let workers = self.workers.div_ceil(shards.max(1));
        let stretch = f64::from(workers * shards.max(1)) / f64::from(self.workers.max(1));
        Self { workers, period_ns: (self.period_ns as f64 * stretch) as Nanos, ..self }
    }
}

/// Measures the miss ratio and chooses the class.
#[derive(Debug)]
pub struct Regulator {
    classes: Vec<Class>,
    bucket_ns: Nanos,
    buckets: [(u64, u32, u32); BUCKETS as usize],
    last_ratio: f64,
}

impl Regulator {
    /// A regulator over `classes`, fastest first, with a window of `window_ns`.
    #[must_use]
    pub fn new(classes: Vec<Class>, window_ns: Nanos) -> Self {
        let bucket_ns = (window_ns / BUCKETS).max(1);
        Self { classes, bucket_ns, buckets: Default::default(), last_ratio: 1.0 }
    }

    /// The most workers that any class uses.
    #[must_use]
    pub fn workers(&self) -> u32 {
        self.classes.iter().map(|c| c.workers).max().unwrap_or(0)
    }

    /// A read was served.
    pub fn served(&mut self, hit: bool, now: Nanos) {
        let epoch = now / self.bucket_ns;
        let bucket = &mut self.buckets[(epoch % BUCKETS) as usize];
        if bucket.0 != epoch {
            *bucket = (epoch, 0, 0);
        }
        bucket.1 += 1;
        bucket.2 += u32::from(!hit);
    }

    /// The share of reads in the window that missed.
    pub fn miss_ratio(&mut self, now: Nanos) -> f64 {
        let oldest = (now / self.bucket_ns).saturating_sub(BUCKETS - 1);
        let live = self.buckets.iter().filter(|b| b.0 >= oldest);
        let (reads, misses) =
            live.fold((0u64, 0u64), |(r, m), b| (r + u64::from(b.1), m + u64::from(b.2)));
        if reads > 0 {
            self.last_ratio = misses as f64 / reads as f64;
        }
        self.last_ratio
    }

    /// The class in force.
    pub fn class(&mut self, free_ratio: f64, now: Nanos) -> Option<Class> {
        let miss = self.miss_ratio(now);
        let holds = |c: &&Class| {
            let free = c.min_free_ratio <= 0.0 || free_ratio > c.min_free_ratio;
            free && miss >= c.target_miss_ratio
        };
        self.classes.iter().find(holds).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Nanos = 1_000_000_000;

    fn with_miss_ratio(percent: u32) -> Regulator {
        let mut r = Regulator::new(Class::PAPER.to_vec(), SECOND);
        for i in 0..100 {
            r.served(i >= percent, 1);
        }
        r
    }

    #[test]
    fn workers_follow_miss_ratio_and_free_share_as_in_the_paper() {
        for (percent, free, workers) in [
            (100, 1.0, 8),
            (35, 0.5, 8),
            (34, 0.5, 4),
            (35, 0.10, 4),
            (100, 0.0, 4),
            (15, 0.5, 4),
            (14, 0.5, 1),
            (0, 0.0, 1),
        ] {
            let class = with_miss_ratio(percent).class(free, 1).unwrap();
            assert_eq!(class.workers, workers, "{percent} % misses, {free} free");
            assert_eq!(class.period_ns > 0, workers == 1);
        }
    }

    #[test]
    fn a_cold_cache_starts_at_full_speed_and_old_reads_leave_the_window() {
        let mut r = Regulator::new(Class::PAPER.to_vec(), SECOND);
        assert_eq!(r.class(1.0, 0).unwrap().workers, 8);
        r.served(true, 0);
        assert_eq!(r.class(1.0, 0).unwrap().workers, 1);
        r.served(false, 2 * SECOND);
        assert_eq!(r.class(1.0, 2 * SECOND).unwrap().workers, 8);
        // No reads in the window: the last known ratio stays.
        assert_eq!(r.class(1.0, 60 * SECOND).unwrap().workers, 8);
    }

    #[test]
    fn shards_share_the_workers_at_an_equal_rate() {
        let [a, _, c] = Class::PAPER.map(|c| c.share_of(4));
        assert_eq!((a.workers, c.workers, c.period_ns), (2, 1, 4 * 500_000_000));
    }
}
