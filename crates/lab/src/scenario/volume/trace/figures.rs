// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a replayed trace comes to: numbers whose names say their units.
//!
//! `samples` are of the whole run, a hundredth of the requests each, and so are `late_requests` and
//! `late_seconds_most`; `run_flash_write_bytes` is of the whole run; all else is of what comes after the warm-up.
//! `warm_up_seconds` is how long it took from the beginning until a sample had 90 % of the hit ratio of the last eighth
//! of the run. What there is none of is null.
//! `origin_reads` and `origin_writes` are operations that the origin carried out, for whatever reason.
//! A latency of more than two minutes counts as that in percentiles, and in full in means.

use larder_core::config::Memory;
use serde_json::{Value as Json, json};

use super::super::{Setup, System};
use super::tally::{Sample, Side, Tally};
use crate::load::replay::Pace;

/// Of a hundred requests, more than this many that came late mean that it cannot keep up.
const LATE_PERCENT: u64 = 1;

fn mean(sum: u64, count: u64) -> Option<f64> {
    (count > 0).then(|| sum as f64 / count as f64)
}

/// What was asked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Touched {
    /// Bytes of all different pages.
    pub(super) page_bytes: u64,
    /// Bytes of all different units.
    pub(super) unit_bytes: u64,
}

/// Of a run, with what was asked for, where it was counted.
pub(super) fn json(
    setup: &Setup,
    pace: Pace,
    tally: &Tally,
    memory: &Memory,
    touched: Option<Touched>,
) -> Json {
    let (from, to) = (&tally.from, &tally.to);
    let since =
        |of: fn(&larder_core::stats::Counters) -> u64| of(&to.counters) - of(&from.counters);
    let cached = matches!(setup.system, System::Preset(_));
    let wear = to.wear.map(|wear| wear.since(&from.wear.unwrap_or_default()));
    let each = |of: fn(&Sample) -> Json| tally.samples.iter().map(of).collect::<Json>();
    let mut all = json!({
        "requests": tally.answered,
        "warm_up_requests": tally.warm_up(),
        "pace": if let Pace::AtTimes { .. } = pace { "times" } else { "outstanding" },
        "keeps_up": tally.late * 100 <= tally.answered * LATE_PERCENT,
        "late_requests": tally.late,
        "late_seconds_most": tally.latest as f64 / 1e9,
        "span_seconds": (to.at - from.at) as f64 / 1e9,
        "request_us_p99": tally.quantile_us(0.99),
        "requests_per_second": tally.per_second(),
        "warm_up_seconds": tally.warm_up_seconds(),
        "run_flash_write_bytes": to.counters.flash_write_bytes,
        "hit_ratio": mean(tally.reads.hits, tally.reads.took.count()),
        "origin_bytes": setup.data_bytes,
        "footprint_bytes": touched.map(|touched| touched.page_bytes),
        "touched_unit_bytes": touched.map(|touched| touched.unit_bytes),
        "flash_bytes": cached.then_some(setup.flash_bytes),
        "memory_bytes": cached.then(|| memory.worst_bytes()),
        "flash_read_bytes": since(|c| c.flash_read_bytes),
        "flash_write_bytes": since(|c| c.flash_write_bytes),
        "origin_read_bytes": since(|c| c.origin_read_bytes),
        "origin_write_bytes": since(|c| c.origin_write_bytes),
        "origin_reads": to.origin.0 - from.origin.0,
        "origin_writes": to.origin.1 - from.origin.1,
        "population_bytes": since(|c| c.population_bytes),
        "populations": since(|c| c.populations),
        "evictions": since(|c| c.evictions),
        "write_arounds": since(|c| c.write_arounds),
        "write_back_bytes": since(|c| c.write_back_bytes),
        "updates": since(|c| c.updates),
        "write_amplification": wear.map(|wear| wear.write_amplification()),
        "samples": {
            "at_seconds": each(|s| json!(s.end as f64 / 1e9)),
            "hit_ratio": each(|s| json!(mean(s.hits, s.reads))),
            "read_us_mean": each(|s| json!(mean(s.read_ns, s.reads).map(|ns| ns / 1e3))),
        },
    });
    if let Json::Object(map) = &mut all {
        map.extend(side("read", &tally.reads));
        map.extend(side("write", &tally.writes));
    }
    all
}

/// Requests of one kind.
fn side(name: &str, side: &Side) -> [(String, Json); 7] {
    let count = side.took.count();
    let us = |value: f64| (count > 0).then_some(value);
    [
        (format!("{name}s"), json!(count)),
        (format!("{name}_hits"), json!(side.hits)),
        (format!("{name}_bytes"), json!(side.bytes)),
        (format!("{name}_us_mean"), json!(mean(side.took_ns, count).map(|ns| ns / 1e3))),
        (format!("{name}_us_p50"), json!(us(side.took.quantile_us(0.5)))),
        (format!("{name}_us_p95"), json!(us(side.took.quantile_us(0.95)))),
        (format!("{name}_us_p99"), json!(us(side.took.quantile_us(0.99)))),
    ]
}
