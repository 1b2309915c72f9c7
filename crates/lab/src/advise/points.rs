// SPDX-License-Identifier: MIT OR Apache-2.0
//! The trace with full timing: without a cache, and behind each candidate at each size.
//!
//! Each is a point of a scenario of the kind `volume` with the load `trace`, as `larder sim --trace`
//! runs it.

use anyhow::{Context, Result};
use larder_trace::Trace;
use serde::Serialize;
use serde_json::Value as Json;
use toml::{Table, Value};

use super::endurance::Endurance;
use super::knee::Means;
use crate::scenario::volume::OUTSTANDING;
use crate::scenario::{Line, Scenario, Sweep, sweep};

/// Requests of a point, unless more are asked for.
pub const REQUESTS: i64 = 1_000_000;
pub(super) const MIB: u64 = 1 << 20;
/// Sizes, each half of the next.
const SIZES: u32 = 8;
/// No smaller cache is tried.
const LEAST_BYTES: u64 = 8 * MIB;
/// Periodic updates in the time of the trace, and the longest time between two (the preset's own).
const UPDATES: f64 = 8.0;
const LONGEST_SECONDS: f64 = 3600.0;

/// What is asked.
#[derive(Clone, Debug)]
pub struct Asked {
    /// What the trace is called in messages.
    pub name: String,
    /// The trace.
    pub trace: Trace,
    /// The same as the `[trace]` of a scenario.
    pub trace_keys: Table,
    /// The origin's device profile.
    pub origin: String,
    /// The flash device's.
    pub flash: String,
    /// Requests of a point, at most.
    pub requests: i64,
    /// What the flash device is rated for; without, by default.
    pub endurance: Option<Endurance>,
    /// Of the devices.
    pub seed: i64,
    /// Threads; one for every processor without.
    pub jobs: Option<usize>,
}

/// A system at a size.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Point {
    /// A preset, or `no-cache`.
    pub system: String,
    /// Flash for cached data.
    pub flash_bytes: u64,
    /// Of reads; null without any.
    pub hit_ratio: Option<f64>,
    /// Of reads; null without any.
    pub read_us_mean: Option<f64>,
    /// Of reads; null without any.
    pub read_us_p99: Option<f64>,
    /// Of writes; null without any.
    pub write_us_mean: Option<f64>,
    /// Of both.
    pub request_us_mean: f64,
    /// Operations that the origin carried out, of any kind.
    pub origin_operations: u64,
    /// Bytes written to flash.
    pub flash_write_bytes: u64,
    /// What the drive programs for each of them, where its model knows.
    pub write_amplification: Option<f64>,
    /// The time over which was counted.
    pub span_seconds: f64,
    /// Memory of the cache.
    pub memory_bytes: u64,
}

impl Point {
    fn of(system: &str, result: &Json) -> Self {
        let number = |key: &str| result[key].as_f64();
        let count = |key: &str| result[key].as_u64().unwrap_or(0);
        let all = |kind: &str| {
            let mean = number(&format!("{kind}_us_mean")).unwrap_or(0.0);
            mean * count(&format!("{kind}s")) as f64
        };
        let requests = count("reads") + count("writes");
        Self {
            system: system.to_owned(),
            flash_bytes: count("flash_bytes"),
            hit_ratio: number("hit_ratio"),
            read_us_mean: number("read_us_mean"),
            read_us_p99: number("read_us_p99"),
            write_us_mean: number("write_us_mean"),
            request_us_mean: (all("read") + all("write")) / requests.max(1) as f64,
            origin_operations: count("origin_reads") + count("origin_writes"),
            flash_write_bytes: count("flash_write_bytes"),
            write_amplification: number("write_amplification"),
            span_seconds: number("span_seconds").unwrap_or(0.0),
            memory_bytes: count("memory_bytes"),
        }
    }

    /// The latency that counts: of reads, or of writes where there are no reads.
    #[must_use]
    pub fn us(&self) -> f64 {
        self.read_us_mean.or(self.write_us_mean).unwrap_or(0.0)
    }

    /// The latencies by which a cache pays or not.
    pub(super) fn means(&self) -> Means {
        Means { us: self.us(), request_us: self.request_us_mean }
    }
}

