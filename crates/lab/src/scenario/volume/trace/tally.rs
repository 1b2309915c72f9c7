// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is counted while a trace is replayed: after the warm-up, and in samples from the beginning.

use larder_core::exec::{Nanos, SECOND};
use larder_core::stats::Counters;
use larder_model::Wear;
use larder_sim::world::{ORIGIN, World};

use super::super::FLASH;
use crate::latencies::Latencies;
use crate::load::replay::Answered;

/// So many samples of equal numbers of requests.
const SAMPLES: u64 = 100;
/// A cache is warm at this share of its final hit ratio ...
const WARM_SHARE: f64 = 0.9;
/// ... which is that of the last of so many equal parts of the run.
const PARTS: usize = 8;

/// The counters of a world at a moment.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Marks {
    pub(super) at: Nanos,
    pub(super) counters: Counters,
    /// Operations of the origin: reads and writes.
    pub(super) origin: (u64, u64),
    pub(super) wear: Option<Wear>,
}

impl Marks {
    fn of(world: &mut World, has_flash: bool) -> Self {
        Self {
            at: world.now(),
            counters: world.counters(),
            origin: world.device(ORIGIN).operations(),
            wear: has_flash.then(|| world.device(FLASH).wear()).flatten(),
        }
    }
}

/// Requests of one kind.
#[derive(Clone, Debug, Default)]
pub(super) struct Side {
    pub(super) took: Latencies,
    /// All of it together: of the longest, latencies know only that they are long.
    pub(super) took_ns: u64,
    pub(super) hits: u64,
    pub(super) bytes: u64,
}

/// A part of the run.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sample {
    pub(super) end: Nanos,
    pub(super) reads: u64,
    pub(super) hits: u64,
    pub(super) read_ns: u64,
}

/// The sums, see the module.
pub(super) struct Tally {
    warm_up: u64,
    each: u64,
    has_flash: bool,
    pub(super) answered: u64,
    pub(super) reads: Side,
    pub(super) writes: Side,
    /// Requests of the whole run that were begun late, and how late the latest was.
    pub(super) late: u64,
    pub(super) latest: Nanos,
    pub(super) from: Marks,
    pub(super) to: Marks,
    pub(super) samples: Vec<Sample>,
    requests: u64,
}

impl Tally {
    /// Of so many requests, of which the first do not count.
    pub(super) fn new(requests: u64, warm_up_share: f64, has_flash: bool) -> Self {
        Self {
            warm_up: (requests as f64 * warm_up_share) as u64,
            each: requests.div_ceil(SAMPLES).max(1),
            has_flash,
            answered: 0,
            reads: Side::default(),
            writes: Side::default(),
            late: 0,
            latest: 0,
            from: Marks::default(),
            to: Marks::default(),
            samples: Vec::new(),
            requests,
        }
    }

    /// Answered requests a second.
    pub(super) fn per_second(&self) -> f64 {
        let count = self.reads.took.count() + self.writes.took.count();
        count as f64 * SECOND as f64 / (self.to.at - self.from.at).max(1) as f64
    }

    /// The latency that this share of requests does not exceed, in microseconds.
    pub(super) fn quantile_us(&self, share: f64) -> f64 {
        let mut all = self.reads.took.clone();
        all += &self.writes.took;
        all.quantile_us(share)
    }

    /// Until the cache was warm, in seconds; none if it has no hits.
    pub(super) fn warm_up_seconds(&self) -> Option<f64> {
        let last = self.samples.len().div_ceil(PARTS);
        let last = self.samples.iter().rev().take(last);
        let (hits, reads) = last.fold((0, 0), |(hits, reads), s| (hits + s.hits, reads + s.reads));
        if hits == 0 {
            return None;
        }
        let least = hits as f64 / reads as f64 * WARM_SHARE;
        let warm = |s: &&Sample| s.reads > 0 && s.hits as f64 >= s.reads as f64 * least;
        Some(self.samples.iter().find(warm)?.end as f64 / SECOND as f64)
    }

    /// Requests that do not count.
    pub(super) fn warm_up(&self) -> u64 {
        self.warm_up
    }

    /// One that was answered just now.
    pub(super) fn add(&mut self, world: &mut World, one: &Answered) {
        self.late += u64::from(one.late > 0);
        self.latest = self.latest.max(one.late);
        if self.answered.is_multiple_of(self.each) {
            self.samples.push(Sample::default());
        }
        if let Some(sample) = self.samples.last_mut() {
            sample.end = world.now();
            if !one.ask.writes {
                sample.reads += 1;
                sample.hits += u64::from(one.hit);
                sample.read_ns += one.took;
            }
        }
        if self.answered >= self.warm_up {
            let side = if one.ask.writes { &mut self.writes } else { &mut self.reads };
            side.took.record(one.took);
            side.took_ns += one.took;
            side.hits += u64::from(one.hit);
            side.bytes += one.ask.len;
        }
        self.answered += 1;
        if self.answered == self.warm_up {
            self.from = Marks::of(world, self.has_flash);
        }
        if self.answered == self.requests {
            self.to = Marks::of(world, self.has_flash);
        }
    }
}
