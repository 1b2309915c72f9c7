// SPDX-License-Identifier: MIT OR Apache-2.0
//! The description of a device in a file: TOML, one device a file.
//!
//! ```toml
//! about = "what it is, in one line"
//! source = "the source of the figures"
//!
//! [link]              # if it is reached over a network: a `LinkSpec`
//! bytes_per_second = 118_000_000
//! latency_ns = 100_000
//! packet_ns = 0
//!
//! [device.cloud]      # or disk, array, ssd, fixed, filer: the spec of that name
//! latency_ns = 1_500_000
//! ```
//!
//! Keys are the fields of the specs. All are required, so that a file is complete, and no others are accepted, so that
//! a misspelt key does not silently take a default. The built-in descriptions are in `devices/`, and their names in
//! `profiles.rs`.
//!
//! An error is one line: file, line, what is wrong, what is accepted. Callers read the file, because this crate does no
//! I/O.
//!
//! Why not a builder in code: the description of a device can be published beside the results that it produced.

use std::fmt;

use serde::Deserialize;

use crate::array::{Array, ArraySpec};
use crate::cloud::{Cloud, CloudSpec};
use crate::disk::{Disk, DiskSpec};
use crate::filer::{Filer, FilerSpec};
use crate::fixed::{Fixed, FixedSpec};
use crate::link::{Link, LinkSpec};
use crate::ssd::{Ssd, SsdSpec};
use crate::{Model, bounds};

/// A device description.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Description {
    /// What it is, in one line.
    pub about: String,
    /// The source of its figures.
    pub source: String,
    /// Its measured performance, if stated.
    #[serde(default)]
    pub rated: Rated,
    /// The network in front of it.
    pub link: Option<LinkSpec>,
    /// The device itself.
    pub device: DeviceSpec,
}

/// The names of [`DeviceSpec`] in files.
const DEVICES: [&str; 6] = ["disk", "array", "ssd", "cloud", "fixed", "filer"];

/// The kinds of devices.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "lowercase", expecting = "one table, [device.disk] or another")]
pub enum DeviceSpec {
    /// A hard disk.
    Disk(DiskSpec),
    /// Striped hard disks.
    Array(ArraySpec),
    /// A solid state drive.
    Ssd(SsdSpec),
    /// A cloud volume.
    Cloud(CloudSpec),
    /// RAM or flash with fixed times.
    Fixed(FixedSpec),
    /// A file server with fast and slow reads.
    Filer(FilerSpec),
}

/// The performance of a device. Random is 4 KiB at random offsets of a large volume; sequential is 128 KiB with 32
/// requests in flight. Writes are sustained: caches are full, and a drive with a flash translation layer is in its
/// steady state. 0 means unlimited, or not stated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub struct Rated {
    /// Random reads per second, one in flight.
    #[serde(deserialize_with = "bounds::rate")]
    pub read_iops_qd1: u64,
    /// Random reads per second, 32 in flight.
    #[serde(deserialize_with = "bounds::rate")]
    pub read_iops_qd32: u64,
    /// Random writes per second, 32 in flight.
    #[serde(deserialize_with = "bounds::rate")]
    pub write_iops_qd32: u64,
    /// Sequential reads.
    #[serde(deserialize_with = "bounds::bandwidth")]
    pub read_bytes_per_second: u64,
    /// Sequential writes.
    #[serde(deserialize_with = "bounds::bandwidth")]
    pub write_bytes_per_second: u64,
}

/// What is wrong with a description, in one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadDescription(String);

impl fmt::Display for BadDescription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for BadDescription {}

impl Description {
    /// Parses a description. `file` is the name for errors.
    ///
    /// # Errors
    /// The text is not TOML, a key is missing or unknown, or a value is not accepted.
    pub fn parse(file: &str, text: &str) -> Result<Self, BadDescription> {
        toml::from_str(text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start);
            BadDescription(format!("{file}:{}", explain(text, at, error.message())))
        })
    }

    /// Builds the model of the device. The capacity matters to devices with seeks or a page map; the seed determines
    /// the random properties.
    #[must_use]
    pub fn build(&self, capacity_bytes: u64, seed: u64) -> Box<dyn Model> {
        let capacity = capacity_bytes;
        let device: Box<dyn Model> = match &self.device {
            DeviceSpec::Disk(spec) => Box::new(Disk::new(spec, capacity, seed)),
            DeviceSpec::Array(spec) => Box::new(Array::new(spec, capacity, seed)),
            DeviceSpec::Ssd(spec) => Box::new(Ssd::new(spec, capacity, seed)),
            DeviceSpec::Cloud(spec) => Box::new(Cloud::new(*spec)),
            DeviceSpec::Fixed(spec) => Box::new(Fixed::new(*spec)),
            DeviceSpec::Filer(spec) => Box::new(Filer::new(*spec, seed)),
        };
        match self.link {
            Some(link) => Box::new(Link::new(device, link)),
            None => device,
        }
    }
}

/// The line of an error, its key, and its text in the style of Larder's errors.
fn explain(text: &str, at: usize, message: &str) -> String {
    let before = text.get(..at).unwrap_or(text);
    let line = 1 + before.matches('\n').count();
    let key = text.lines().nth(line - 1).and_then(|line| line.split_once('='));
    let key = key.map(|(key, _)| key.trim()).filter(|_| message.starts_with("invalid"));
    let key = key.map(|key| format!("{key}: ")).unwrap_or_default();
    // Serde's text for an enum speaks of elements and strings.
    if message.starts_with("wanted ") {
        let tables = DEVICES.map(|name| format!("[device.{name}]")).join(", ");
        return format!(
            "{line}: exactly one device is required; accepted: one of the tables {tables}"
        );
    }
    let message = message.lines().collect::<Vec<_>>().join(", ");
    let message = message.replace(", expected one of ", "; accepted: ");
    let message = message.replace(", expected ", "; accepted: ");
    let hint = match message.contains("accepted") {
        true => "",
        false => "; accepted: see \"Device models\" in docs/simulation.md",
    };
    format!("{line}: {key}{message}{hint}")
}
