// SPDX-License-Identifier: MIT OR Apache-2.0
//! A device as a file describes it: TOML, one device each.
//!
//! ```toml
//! about = "what it is, in a line"
//! source = "where the figures come from"
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
//! Keys are the fields of the specs. All of them must be there, so that a file says everything, and
//! no others, so that a slip of the pen is no silent default. Those built in lie in `devices/`, and
//! their names are in `profiles.rs`.
//!
//! An error is one line: file, line, what is wrong, what is accepted. Reading the file is left to
//! callers, as this crate does no I/O. Why not a builder in code: a device that a result was got
//! with can be handed on beside the result.

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

/// A device.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Description {
    /// What it is, in a line.
    pub about: String,
    /// Where its figures come from.
    pub source: String,
    /// What it does, if that is stated.
    #[serde(default)]
    pub rated: Rated,
    /// The network before it.
    pub link: Option<LinkSpec>,
    /// The device itself.
    pub device: DeviceSpec,
}

/// The names of [`DeviceSpec`] in files.
const DEVICES: [&str; 6] = ["disk", "array", "ssd", "cloud", "fixed", "filer"];

/// What a device is.
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
    /// RAM or flash of fixed times.
    Fixed(FixedSpec),
    /// A file server of fast and slow reads.
    Filer(FilerSpec),
}

/// What a device does. Random is 4 KiB at random places of a large volume, sequential is 128 KiB
/// with 32 requests at once. Writes are sustained: caches are full, and a drive with a flash
/// translation layer is in its steady state. 0 means unlimited, or not stated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub struct Rated {
    /// Random reads per second, one at a time.
    #[serde(deserialize_with = "bounds::rate")]
    pub read_iops_qd1: u64,
    /// Random reads per second, 32 at a time.
    #[serde(deserialize_with = "bounds::rate")]
    pub read_iops_qd32: u64,
    /// Random writes per second, 32 at a time.
    #[serde(deserialize_with = "bounds::rate")]
    pub write_iops_qd32: u64,
    /// Sequential reads.
    #[serde(deserialize_with = "bounds::bandwidth")]
    pub read_bytes_per_second: u64,
    /// Sequential writes.
    #[serde(deserialize_with = "bounds::bandwidth")]
    pub write_bytes_per_second: u64,
}

/// What is wrong with a description, in a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadDescription(String);

impl fmt::Display for BadDescription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for BadDescription {}

impl Description {
    /// Reads a description. `file` is what errors call it.
    ///
    /// # Errors
    /// If it is not TOML, a key is missing or not known, or a value is not one that is accepted.
    pub fn parse(file: &str, text: &str) -> Result<Self, BadDescription> {
        toml::from_str(text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start);
            BadDescription(format!("{file}:{}", explain(text, at, error.message())))
        })
    }

    /// The model of the device. Capacity matters where distance or a map of pages does; the seed
    /// sets what a device leaves to chance.
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

/// The line of an error, its key, and what it says in our words.
fn explain(text: &str, at: usize, message: &str) -> String {
    let before = text.get(..at).unwrap_or(text);
    let line = 1 + before.matches('\n').count();
    let key = text.lines().nth(line - 1).and_then(|line| line.split_once('='));
    let key = key.map(|(key, _)| key.trim()).filter(|_| message.starts_with("invalid"));
    let key = key.map(|key| format!("{key}: ")).unwrap_or_default();
    // What serde says of an enum is about elements and strings.
    if message.starts_with("wanted ") {
        let tables = DEVICES.map(|name| format!("[device.{name}]")).join(", ");
        return format!("{line}: one device is wanted; accepted: one of the tables {tables}");
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
