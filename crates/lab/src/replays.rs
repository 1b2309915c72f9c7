// SPDX-License-Identifier: MIT OR Apache-2.0
//! Requests replayed over devices behind a system: the points of which advice and the regret table are made.
//!
//! A point is a scenario of the kind `volume` with the load `trace`, as `larder sim --trace` runs it. What it came to
//! is read here, so that both state the same of a run.

use serde::Serialize;
use serde_json::Value as Json;
use toml::Value;

use crate::scenario::{BadScenario, Scenario};

/// Periodic updates in the time of a run, and the longest time between two (the preset's own).
const UPDATES: f64 = 8.0;
const LONGEST_SECONDS: f64 = 3600.0;

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
    /// Of both; null without any.
    pub request_us_p99: Option<f64>,
    /// Answered requests a second.
    pub requests_per_second: f64,
    /// From a cold cache until a hundredth of the run had 90 % of the hit ratio of its last eighth; null without hits.
    pub warm_up_seconds: Option<f64>,
    /// Operations that the origin carried out, of any kind.
    pub origin_operations: u64,
    /// Bytes written to flash.
    pub flash_write_bytes: u64,
    /// The same of the whole run, which begins with a cold cache.
    pub run_flash_write_bytes: u64,
    /// What the drive programs for each of them, where its model knows.
    pub write_amplification: Option<f64>,
    /// The time over which was counted.
    pub span_seconds: f64,
    /// Memory of the cache.
    pub memory_bytes: u64,
}

impl Point {
    /// Of a system, from what its run came to.
    pub(crate) fn of(system: &str, result: &Json) -> Self {
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
            request_us_p99: number("request_us_p99"),
            requests_per_second: number("requests_per_second").unwrap_or(0.0),
            warm_up_seconds: number("warm_up_seconds"),
            origin_operations: count("origin_reads") + count("origin_writes"),
            flash_write_bytes: count("flash_write_bytes"),
            run_flash_write_bytes: count("run_flash_write_bytes"),
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
}

/// When the last request of a run was answered, in seconds.
pub(crate) fn seconds(result: &Json) -> f64 {
    let ends = result["samples"]["at_seconds"].as_array();
    ends.and_then(|ends| ends.last()?.as_f64()).unwrap_or(0.0)
}

/// Seconds between two updates of a cache that has them, where the origin alone takes so long.
pub(crate) fn update_seconds(alone_seconds: f64) -> i64 {
    (alone_seconds / UPDATES).floor().clamp(1.0, LONGEST_SECONDS) as i64
}

/// A run over these devices; system, requests and size are still to be set.
pub(crate) fn scenario(
    name: &str,
    (origin, flash): (&str, &str),
    seed: i64,
) -> Result<Scenario, BadScenario> {
    let mut scenario = Scenario::parse(name, "")?;
    for (key, value) in [
        ("kind", Value::from("volume")),
        ("load", "trace".into()),
        ("origin", origin.into()),
        ("flash", flash.into()),
        ("seed", seed.into()),
    ] {
        scenario.set(key, value)?;
    }
    Ok(scenario)
}
