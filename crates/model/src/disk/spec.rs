// SPDX-License-Identifier: MIT OR Apache-2.0
//! The figures of a disk, as a description states them.

use serde::Deserialize;

use crate::{Nanos, bounds};

/// A write cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub struct WriteCacheSpec {
    /// How much fits.
    #[serde(deserialize_with = "bounds::bytes")]
    pub size_bytes: u64,
    /// Whether it survives a loss of power, which makes flushes free.
    pub battery_backed: bool,
}

/// What to model.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub struct DiskSpec {
    /// Revolutions a minute.
    #[serde(deserialize_with = "bounds::rpm")]
    pub rpm: u64,
    /// Seek of a read, mean over random pairs of places.
    #[serde(deserialize_with = "bounds::nanos")]
    pub seek_average_ns: Nanos,
    /// Shortest seek.
    #[serde(deserialize_with = "bounds::nanos")]
    pub settle_ns: Nanos,
    /// What a seek for a write takes longer.
    #[serde(deserialize_with = "bounds::nanos")]
    pub write_settle_ns: Nanos,
    /// Rate of the medium.
    #[serde(deserialize_with = "bounds::media_rate")]
    pub bytes_per_second: u64,
    /// How far the head reads on after a read.
    #[serde(deserialize_with = "bounds::count")]
    pub read_ahead_tracks: u64,
    /// Requests among which the disk chooses.
    #[serde(deserialize_with = "bounds::depth")]
    pub queue_depth: usize,
    /// How often it passes over one of them at most.
    #[serde(deserialize_with = "bounds::count")]
    pub patience: u64,
    /// Overhead of a command.
    #[serde(deserialize_with = "bounds::nanos")]
    pub command_ns: Nanos,
    /// Rate of the interface, which buffer and cache are reached by.
    #[serde(deserialize_with = "bounds::bandwidth")]
    pub bus_bytes_per_second: u64,
    /// The write cache, if there is one.
    pub cache: Option<WriteCacheSpec>,
}
