// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a run found.

use larder_core::desk::Requests;
use larder_core::exec::{Nanos, SECOND};
use larder_core::stats::Counters;

use super::SAMPLES_PER_HOUR;
use crate::latencies::Latencies;

/// What was counted up to a moment.
#[derive(Clone, Copy, Debug, Default)]
pub struct Totals {
    /// Transactions that ended.
    pub transactions: u64,
    /// Requests of clients.
    pub requests: Requests,
    /// What the engine did for them.
    pub counters: Counters,
}

/// What a run found.
pub struct Outcome {
    /// The span of a sample.
    pub sample: Nanos,
    /// At the end of each sample, from time zero on.
    pub totals: Vec<Totals>,
    /// Reads of the last part.
    pub reads: Latencies,
    /// Transactions of the last part.
    pub transactions: Latencies,
}

impl Outcome {
    /// What was counted at this moment.
    fn at(&self, at: Nanos) -> Totals {
        self.totals.get((at / self.sample) as usize).copied().unwrap_or_default()
    }

    /// What was counted in all.
    #[must_use]
    pub fn end(&self) -> Totals {
        self.totals.last().copied().unwrap_or_default()
    }

    /// How long it was.
    #[must_use]
    pub fn span(&self) -> Nanos {
        (self.totals.len() as u64 - 1) * self.sample
    }

    /// The beginning of the last of the paper's hours.
    #[must_use]
    pub fn last_hour(&self) -> Nanos {
        self.span().saturating_sub(SAMPLES_PER_HOUR * self.sample)
    }

    /// The hit ratio between two moments.
    #[must_use]
    pub fn hit_ratio(&self, from: Nanos, to: Nanos) -> f64 {
        let (from, to) = (self.at(from).requests, self.at(to).requests);
        (to.read_hits - from.read_hits) as f64 / (to.reads - from.reads).max(1) as f64
    }

    /// Transactions a second between two moments.
    #[must_use]
    pub fn rate(&self, from: Nanos, to: Nanos) -> f64 {
        let count = self.at(to).transactions - self.at(from).transactions;
        count as f64 * SECOND as f64 / (to - from).max(1) as f64
    }

    /// A figure of every sample, by its beginning and end.
    pub fn each(&self, figure: impl Fn(&Self, Nanos, Nanos) -> f64) -> Vec<f64> {
        let samples = 1..self.totals.len() as u64;
        samples.map(|i| figure(self, (i - 1) * self.sample, i * self.sample)).collect()
    }

    /// The hit ratio of the last hour.
    #[must_use]
    pub fn final_hit_ratio(&self) -> f64 {
        self.hit_ratio(self.last_hour(), self.span())
    }

    /// Bytes written to flash for each transaction, over the whole run (SCE 4.6).
    #[must_use]
    pub fn flash_bytes_each(&self) -> f64 {
        let end = self.end();
        end.counters.flash_write_bytes as f64 / end.transactions.max(1) as f64
    }
}
