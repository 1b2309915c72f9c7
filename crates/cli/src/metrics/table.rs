// SPDX-License-Identifier: MIT OR Apache-2.0
//! Every metric: its name, what it is, and where in a snapshot it stands.
//!
//! Invariants: names end in their unit; counters are written with `_total` behind it, as the
//! format wants. All have the label `volume`, except those of the build and of the process. Where several volumes share a cache, each metric is
//! either that of a volume or that of the cache, under its name, so that no sum counts anything twice; only state and alarm are
//! given for both.

use std::fmt::Error;

use larder_volume::{Stats, Status};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;

use super::process;

/// What a sample is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Of {
    /// A volume with a cache of its own.
    Both,
    /// A volume that shares its cache.
    Volume,
    /// A cache that volumes share.
    Cache,
}

/// A volume or cache; one that does not answer has no sample.
#[derive(Debug)]
pub(super) struct Named {
    pub name: String,
    pub of: Of,
    pub sample: Option<Sample>,
}

/// The status and the counters of one volume.
#[derive(Debug)]
pub(super) struct Sample {
    pub status: Status,
    pub stats: Stats,
}

/// All volumes and shared caches.
#[derive(Debug)]
pub(super) struct Snapshot(pub Vec<Named>);

/// Where a metric's value is.
enum Value {
    Counter(fn(&Sample) -> u64),
    Gauge(fn(&Sample) -> u64),
    /// 1 for the state it is in.
    State,
    /// Hit ratios by the size of flash.
    Curve,
    /// Seconds that requests took.
    Latency,
}

use Value::{Counter, Curve, Gauge, Latency, State};

/// States, as [`Stats::state`] names them.
const STATES: [&str; 7] =
    ["caching", "pass-through", "suspended", "detaching", "failed", "outside", "missing"];

