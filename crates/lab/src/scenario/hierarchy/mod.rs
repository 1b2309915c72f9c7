// SPDX-License-Identifier: MIT OR Apache-2.0
//! Scenarios of the kind `hierarchy`: RAM over flash over a network over a filer
//! ([`crate::hierarchy`]), under Holland's load or a trace.

mod settings;
mod trace;

use anyhow::{Result, bail};
use serde_json::{Value as Json, json};

pub use self::settings::Settings;
use self::trace::Replay;
use crate::hierarchy::{Counts, Seen, Source, Spec, run as simulate};
use crate::latencies::Latencies;
use crate::load::holland::Holland;

/// Runs a point; its counts and latencies, after the warm-up.
///
/// # Errors
/// If the settings are bad or the trace cannot be read.
pub fn run(settings: &Settings) -> Result<Json> {
    let (spec, load) = settings.spec().map_err(anyhow::Error::msg)?;
    if let Some(path) = &settings.load.trace {
        let mut replay = Replay::open(path)?;
        let result = measure(&spec, &mut replay);
        replay.ended()?;
        return result;
    }
    measure(&spec, &mut Holland::new(load))
}

fn measure(spec: &Spec, source: &mut impl Source) -> Result<Json> {
    let (mut reads, mut writes) = (Latencies::new(), Latencies::new());
    let counts = simulate(spec, source, |seen: Seen| {
        if seen.write { writes.record(seen.took) } else { reads.record(seen.took) }
    });
    if counts.reads + counts.writes == 0 {
        bail!("the load has no requests after its warm-up; accepted: at least one");
    }
    Ok(figures(&counts, &reads, &writes))
}

fn figures(counts: &Counts, reads: &Latencies, writes: &Latencies) -> Json {
    let part = |of: u64, all: u64| of as f64 / all.max(1) as f64;
    let us = |ns: u64, count: u64| part(ns, count) / 1e3;
    json!({
        "reads": counts.reads,
        "writes": counts.writes,
        "ram_hit_ratio": part(counts.ram_hits, counts.reads),
        "flash_hit_ratio": part(counts.flash_hits, counts.reads),
        "read_us": us(counts.read_ns, counts.reads),
        "read_p50_us": reads.quantile_us(0.5),
        "read_p95_us": reads.quantile_us(0.95),
        "read_p99_us": reads.quantile_us(0.99),
        "write_us": us(counts.write_ns, counts.writes),
        "write_p50_us": writes.quantile_us(0.5),
        "write_p95_us": writes.quantile_us(0.95),
        "write_p99_us": writes.quantile_us(0.99),
        "invalidating_write_ratio": part(counts.invalidating, counts.writes),
        "flash_write_blocks": counts.flash_writes,
        "filer_write_blocks": counts.filer_writes,
        "dirty_victims": counts.dirty_victims,
        "flash_dirty_most_blocks": counts.flash_dirty_most,
        "packets": counts.packets,
        "span_seconds": counts.span_ns as f64 / 1e9,
        "blocks_per_second": (counts.reads + counts.writes) as f64 * 1e9 / counts.span_ns.max(1) as f64,
    })
}

#[cfg(test)]
mod tests;
