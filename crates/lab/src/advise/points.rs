// SPDX-License-Identifier: MIT OR Apache-2.0
//! The trace with full timing: without a cache, and behind each candidate at each size.
//!
//! Each is a point of [`replays`](crate::replays).

use anyhow::{Context, Result};
use larder_trace::Trace;
use toml::{Table, Value};

use super::endurance::Endurance;
use super::knee::Means;
use crate::replays::{self, Point};
use crate::scenario::volume::OUTSTANDING;
use crate::scenario::{Line, Scenario, Sweep, sweep};

/// Requests of a point, unless more are asked for.
pub const REQUESTS: i64 = 1_000_000;
pub(super) const MIB: u64 = 1 << 20;
/// Sizes, each half of the next.
const SIZES: u32 = 8;
/// No smaller cache is tried.
const LEAST_BYTES: u64 = 8 * MIB;

/// What is asked.
#[derive(Clone, Debug)]
pub struct Asked {
    /// What the trace is called in messages.
    pub name: String,
    /// The trace.
    pub trace: Trace,
    /// The same as the `[trace]` of a scenario.
    pub trace_keys: Table,
    /// The origin's device profile, see [`crate::device::setting`].
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

/// The latencies by which a cache pays or not.
pub(super) fn means(point: &Point) -> Means {
    Means { us: point.us(), request_us: point.request_us_mean }
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
    let devices = (asked.origin.as_str(), asked.flash.as_str());
    let mut scenario = replays::scenario(&asked.name, devices, asked.seed)?;
    for (key, value) in [
        ("system", "no-cache".into()),
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
    Ok(Alone {
        point: Point::of("no-cache", result),
        requests: count("requests"),
        writes: count("writes"),
        origin_bytes: count("origin_bytes"),
        touched_bytes: count("touched_unit_bytes"),
        seconds: replays::seconds(result),
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
    sweep(scenario, Sweep { file: None, jobs: asked.jobs, progress: true, shard: None })
}

impl Alone {
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
