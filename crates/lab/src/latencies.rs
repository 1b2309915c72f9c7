// SPDX-License-Identifier: MIT OR Apache-2.0
//! Latencies of one run.

use hdrhistogram::Histogram;
use larder_core::exec::Nanos;

/// The longest that is told from longer ones: a minute.
const LONGEST: u64 = 60_000_000_000;

/// Latencies, to three digits.
#[derive(Clone, Debug)]
pub struct Latencies(Histogram<u64>);

impl Latencies {
    /// None yet.
    #[must_use]
    pub fn new() -> Self {
        match Histogram::new_with_bounds(1, LONGEST, 3) {
            Ok(histogram) => Self(histogram),
            Err(_) => unreachable!("the bounds are lawful"),
        }
    }

    /// One more.
    pub fn record(&mut self, span: Nanos) {
        self.0.saturating_record(span);
    }

    /// Their mean, in microseconds.
    #[must_use]
    pub fn mean_us(&self) -> f64 {
        self.0.mean() / 1e3
    }

    /// How many.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// The latency below which this share of requests stays, in microseconds.
    #[must_use]
    pub fn quantile_us(&self, share: f64) -> f64 {
        self.0.value_at_quantile(share) as f64 / 1e3
    }
}

impl std::ops::AddAssign<&Self> for Latencies {
    fn add_assign(&mut self, other: &Self) {
        // Both have the same bounds.
        let added = self.0.add(&other.0);
        debug_assert!(added.is_ok());
    }
}

impl Default for Latencies {
    fn default() -> Self {
        Self::new()
    }
}
