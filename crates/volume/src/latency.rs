// SPDX-License-Identifier: MIT OR Apache-2.0
//! Latencies of requests, from their arrival at a worker to their answer.
//!
//! Invariants: counting costs a shift and two additions. It uses the times that the worker reads once a turn, so its error
//! is the length of a turn (microseconds, in a busy worker). An octave has eight buckets of equal width, so a quantile is known to
//! an eighth; their counters cannot overflow. Counting allocates nothing.

use larder_core::exec::Nanos;
use larder_core::request::Kind;

/// The first bound is 2 to this power, in nanoseconds: 8.2 us.
const FIRST_BIT: u32 = 13;
/// Octaves above it, the last one up to 17 s, and the logarithm of the buckets of each.
const OCTAVES: u32 = 21;
const STEP_BITS: u32 = 3;
/// Upper bounds of buckets.
const BOUNDS: usize = 1 + ((OCTAVES as usize) << STEP_BITS);

/// Latencies of one kind of request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Histogram {
    /// The last one counts values above all bounds.
    counts: Box<[u64; BOUNDS + 1]>,
    sum_ns: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { counts: Box::new([0; BOUNDS + 1]), sum_ns: 0 }
    }
}

impl Histogram {
    fn count(&mut self, took: Nanos) {
        // The bound itself belongs to its bucket.
        let below = took.saturating_sub(1);
        let bucket = match below >> FIRST_BIT {
            0 => 0,
            above => {
                let octave = above.ilog2();
                let step = below >> (FIRST_BIT + octave - STEP_BITS);
                // The first bit of a step is the octave's.
                1 + ((octave as usize) << STEP_BITS) + (step as usize - (1 << STEP_BITS))
            }
        };
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
            0 => (1_u64 << FIRST_BIT) as f64 / 1e9,
            _ => {
                let (octave, step) =
                    ((i as u64 - 1) >> STEP_BITS, (i as u64 - 1) % (1 << STEP_BITS));
                let steps = (1 << STEP_BITS) + step + 1;
                (steps << (u64::from(FIRST_BIT - STEP_BITS) + octave)) as f64 / 1e9
            }
        };
        self.counts.iter().enumerate().map(move |(i, count)| (bound(i), *count))
    }
}

impl std::ops::AddAssign<&Histogram> for Histogram {
    fn add_assign(&mut self, other: &Histogram) {
        self.counts.iter_mut().zip(other.counts.iter()).for_each(|(a, b)| *a += b);
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
        for took in [
            0,
            1,
            8191,
            8192,
            8193,
            9216,
            9217,
            16383,
            16384,
            16385,
            1_000_000,
            17_179_869_184,
            u64::MAX,
        ] {
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

    #[test]
    fn an_octave_has_eight_bounds() {
        let bounds: Vec<f64> = Histogram::default().buckets().map(|(bound, _)| bound).collect();
        assert_eq!(bounds.len(), BOUNDS + 1);
        assert!(bounds.is_sorted_by(|a, b| a < b));
        let octave: Vec<u64> =
            bounds[..9].iter().map(|bound| (bound * 1e9).round() as u64).collect();
        assert_eq!(octave, [8192, 9216, 10240, 11264, 12288, 13312, 14336, 15360, 16384]);
        assert_eq!(bounds[BOUNDS - 1], 17.179_869_184);
    }
}
