// SPDX-License-Identifier: MIT OR Apache-2.0
//! The named devices of the contract.
//!
//! A name here is part of the surface that scripts rely on (`slow+PATH?profile=NAME`); the figures
//! beside it are nominal, for docs and for sizing, and `tests/calibration.rs` holds the models to
//! them. Why not let users set every constant by flag: a name with documented figures can be
//! compared between two people's results; programs build their own from the `...Spec` types.

use std::fmt;

use crate::cloud::{Cloud, CloudSpec};
use crate::disk::{Disk, DiskSpec, WriteCacheSpec};
use crate::ssd::{Ssd, SsdSpec};
use crate::{Array, ArraySpec, Jitter, Link, LinkSpec, Model};

const STRIPE_BYTES: u64 = 64 << 10;
const SAN_DISKS: u64 = 3;
const ARRAY_DISKS: u64 = 16;
const ARRAY_CACHE_BYTES: u64 = 512 << 20;

const SAN: ArraySpec =
    ArraySpec { disks: SAN_DISKS, stripe_bytes: STRIPE_BYTES, disk: DiskSpec::HDD_15K };

const ARRAY_16: ArraySpec = ArraySpec {
    disks: ARRAY_DISKS,
    stripe_bytes: STRIPE_BYTES,
    disk: DiskSpec {
        cache: Some(WriteCacheSpec {
            size_bytes: ARRAY_CACHE_BYTES / ARRAY_DISKS,
            battery_backed: true,
        }),
        ..DiskSpec::HDD_15K
    },
};

/// The controller before the sixteen disks: FaCE Table 1 has 1,723 MB/s where the disks alone
/// would give 2,480.
const CONTROLLER: LinkSpec =
    LinkSpec { bytes_per_second: 1_723_000_000, latency_ns: 0, packet_ns: 0 };

/// A profile, for docs. Random is 4 KiB at random places of a large volume, sequential is 128 KiB
/// with 32 requests at once. Writes are sustained, that is with caches full. 0 means unlimited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProfileInfo {
    /// Its name in the contract.
    pub name: &'static str,
    /// One line on what it models.
    pub about: &'static str,
    /// Random reads per second, one at a time.
    pub read_iops_qd1: u64,
    /// Random reads per second, 32 at a time.
    pub read_iops_qd32: u64,
    /// Random writes per second, 32 at a time.
    pub write_iops_qd32: u64,
    /// Sequential reads.
    pub read_bytes_per_second: u64,
    /// Sequential writes.
    pub write_bytes_per_second: u64,
}

/// A name that is not among [`profiles`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownProfile {
    name: String,
}

impl fmt::Display for UnknownProfile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unknown device profile {:?}; accepted are", self.name)?;
        for (at, profile) in PROFILES.iter().enumerate() {
            let comma = if at == 0 { "" } else { "," };
            write!(f, "{comma} {}", profile.name)?;
        }
        Ok(())
    }
}

impl std::error::Error for UnknownProfile {}

/// Builds the model of a named device.
///
/// The seed sets what a device leaves to chance (the angles of platters). Capacity matters where
/// distance does: seeks of a disk are spread over it, so a small file behaves like a small disk
/// of the same average seek, as long as it is much larger than a track (1.3 MB).
///
/// # Errors
/// If there is no such profile. The message lists those that there are.
pub fn profile(
    name: &str,
    capacity_bytes: u64,
    seed: u64,
) -> Result<Box<dyn Model>, UnknownProfile> {
    let capacity = capacity_bytes;
    Ok(match name {
        "hdd-7200" => Box::new(Disk::new(&DiskSpec::HDD_7200, capacity, seed)),
        "hdd-15k" => Box::new(Disk::new(&DiskSpec::HDD_15K, capacity, seed)),
        "san-1g" => Box::new(Link::new(Array::new(&SAN, capacity, seed), LinkSpec::GIGABIT)),
        "array-16" => Box::new(Link::new(Array::new(&ARRAY_16, capacity, seed), CONTROLLER)),
        "cloud" => Box::new(Cloud::new(CloudSpec::STANDARD)),
        "ssd-840pro" => Box::new(Ssd::new(SsdSpec::S840_PRO)),
        "ssd-850evo" => Box::new(Ssd::new(SsdSpec::S850_EVO)),
        "ssd-s3500" => Box::new(Ssd::new(SsdSpec::S3500)),
        "ssd-p3700" => Box::new(Ssd::new(SsdSpec::P3700)),
        "none" => Box::new(Jitter::new(seed, 0, 0)),
        _ => return Err(UnknownProfile { name: name.to_owned() }),
    })
}

/// All profiles, in the contract's order.
#[must_use]
pub fn profiles() -> &'static [ProfileInfo] {
    &PROFILES
}

const fn info(
    name: &'static str,
    about: &'static str,
    iops: [u64; 3],
    mb: [u64; 2],
) -> ProfileInfo {
    ProfileInfo {
        name,
        about,
        read_iops_qd1: iops[0],
        read_iops_qd32: iops[1],
        write_iops_qd32: iops[2],
        read_bytes_per_second: mb[0] * 1_000_000,
        write_bytes_per_second: mb[1] * 1_000_000,
    }
}

static PROFILES: [ProfileInfo; 10] = [
    info(
        "hdd-7200",
        "one disk, 7,200 rpm, 8.5 ms average seek, NCQ 32, volatile write cache of 64 MiB",
        [79, 183, 181],
        [160, 160],
    ),
    info(
        "hdd-15k",
        "one disk, 15,000 rpm, 3.5 ms average seek, NCQ 32, no write cache",
        [181, 409, 343],
        [155, 155],
    ),
    info(
        "san-1g",
        "three hdd-15k striped (64 KiB) behind 118 MB/s and 0.1 ms",
        [176, 950, 820],
        [118, 118],
    ),
    info(
        "array-16",
        "sixteen hdd-15k striped (64 KiB), battery-backed write cache of 512 MiB, 1,723 MB/s",
        [181, 2_740, 5_650],
        [1_723, 1_723],
    ),
    info(
        "cloud",
        "cloud volume of 1.5 ms, 3,000 IOPS and 125 MB/s",
        [667, 3_000, 3_000],
        [125, 125],
    ),
    info(
        "ssd-840pro",
        "Samsung 840 Pro (SATA) as in FaCE Table 1",
        [13_300, 65_803, 13_979],
        [534, 398],
    ),
    info(
        "ssd-850evo",
        "Samsung 850 Evo (SATA) as in FaCE Table 1",
        [14_250, 98_591, 6_094],
        [518, 300],
    ),
    info(
        "ssd-s3500",
        "Intel DC S3500 (SATA) as in FaCE Table 1",
        [13_050, 60_311, 21_572],
        [470, 425],
    ),
    info(
        "ssd-p3700",
        "Intel DC P3700 (NVMe) as in FaCE Table 1",
        [19_150, 457_355, 86_949],
        [2_671, 676],
    ),
    info("none", "no latency at all, to measure what the rest costs", [0, 0, 0], [0, 0]),
];
