// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rows about a flash of which more or less is used (`resize.rs`).

use super::bases::{KIB, OWN};
use super::kinds::{BALANCED_WRITE_BACK, EXTENDED, JOURNALED, SYNCED, VOLATILE, WRITE_BACK};
use super::profile::Profile;
use super::promise::Trouble;

pub(super) const RESIZED: Profile = Profile {
    name: "resized",
    what: "flash grows and shrinks, while clients use the volume and between its lives",
    takes: &[&JOURNALED, &EXTENDED, &WRITE_BACK, &BALANCED_WRITE_BACK, &SYNCED, &VOLATILE],
    units: &[4 * KIB, 16 * KIB, 64 * KIB],
    volumes: &[1, 1, 2],
    percent: 3,
    resizes: 0.02,
    plugs: 0.002,
    ..OWN
};

pub(super) const RESIZED_VERIFIED: Profile = Profile {
    name: "resized-verified",
    what: "as resized, and cached pages have checksums, which rot",
    percent: 1,
    sums: &[0, 64 << 10],
    troubles: &[Trouble::None, Trouble::None, Trouble::SumsRot, Trouble::FlashErrors],
    ..RESIZED
};