/// Name, value, and a line of help.
const METRICS: &[(&str, Value, &str)] = &[
    ("larder_reads", Counter(|s| s.stats.requests.reads), "Client reads"),
    (
        "larder_read_hits",
        Counter(|s| s.stats.requests.read_hits),
        "Client reads served wholly from flash",
    ),
    ("larder_writes", Counter(|s| s.stats.requests.writes), "Client writes"),
    (
        "larder_write_hits",
        Counter(|s| s.stats.requests.write_hits),
        "Client writes all of whose units were cached",
    ),
    ("larder_read_bytes", Counter(|s| s.stats.requests.read_bytes), "Bytes of client reads"),
    ("larder_write_bytes", Counter(|s| s.stats.requests.write_bytes), "Bytes of client writes"),
    (
        "larder_flash_read_bytes",
        Counter(|s| s.stats.counters.flash_read_bytes),
        "Bytes read from flash",
    ),
    (
        "larder_flash_write_bytes",
        Counter(|s| s.stats.counters.flash_write_bytes),
        "Bytes written to flash",
    ),
    (
        "larder_origin_reads",
        Counter(|s| s.stats.counters.origin_reads),
        "Reads of the origin, population included",
    ),
    (
        "larder_origin_read_bytes",
        Counter(|s| s.stats.counters.origin_read_bytes),
        "Bytes read from the origin, population included",
    ),
    (
        "larder_origin_write_bytes",
        Counter(|s| s.stats.counters.origin_write_bytes),
        "Bytes written to the origin",
    ),
    (
        "larder_populations",
        Counter(|s| s.stats.counters.populations),
        "Units copied to flash, repairs of partly valid ones included",
    ),
    (
        "larder_population_bytes",
        Counter(|s| s.stats.counters.population_bytes),
        "Bytes read from the origin for population",
    ),
    (
        "larder_read_joins",
        Counter(|s| s.stats.counters.read_joins),
        "Reads answered from the memory of another read of the origin",
    ),
    (
        "larder_write_joins",
        Counter(|s| s.stats.counters.write_joins),
        "Writes answered with another write of the same range",
    ),
    (
        "larder_balanced_reads",
        Counter(|s| s.stats.counters.balanced_reads),
        "Client reads that hit and were served by the origin",
    ),
    (
        "larder_ram_reads",
        Counter(|s| s.stats.counters.ram_reads),
        "Client reads that hit and were served from the tier of RAM",
    ),
    (
        "larder_read_bypasses",
        Counter(|s| s.stats.counters.read_bypasses),
        "Client reads of sequential streams that bypassed the cache",
    ),
    ("larder_evictions", Counter(|s| s.stats.counters.evictions), "Units displaced from flash"),
    (
        "larder_write_arounds",
        Counter(|s| s.stats.counters.write_arounds),
        "Writes whose flash copy was left out because the write buffer was used up",
    ),
    (
        "larder_flash_errors",
        Counter(|s| s.stats.counters.flash_errors),
        "Failed operations on flash",
    ),
    (
        "larder_flash_timeouts",
        Counter(|s| s.stats.counters.flash_timeouts),
        "Operations on flash not answered in time",
    ),
    (
        "larder_damaged_pages",
        Counter(|s| s.stats.counters.damaged_pages),
        "Pages read from flash that did not match their checksum",
    ),
    (
        "larder_origin_errors",
        Counter(|s| s.stats.counters.origin_errors),
        "Failed operations on the origin",
    ),
    ("larder_units", Gauge(|s| s.stats.units_total), "Units that fit on flash"),
    ("larder_units_used", Gauge(|s| s.stats.units_used), "Units on flash"),
    (
        "larder_flash_write_budget_bytes",
        Gauge(|s| s.status.asked.flash_write_budget_bytes.unwrap_or(0)),
        "Bytes that may be written to flash in a day, 0 without a budget",
    ),
    (
        "larder_flash_write_forecast_bytes",
        Gauge(|s| s.status.asked.flash_write_forecast_bytes.unwrap_or(0)),
        "Bytes that are written to flash in a day, as since the start",
    ),
    ("larder_units_pinned", Gauge(|s| s.stats.units_pinned), "Units on flash that are pinned"),
    (
        "larder_units_dirty",
        Gauge(|s| s.stats.units_dirty),
        "Units with data that the origin does not have",
    ),
    (
        "larder_origin_behind_seconds",
        Gauge(|s| s.stats.origin_behind_ns.div_ceil(1_000_000_000)),
        "Age of the oldest change that the origin lacks, with --write-policy ordered",
    ),
    ("larder_unit_bytes", Gauge(|s| s.status.unit_bytes), "Size of a unit"),
    ("larder_origin_bytes", Gauge(|s| s.status.origin_bytes), "Size of the volume"),
    (
        "larder_memory_bytes",
        Gauge(|s| s.stats.memory_bytes),
        "Memory of maps, slots, bitmaps and buffers, with client_bytes and kept_bytes",
    ),
    (
        "larder_client_bytes",
        Gauge(|s| s.stats.client_bytes),
        "Memory of connections and of their requests in flight",
    ),
    ("larder_kept_bytes", Gauge(|s| s.stats.kept_bytes), "Buffers kept for reuse"),
    (
        "larder_memory_waits",
        Counter(|s| s.stats.memory_waits),
        "Client requests that waited for memory, of all volumes",
    ),
    ("larder_workers", Gauge(|s| u64::from(s.status.workers)), "Worker threads"),
    ("larder_connections", Gauge(|s| s.status.connections), "Connections of clients"),
    ("larder_files", Gauge(|s| s.status.files.len() as u64), "Files that are the volume, by FUSE"),
    ("larder_requests_open", Gauge(|s| s.status.requests_open), "Client requests in flight"),
    (
        "larder_alarm",
        Gauge(|s| u64::from(s.status.alarm.is_some())),
        "1 when an administrator should check the volume",
    ),
    ("larder_state", State, "1 for the state that the volume is in, 0 for the others"),
    (
        "larder_curve_hit_ratio",
        Curve,
        "Share of recent references that hit in an LRU cache of flash_bytes",
    ),
    ("larder_request_seconds", Latency, "Time from a client's request to its answer"),
];