/// The origin alone, and what the other points need to know.
pub(super) struct Alone {
    pub(super) point: Point,
    /// Requests that were replayed.
    pub(super) requests: u64,
    /// Of those that were counted, writes.
    pub(super) writes: u64,
    pub(super) origin_bytes: u64,
    /// Bytes of all units that are asked for.
    pub(super) touched_bytes: u64,
    /// From the first request to the last answer.
    pub(super) seconds: f64,
    /// The recorded times are kept.
    pub(super) timed: bool,
    /// They could not be kept.
    pub(super) too_slow: bool,
    scenario: Scenario,
}

/// Runs the origin alone; where it cannot keep up with the recorded times, once more without them.
pub(super) fn alone(asked: &Asked) -> Result<Alone> {
    let mut scenario = Scenario::parse(&asked.name, "")?;
    for (key, value) in [
        ("kind", Value::from("volume")),
        ("load", "trace".into()),
        ("system", "no-cache".into()),
        ("origin", asked.origin.as_str().into()),
        ("flash", asked.flash.as_str().into()),
        ("seed", asked.seed.into()),
        ("trace", Value::Table(asked.trace_keys.clone())),
        ("trace.requests", asked.requests.into()),
    ] {
        scenario.set(key, value)?;
    }
    scenario.name = format!("{}: origin alone", asked.name);
    let mut line = one(asked, &scenario)?;
    let too_slow = line.result["keeps_up"] == false;
    if too_slow {
        scenario.set("trace.outstanding", i64::from(OUTSTANDING).into())?;
        scenario.name = format!("{}: origin alone, without recorded times", asked.name);
        line = one(asked, &scenario)?;
    }
    let result = &line.result;
    let count = |key: &str| result[key].as_u64().unwrap_or(0);
    let ends = result["samples"]["at_seconds"].as_array();
    Ok(Alone {
        point: Point::of("no-cache", result),
        requests: count("requests"),
        writes: count("writes"),
        origin_bytes: count("origin_bytes"),
        touched_bytes: count("touched_unit_bytes"),
        seconds: ends.and_then(|ends| ends.last()?.as_f64()).unwrap_or(0.0),
        timed: result["pace"] == "times",
        too_slow,
        scenario,
    })
}

/// A run that also counts the units.
fn one(asked: &Asked, scenario: &Scenario) -> Result<Line> {
    let mut scenario = scenario.clone();
    scenario.set("trace.flash_share", 1.0.into())?;
    run(asked, &scenario)?.pop().context("a scenario has a point")
}

fn run(asked: &Asked, scenario: &Scenario) -> Result<Vec<Line>> {
    sweep(scenario, Sweep { file: None, jobs: asked.jobs, progress: true })
}

impl Alone {
    /// Seconds between two updates of a cache that has them.
    pub(super) fn update_seconds(&self) -> i64 {
        (self.seconds / UPDATES).floor().clamp(1.0, LONGEST_SECONDS) as i64
    }

    /// Runs a preset at every size.
    pub(super) fn behind(
        &self,
        asked: &Asked,
        preset: &str,
        settings: &Table,
    ) -> Result<Vec<Point>> {
        let mut scenario = self.scenario.clone();
        scenario.set("system", preset.into())?;
        scenario.name = format!("{}: {preset}", asked.name);
        for (key, value) in settings {
            scenario.set(key, value.clone())?;
        }
        let mib = sizes(self.touched_bytes).into_iter().map(|b| Value::Integer((b / MIB) as i64));
        scenario.vary("trace.flash_mib", mib.collect());
        Ok(run(asked, &scenario)?.iter().map(|line| Point::of(preset, &line.result)).collect())
    }
}

/// Sizes to try, rising: all that is asked for, and halves of it in whole MiB.
fn sizes(touched_bytes: u64) -> Vec<u64> {
    let all = touched_bytes.next_multiple_of(MIB).max(LEAST_BYTES);
    let halves = (0..SIZES).rev().map(|n| (all >> n) / MIB * MIB);
    halves.filter(|bytes| *bytes >= LEAST_BYTES).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_halves_and_none_is_tiny() {
        let mib = |bytes: u64| sizes(bytes).iter().map(|b| b / MIB).collect::<Vec<_>>();
        assert_eq!(mib(4096 * MIB), [32, 64, 128, 256, 512, 1024, 2048, 4096]);
        assert_eq!(mib(100 * MIB - 5), [12, 25, 50, 100]);
        assert_eq!(mib(MIB), [8]);
        assert_eq!(mib(0), [8]);
    }
}
