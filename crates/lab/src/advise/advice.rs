// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is advised, as it is printed.

use serde::Serialize;

use super::endurance::Wear;
use crate::replays::Point;

/// A size and what LRU misses with it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Misses {
    /// Bytes of cached pages.
    pub flash_bytes: u64,
    /// Of accesses to pages of 4 KiB, reads and writes.
    pub miss_ratio: f64,
}

/// What is advised.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Advised {
    /// The preset at its knee.
    pub point: Point,
    /// What to know before it is used; part of the words alone.
    #[serde(skip)]
    pub warning: &'static str,
    /// Of `prwc`: from one update to the next.
    pub update_seconds: Option<i64>,
    /// What a flash device must have for that: metadata too.
    pub device_bytes: u64,
    /// How many times as long the origin alone takes in the mean, for a read; null without reads.
    pub read_factor: Option<f64>,
    /// The same for a write.
    pub write_factor: Option<f64>,
    /// The share of the origin's operations that is saved; negative if there are more.
    pub origin_operations_saved_ratio: f64,
    /// Flash's life.
    pub wear: Wear,
}

/// All of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Advice {
    /// Requests of the trace ...
    pub requests: u64,
    /// ... and of each point.
    pub replayed_requests: u64,
    /// Share of the requests that write.
    pub write_ratio: f64,
    /// Bytes of different pages.
    pub footprint_bytes: u64,
    /// Bytes of all units of 1 MiB that are asked for.
    pub touched_unit_bytes: u64,
    /// From the first request to the last; null of a trace without times.
    pub duration_seconds: Option<f64>,
    /// Whether points keep the recorded times.
    pub keeps_times: bool,
    /// Whether a cache pays.
    pub pays: bool,
    /// Why, in a line.
    pub verdict: String,
    /// The best that there is; null where no cache saves anything.
    pub advised: Option<Advised>,
    /// The others at their knees.
    pub others: Vec<Advised>,
    /// The configuration that serves what is advised.
    pub toml: Option<String>,
    /// The origin alone.
    pub alone: Point,
    /// Presets at sizes.
    pub points: Vec<Point>,
    /// LRU at sizes.
    pub miss_ratio_curve: Vec<Misses>,
    /// What all this rests on, a line each.
    pub assumptions: Vec<String>,
}
