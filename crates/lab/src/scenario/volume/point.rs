// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a point of the kind `volume` gives: numbers whose names say their units.
//!
//! Of clients: `samples` has a value for each of the paper's minutes; `..._last_hour` and latencies
//! are of the paper's last hour; amounts are of the whole run, which begins with a cold cache. Of
//! passes: an object for each. Of a trace: see `trace/figures.rs`. Of several volumes: see `shared/figures.rs`;
//! of several hosts: see `hosts/tally.rs`.

use larder_core::config::Memory;
use larder_core::exec::SECOND;
use serde_json::{Value as Json, json};

use super::hosts::Hosts;
use super::settings::Load;
use super::shared::Arrangement;
use super::{Outcome, Settings, Setup, hosts, passes, run, shared, trace};

/// What settings describe.
enum Run {
    Hosts(Box<Hosts>),
    Volumes(Arrangement),
    One(Box<Setup>),
}

impl Run {
    fn of(settings: &Settings) -> Result<Self, String> {
        if let Some(hosts) = Hosts::of(settings)? {
            return Ok(Self::Hosts(Box::new(hosts)));
        }
        Ok(match Arrangement::of(settings)? {
            Some(volumes) => Self::Volumes(volumes),
            None => Self::One(Box::new(settings.setup()?)),
        })
    }
}

/// Whether these settings could be run.
///
/// # Errors
/// What cannot be, and what would be accepted.
pub fn look(settings: &Settings) -> Result<(), String> {
    Run::of(settings).map(drop)
}

/// Runs a point.
///
/// # Errors
/// If the settings are bad.
pub fn point(settings: &Settings) -> anyhow::Result<Json> {
    let setup = match Run::of(settings).map_err(anyhow::Error::msg)? {
        Run::Hosts(hosts) => return hosts::point(&hosts),
        Run::Volumes(volumes) => return shared::point(&volumes),
        Run::One(setup) => *setup,
    };
    match settings.load().map_err(anyhow::Error::msg)? {
        Load::Clients(_) => Ok(figures(&setup, &run(&setup)?)),
        Load::Trace(trace) => trace::point(setup, trace),
        Load::Passes => Ok(json!({ "passes": passes::run(&setup, &settings.passes)? })),
    }
}

fn figures(setup: &Setup, outcome: &Outcome) -> Json {
    let (end, hour) = (outcome.end(), outcome.last_hour());
    let (requests, counters) = (end.requests, end.counters);
    let memory = Memory::of(setup.data_bytes, setup.flash_bytes, &setup.choices, &setup.limits, 1);
    json!({
        "hit_ratio_last_hour": outcome.final_hit_ratio(),
        "transactions_per_second_last_hour": outcome.rate(hour, outcome.span()),
        "transaction_us_mean": outcome.transactions.mean_us(),
        "transaction_us_p50": outcome.transactions.quantile_us(0.5),
        "transaction_us_p95": outcome.transactions.quantile_us(0.95),
        "transaction_us_p99": outcome.transactions.quantile_us(0.99),
        "read_us_mean": outcome.reads.mean_us(),
        "transactions": end.transactions,
        "reads": requests.reads,
        "read_hits": requests.read_hits,
        "writes": requests.writes,
        "write_hits": requests.write_hits,
        "flash_read_bytes": counters.flash_read_bytes,
        "flash_write_bytes": counters.flash_write_bytes,
        "flash_bytes_per_transaction": outcome.flash_bytes_each(),
        "origin_read_bytes": counters.origin_read_bytes,
        "origin_write_bytes": counters.origin_write_bytes,
        "balanced_reads": counters.balanced_reads,
        "read_bypasses": counters.read_bypasses,
        "population_bytes": counters.population_bytes,
        "populations": counters.populations,
        "evictions": counters.evictions,
        "write_arounds": counters.write_arounds,
        "memory_bytes": memory.worst_bytes(),
        "sample_seconds": setup.sample as f64 / SECOND as f64,
        "samples": {
            "hit_ratio": outcome.each(Outcome::hit_ratio),
            "transactions_per_second": outcome.each(Outcome::rate),
        },
    })
}
