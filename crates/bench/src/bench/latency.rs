// SPDX-License-Identifier: MIT OR Apache-2.0
//! Latencies of one run.

use hdrhistogram::Histogram;
use larder_core::exec::Nanos;

/// The longest that is told from longer ones: a minute.
const LONGEST: u64 = 60_000_000_000;

/// Latencies, to three digits.
#[derive(Clone)]
pub(super) struct Latencies(Histogram<u64>);

impl Latencies {
    pub(super) fn new() -> Self {
        match Histogram::new_with_bounds(1, LONGEST, 3) {
            Ok(histogram) => Self(histogram),
            Err(_) => unreachable!("the bounds are lawful"),
        }
    }

    pub(super) fn record(&mut self, span: Nanos) {
        self.0.saturating_record(span);
    }

    pub(super) fn count(&self) -> u64 {
        self.0.len()
    }

    /// The latency below which this share of requests stays, in microseconds.
    pub(super) fn quantile_us(&self, share: f64) -> f64 {
        self.0.value_at_quantile(share) as f64 / 1e3
    }
}
