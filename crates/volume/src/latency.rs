// SPDX-License-Identifier: MIT OR Apache-2.0
//! Latencies of requests, from their arrival at a worker to their answer.
//!
//! Invariants: counting costs a shift and two additions. It uses the times that the worker reads once a turn, so its error
//! is the length of a turn (microseconds, in a busy worker). Buckets are powers of two, and their counters cannot overflow.
//! Nothing is allocated.
//!
//! Why not a finer histogram: this is for operators, whose graphs need a factor of two; benches
//! measure at the client.

use larder_core::exec::Nanos;
use larder_core::request::Kind;

/// The first bound is 2 to this power, in nanoseconds: 8.2 us.
const FIRST_BIT: u32 = 13;
/// Bounds, the last one at 17 s.
const BOUNDS: usize = 22;

/// Latencies of one kind of request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Histogram {
    /// The last one counts values above all bounds.
    counts: [u64; BOUNDS + 1],
    sum_ns: u64,
}

impl Histogram {
    fn count(&mut self, took: Nanos) {
        // The bound itself belongs to its bucket.
        let above = took.saturating_sub(1) >> FIRST_BIT;
        let bucket = (u64::BITS - above.leading_zeros()) as usize;
        if let Some(count) = self.counts.get_mut(bucket.min(BOUNDS)) {
            *count += 1;
        }
        self.sum_ns = self.sum_ns.saturating_add(took);
    }

    /// The number of counted requests.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// All of them together.
    #[must_use]
    pub fn sum_seconds(&self) -> f64 {
        self.sum_ns as f64 / 1e9
    }

    /// The upper bound of each bucket in seconds (the last is infinite), and its count.
    pub fn buckets(&self) -> impl Iterator<Item = (f64, u64)> + '_ {
        let bound = |i: usize| match i {
            BOUNDS => f64::INFINITY,
            _ => (1_u64 << (FIRST_BIT as usize + i)) as f64 / 1e9,
        };
        self.counts.iter().enumerate().map(move |(i, count)| (bound(i), *count))
    }
}

impl std::ops::AddAssign<&Histogram> for Histogram {
    fn add_assign(&mut self, other: &Histogram) {
        self.counts.iter_mut().zip(other.counts).for_each(|(a, b)| *a += b);
        self.sum_ns = self.sum_ns.saturating_add(other.sum_ns);
    }
}

/// Latencies by kind of request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Latencies {
    /// Reads served wholly from flash.
    pub read_hit: Histogram,
    /// Other reads.
    pub read_miss: Histogram,
    /// Writes.
    pub write: Histogram,
    /// Flushes.
    pub flush: Histogram,
    /// Trims and zeroings.
    pub trim: Histogram,
}

impl Latencies {
    pub(super) fn count(&mut self, kind: Kind, hit: bool, took: Nanos) {
        let histogram = match kind {
            Kind::Read if hit => &mut self.read_hit,
            Kind::Read => &mut self.read_miss,
            Kind::Write { .. } => &mut self.write,
            Kind::Flush => &mut self.flush,
            Kind::Trim { .. } | Kind::Zero { .. } => &mut self.trim,
        };
        histogram.count(took);
    }

    /// Each with its name.
    #[must_use]
    pub fn each(&self) -> [(&'static str, &Histogram); 5] {
        [
            ("read_hit", &self.read_hit),
            ("read_miss", &self.read_miss),
            ("write", &self.write),
            ("flush", &self.flush),
            ("trim", &self.trim),
        ]
    }
}

impl std::ops::AddAssign<&Latencies> for Latencies {
    fn add_assign(&mut self, other: &Latencies) {
        self.read_hit += &other.read_hit;
        self.read_miss += &other.read_miss;
        self.write += &other.write;
        self.flush += &other.flush;
        self.trim += &other.trim;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_latency_falls_below_the_first_bound_that_holds_it() {
        for took in [0, 1, 8191, 8192, 8193, 16384, 1_000_000, 17_179_869_184, u64::MAX] {
            let mut histogram = Histogram::default();
            histogram.count(took);
            let seconds = took as f64 / 1e9;
            let mut below = 0.0;
            for (bound, count) in histogram.buckets() {
                let inside = (seconds <= bound && seconds > below) || (took == 0 && below == 0.0);
                assert_eq!(count == 1, inside, "{took} ns, bucket up to {bound} s");
                below = bound;
            }
            assert_eq!(histogram.total(), 1);
        }
    }
}