impl Collector for Snapshot {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), Error> {
        let help = "The program that serves";
        let mut build = encoder.encode_descriptor("larder_build", help, None, MetricType::Info)?;
        build.encode_info(&[("version", env!("CARGO_PKG_VERSION"))])?;
        process::encode(&mut encoder)?;
        let help = "1 when the volume is served and answers";
        let mut up = encoder.encode_descriptor("larder_up", help, None, MetricType::Gauge)?;
        for Named { name, sample, .. } in &self.0 {
            let labels = [("volume", name.as_str())];
            up.encode_family(&labels)?.encode_gauge(&i64::from(sample.is_some()))?;
        }
        for (name, value, help) in METRICS {
            let kind = match value {
                Counter(_) => MetricType::Counter,
                Gauge(_) | State | Curve => MetricType::Gauge,
                Latency => MetricType::Histogram,
            };
            let mut metric = encoder.encode_descriptor(name, help, None, kind)?;
            for Named { name: volume, of, sample } in &self.0 {
                if let Some(sample) = sample.as_ref().filter(|_| applies(name, *of)) {
                    one(&mut metric, value, volume, sample)?;
                }
            }
        }
        Ok(())
    }
}

/// Metrics of volumes that share a cache. All others are those of the cache.
const OF_VOLUMES: &[&str] = &[
    "larder_reads",
    "larder_read_hits",
    "larder_writes",
    "larder_write_hits",
    "larder_read_bytes",
    "larder_write_bytes",
    "larder_units_used",
    "larder_units_dirty",
    "larder_origin_bytes",
    "larder_connections",
    "larder_files",
    "larder_requests_open",
    "larder_curve_hit_ratio",
    "larder_request_seconds",
];
/// Metrics of both.
const OF_BOTH: &[&str] = &["larder_alarm", "larder_state"];

fn applies(metric: &str, of: Of) -> bool {
    let is_volumes = OF_VOLUMES.contains(&metric);
    match of {
        Of::Both => true,
        _ if OF_BOTH.contains(&metric) => true,
        Of::Volume => is_volumes,
        Of::Cache => !is_volumes,
    }
}

/// One metric of one volume.
fn one(
    metric: &mut MetricEncoder<'_>,
    value: &Value,
    volume: &str,
    sample: &Sample,
) -> Result<(), Error> {
    let labels = [("volume", volume)];
    match value {
        Counter(get) => {
            metric.encode_family(&labels)?.encode_counter::<NoLabelSet, _, u64>(&get(sample), None)
        }
        Gauge(get) => metric.encode_family(&labels)?.encode_gauge(&get(sample)),
        State => STATES.iter().try_for_each(|state| {
            let labels = [("volume", volume), ("state", state)];
            metric.encode_family(&labels)?.encode_gauge(&u64::from(sample.stats.state == *state))
        }),
        Curve => sample.status.curve.iter().flat_map(|curve| &curve.points).try_for_each(|point| {
            let bytes = point.flash_bytes.to_string();
            let labels = [("volume", volume), ("flash_bytes", bytes.as_str())];
            metric.encode_family(&labels)?.encode_gauge(&point.hit_ratio)
        }),
        Latency => sample.stats.latencies.each().iter().try_for_each(|(request, histogram)| {
            let labels = [("volume", volume), ("request", request)];
            let buckets: Vec<(f64, u64)> = histogram.buckets().collect();
            metric.encode_family(&labels)?.encode_histogram::<NoLabelSet>(
                histogram.sum_seconds(),
                histogram.total(),
                &buckets,
                None,
            )
        }),
    }
}
