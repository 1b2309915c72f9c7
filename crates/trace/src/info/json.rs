// SPDX-License-Identifier: MIT OR Apache-2.0
//! The statistics of a trace as JSON, for `larder trace info --json` and for the Python package.

use serde_json::{Value, json};

use super::Info;
use super::curve::percent_of;
use super::totals::Traffic;
use crate::record::PAGE_BYTES;

/// Shares of requests or reuses.
pub const QUANTILES: [(&str, f64); 5] =
    [("p10", 0.1), ("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p100", 1.0)];

fn share(part: u64, whole: u64) -> f64 {
    part as f64 / whole.max(1) as f64
}

fn traffic(t: &Traffic) -> Value {
    json!({
        "requests": t.requests,
        "reads": t.reads,
        "writes": t.writes,
        "write_ratio": share(t.writes, t.requests),
        "request_bytes": t.bytes,
        "write_bytes": t.write_bytes,
        "accesses": t.accesses,
        "sequential_ratio": share(t.follows, t.requests),
        "near_sequential_ratio": share(t.follows_recent, t.requests),
    })
}

/// The statistics, as docs/traces.md lists them.
#[must_use]
pub fn json(found: &Info) -> Value {
    let (totals, reuse) = (&found.totals, &found.reuse);
    let timed = totals.duration_us() > 0;
    let mut value = traffic(&totals.all);
    let sizes = QUANTILES.map(|(name, q)| (name.to_owned(), json!(totals.sizes.quantile(q))));
    let distances = QUANTILES.map(|(name, q)| (name.to_owned(), json!(reuse.curve.distance(q))));
    let curve = (1..=100).map(|percent| {
        let pages = percent_of(reuse.unique, percent);
        json!({
            "capacity_ratio": percent as f64 / 100.0,
            "capacity_bytes": pages * PAGE_BYTES,
            "miss_ratio": reuse.exact.then(|| reuse.curve.miss_ratio(pages)),
            "sampled_miss_ratio": found.sampled.miss_ratio(pages),
        })
    });
    let windows = reuse.working_set.iter().map(|w| {
        let begin = if timed { w.begin as f64 / 1e6 } else { w.begin as f64 };
        let key = if timed { "begin_seconds" } else { "begin_accesses" };
        json!({ key: begin, "accesses": w.accesses, "unique_bytes": w.unique * PAGE_BYTES })
    });
    let devices = totals.devices.iter().zip(&reuse.unique_of).map(|((dev, t), unique)| {
        let mut row = traffic(t);
        row["dev"] = json!(dev);
        row["unique"] = json!(unique);
        row
    });
    value["exact"] = json!(reuse.exact);
    value["unique"] = json!(reuse.unique);
    value["footprint_bytes"] = json!(reuse.unique * PAGE_BYTES);
    value["reuse_ratio"] = json!(reuse.curve.reuse_ratio());
    value["duration_seconds"] = json!(timed.then_some(totals.duration_us() as f64 / 1e6));
    value["request_size_bytes"] = Value::Object(sizes.into_iter().collect());
    value["reuse_distance_pages"] = Value::Object(distances.into_iter().collect());
    value["sample"] = json!({
        "ratio": found.sample_ratio,
        "pages": found.sample_pages,
        "mean_absolute_error": found.sample_error,
    });
    value["lru"] = curve.collect();
    value["working_set"] = windows.collect();
    value["devices"] = devices.collect();
    value
}
