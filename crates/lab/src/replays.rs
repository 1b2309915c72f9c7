// SPDX-License-Identifier: MIT OR Apache-2.0
//! Requests replayed over devices behind a system: the points of which advice and the regret table are made.
//!
//! A point is a scenario of the kind `volume` with the load `trace`, as `larder sim --trace` runs it. What it came to
//! is read here, so that both state the same of a run.

use anyhow::{Context as _, Result};
use larder_trace::{Columns, Options};
use serde::Serialize;
use serde_json::Value as Json;
use toml::{Table, Value};

use crate::device;
use crate::hits::replay::Capacity;
use crate::scenario::{Scenario, run_point};

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
pub(crate) fn scenario(name: &str, (origin, flash): (&str, &str), seed: i64) -> Result<Scenario> {
    let mut scenario = Scenario::parse(name, "")?;
    for (key, value) in [
        ("kind", Value::from("volume")),
        ("load", "trace".into()),
        ("origin", device::setting(origin)?),
        ("flash", device::setting(flash)?),
        ("seed", seed.into()),
    ] {
        scenario.set(key, value)?;
    }
    Ok(scenario)
}

/// A trace behind a system, as flags or arguments describe it; what is not given has the scenario's default.
///
/// Why it becomes a scenario: flags, arguments and files then have the same settings and the same code that runs them.
#[derive(Clone, Debug, Default)]
pub struct Replayed {
    /// The trace.
    pub path: String,
    /// How it is read.
    pub read: Options,
    /// A preset, `no-cache` or `all-flash`.
    pub system: String,
    /// The slow device's profile, see [`device::setting`].
    pub origin: Option<String>,
    /// The flash device's profile.
    pub flash: Option<String>,
    /// The unit of caching.
    pub unit_bytes: Option<u64>,
    /// The replacement policy.
    pub replacement: Option<String>,
    /// Metadata that survives a crash.
    pub durability: Option<String>,
    /// Flash for cached data, in bytes or as a share of the trace's footprint.
    pub flash_size: Option<Capacity>,
    /// The recorded times are accelerated by this factor.
    pub speed: Option<f64>,
    /// Requests in flight, without recorded times.
    pub outstanding: Option<u32>,
    /// The share of the requests before counters start.
    pub warm_up_share: Option<f64>,
    /// Only the first requests.
    pub requests: Option<u32>,
    /// Of the devices.
    pub seed: Option<i64>,
}

impl Replayed {
    /// The scenario.
    ///
    /// # Errors
    /// A setting cannot be set, or a device file cannot be read.
    pub fn scenario(&self) -> Result<Scenario> {
        let text = |value: &Option<String>| value.as_deref().map(Value::from);
        let device = |profile: &Option<String>| profile.as_deref().map(device::setting).transpose();
        let (mut mib, mut share) = (None, None);
        match self.flash_size {
            Some(Capacity::Bytes(bytes)) => mib = Some(bytes as f64 / f64::from(1 << 20)),
            Some(Capacity::Millionths(of)) => share = Some(f64::from(of) / 1e6),
            None => {}
        }
        let settings = [
            ("kind", Some("volume".into())),
            ("load", Some("trace".into())),
            ("system", Some(self.system.as_str().into())),
            ("origin", device(&self.origin)?),
            ("flash", device(&self.flash)?),
            ("seed", self.seed.map(Value::Integer)),
            ("unit_kib", self.unit_bytes.map(|bytes| Value::Integer((bytes >> 10) as i64))),
            ("replacement", text(&self.replacement)),
            ("durability", text(&self.durability)),
            ("trace.path", Some(self.path.as_str().into())),
            ("trace.flash_mib", mib.map(Value::Float)),
            ("trace.flash_share", share.map(Value::Float)),
            ("trace.speed", self.speed.map(Value::Float)),
            ("trace.outstanding", self.outstanding.map(|n| i64::from(n).into())),
            ("trace.warm_up_share", self.warm_up_share.map(Value::Float)),
            ("trace.requests", self.requests.map(|n| i64::from(n).into())),
        ];
        let mut scenario = Scenario::parse(&self.path, "")?;
        for (key, value) in settings {
            if let Some(value) = value {
                scenario.set(key, value)?;
            }
        }
        for (key, value) in trace_keys(&self.read) {
            scenario.set(&format!("trace.{key}"), value)?;
        }
        Ok(scenario)
    }

    /// Runs it.
    ///
    /// # Errors
    /// A setting cannot be, or the trace is malformed.
    pub fn run(&self) -> Result<Json> {
        let point = self.scenario()?.points()?.pop().context("a scenario has a point")?;
        run_point(&point.settings)
    }
}

/// How a trace is read, as keys of a scenario's `[trace]`; defaults are left out.
fn trace_keys(read: &Options) -> Vec<(&'static str, Value)> {
    let (defaults, text) = (Options::default(), |value: &str| Value::from(value));
    let columns = (read.columns != Columns::default()).then(|| text(read.columns.text()));
    let keys = [
        ("format", read.format.map(|format| text(format.name()))),
        ("dev", read.dev.map(|dev| i64::from(dev).into())),
        ("columns", columns),
        ("event", (read.event != defaults.event).then(|| text(&read.event.to_string()))),
    ];
    keys.into_iter().filter_map(|(key, value)| Some((key, value?))).collect()
}

/// The `[trace]` of a scenario.
#[must_use]
pub fn trace_table(path: &str, read: &Options) -> Table {
    let keys = trace_keys(read).into_iter().map(|(key, value)| (key.to_owned(), value));
    keys.chain([("path".to_owned(), path.into())]).collect()
}
