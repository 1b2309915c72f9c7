// SPDX-License-Identifier: MIT OR Apache-2.0
//! Latencies of one run, in virtual or in real time.

use hdrhistogram::Histogram;
use larder_core::exec::Nanos;

/// Longer ones count as about this one: two minutes.
const LONGEST: u64 = 120_000_000_000;

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

    /// The latency that this share of requests does not exceed, in microseconds; 0 without any.
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

#[cfg(test)]
mod tests {
    use super::{LONGEST, Latencies};

    #[test]
    fn a_latency_without_bounds_is_kept_within() {
        let mut latencies = Latencies::new();
        assert!(latencies.quantile_us(0.99).abs() < 1e-9);
        latencies.record(0);
        latencies.record(u64::MAX);
        assert_eq!(latencies.count(), 2);
        let longest_us = LONGEST as f64 / 1e3;
        assert!((longest_us..1.2 * longest_us).contains(&latencies.quantile_us(1.0)));
    }

    #[test]
    fn latencies_of_two_runs_add_up() {
        let (mut one, mut other) = (Latencies::new(), Latencies::new());
        one.record(1_000);
        other.record(3_000);
        one += &other;
        assert_eq!(one.count(), 2);
        // The histogram keeps three digits.
        assert!((one.mean_us() - 2.0).abs() < 0.002, "{}", one.mean_us());
    }
}
