// SPDX-License-Identifier: MIT OR Apache-2.0
//! What clients of hosts that share an origin saw.
//!
//! `early` and `late` are the groups of hosts. Of each: `hours`, an object for each of the paper's hours from the group's first
//! on; the hit ratio of each sample; and `warm_up_seconds`, until the hit ratio of a sample was nine tenths of that of the last
//! hour. Rates are of all hosts of the group together. Amounts are of the whole run and all hosts.

use larder_core::desk::Requests;
use larder_core::exec::SECOND;
use larder_core::stats::Counters;
use larder_sim::world::World;
use serde_json::{Value as Json, json};

use super::super::{SAMPLES_PER_HOUR, Setup};
use crate::latencies::Latencies;
use crate::load::clients::{Seen, What};

/// Of the hit ratio of the last hour: a warm cache.
const WARM: f64 = 0.9;

/// What the clients of a group saw.
#[derive(Default)]
pub(super) struct Tally {
    samples: Vec<Counts>,
    reads: Vec<Latencies>,
}

#[derive(Clone, Copy, Default)]
struct Counts {
    reads: u64,
    hits: u64,
    transactions: u64,
}

impl Counts {
    fn hit_ratio(&self) -> f64 {
        self.hits as f64 / self.reads.max(1) as f64
    }
}

impl Tally {
    /// A sample begins, and with it an hour or not.
    pub(super) fn sample(&mut self, hour_begins: bool) {
        self.samples.push(Counts::default());
        if hour_begins {
            self.reads.push(Latencies::new());
        }
    }

    /// One more thing ended.
    pub(super) fn add(&mut self, seen: Seen) {
        let (Some(sample), Some(reads)) = (self.samples.last_mut(), self.reads.last_mut()) else {
            return;
        };
        match seen.what {
            What::Read { hit } => {
                sample.reads += 1;
                sample.hits += u64::from(hit);
                reads.record(seen.took);
            }
            What::Write => {}
            What::Transaction => sample.transactions += 1,
        }
    }

    fn hours(&self) -> impl DoubleEndedIterator<Item = (Counts, &Latencies)> {
        let sum = |samples: &[Counts]| {
            samples.iter().fold(Counts::default(), |sum, sample| Counts {
                reads: sum.reads + sample.reads,
                hits: sum.hits + sample.hits,
                transactions: sum.transactions + sample.transactions,
            })
        };
        let hours: Vec<Counts> = self.samples.chunks(SAMPLES_PER_HOUR as usize).map(sum).collect();
        hours.into_iter().zip(&self.reads)
    }

    /// Samples until the cache was warm, the first warm one included.
    fn warm_up_samples(&self) -> Option<usize> {
        let (last, _) = self.hours().next_back()?;
        let warm = WARM * last.hit_ratio();
        let is_warm = |sample: &Counts| sample.hits > 0 && sample.hit_ratio() >= warm;
        Some(self.samples.iter().position(is_warm)? + 1)
    }

    fn json(&self, setup: &Setup) -> Json {
        let seconds = |samples: u64| (samples * setup.sample) as f64 / SECOND as f64;
        let hour = |(counts, reads): (Counts, &Latencies)| {
            json!({
                "hit_ratio": counts.hit_ratio(),
                "reads": counts.reads,
                "read_us_mean": reads.mean_us(),
                "read_us_p50": reads.quantile_us(0.5),
                "read_us_p99": reads.quantile_us(0.99),
                "transactions_per_second": counts.transactions as f64 / seconds(SAMPLES_PER_HOUR),
            })
        };
        json!({
            "hours": self.hours().map(hour).collect::<Vec<_>>(),
            "hit_ratio": self.samples.iter().map(Counts::hit_ratio).collect::<Vec<_>>(),
            "warm_up_seconds": self.warm_up_samples().map(|samples| seconds(samples as u64)),
        })
    }
}

pub(super) fn json(
    (setup, count): (&Setup, u32),
    early: &Tally,
    late: Option<&Tally>,
    worlds: &[&World],
) -> Json {
    let (mut requests, mut counters) = (Requests::default(), Counters::default());
    for world in worlds {
        requests += world.requests();
        counters += world.counters();
    }
    json!({
        "hosts": count,
        "early": early.json(setup),
        "late": late.map(|late| late.json(setup)),
        "sample_seconds": setup.sample as f64 / SECOND as f64,
        "reads": requests.reads,
        "read_hits": requests.read_hits,
        "writes": requests.writes,
        "flash_write_bytes": counters.flash_write_bytes,
        "origin_read_bytes": counters.origin_read_bytes,
        "origin_write_bytes": counters.origin_write_bytes,
        "population_bytes": counters.population_bytes,
        "populations": counters.populations,
    })
}
