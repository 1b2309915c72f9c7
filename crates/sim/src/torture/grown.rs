// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rows about an origin that grows between lives (`grow.rs`).

use larder_core::buf::SECTOR;
use larder_core::shape::Shape;
use rand::RngExt;
use rand_pcg::Pcg64Mcg;

use super::bases::{KIB, OWN};
use super::kinds::{
    BALANCED_WRITE_BACK, EXTENDED, JOURNALED, LOG_BOUNDED, LOG_FULL, LOG_THROUGH, SYNCED,
    WRITE_BACK,
};
use super::profile::Profile;
use super::promise::Trouble;
use super::resized::RESIZED_VERIFIED;

pub(super) const GROWN: Profile = Profile {
    name: "grown",
    what: "the origin grows between lives, and more or less of flash is used",
    takes: &[
        &JOURNALED,
        &EXTENDED,
        &WRITE_BACK,
        &BALANCED_WRITE_BACK,
        &SYNCED,
        &LOG_THROUGH,
        &LOG_FULL,
        &LOG_BOUNDED,
    ],
    units: &[4 * KIB, 16 * KIB, 64 * KIB],
    percent: 2,
    grows: true,
    resizes: 0.01,
    crashes: 3..8,
    troubles: &[Trouble::None, Trouble::None, Trouble::FlashErrors, Trouble::OriginErrors],
    ..OWN
};

pub(super) const GROWN_VERIFIED: Profile = Profile {
    name: "grown-verified",
    what: "as grown, and cached pages have checksums",
    takes: &[&JOURNALED, &EXTENDED, &WRITE_BACK, &SYNCED],
    percent: 1,
    grows: true,
    crashes: 3..8,
    volumes: &[1],
    ..RESIZED_VERIFIED
};

/// Bytes of an origin of at least `least` units, and at most as large as this shape: mostly whole units.
pub(super) fn any_size(least: u64, shape: &Shape, rng: &mut Pcg64Mcg) -> u64 {
    let most = shape.origin_bytes / shape.unit_bytes;
    let whole = rng.random_range(least.min(most)..=most) * shape.unit_bytes;
    let less = if rng.random_bool(0.2) { rng.random_range(0..8) * SECTOR as u64 } else { 0 };
    whole - less
}
