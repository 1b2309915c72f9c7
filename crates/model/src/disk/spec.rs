// SPDX-License-Identifier: MIT OR Apache-2.0
//! The parameters of a disk in a description.

use serde::Deserialize;

use crate::{Nanos, bounds};

/// A write cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub struct WriteCacheSpec {
    /// Size in bytes.
    #[serde(deserialize_with = "bounds::bytes")]
    pub size_bytes: u64,
    /// Whether it survives a power loss, which makes flushes free.
    pub battery_backed: bool,
}

/// The parameters of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub struct DiskSpec {
    /// Revolutions a minute.
    #[serde(deserialize_with = "bounds::rpm")]
    pub rpm: u64,
    /// Average seek of a read over random pairs of positions.
    #[serde(deserialize_with = "bounds::nanos")]
    pub seek_average_ns: Nanos,
    /// Shortest seek.
    #[serde(deserialize_with = "bounds::nanos")]
    pub settle_ns: Nanos,
    /// Additional time of a seek for a write.
    #[serde(deserialize_with = "bounds::nanos")]
    pub write_settle_ns: Nanos,
    /// Media rate.
    #[serde(deserialize_with = "bounds::media_rate")]
    pub bytes_per_second: u64,
    /// How far the head reads ahead after a read.
    #[serde(deserialize_with = "bounds::count")]
    pub read_ahead_tracks: u64,
    /// Candidates among which the disk chooses.
    #[serde(deserialize_with = "bounds::depth")]
    pub queue_depth: usize,
    /// How often a candidate is passed over at most.
    #[serde(deserialize_with = "bounds::count")]
    pub patience: u64,
    /// Overhead of a command.
    #[serde(deserialize_with = "bounds::nanos")]
    pub command_ns: Nanos,
    /// Rate of the interface to buffer and cache.
    #[serde(deserialize_with = "bounds::bandwidth")]
    pub bus_bytes_per_second: u64,
    /// The write cache, if there is one.
    pub cache: Option<WriteCacheSpec>,
}
