// SPDX-License-Identifier: MIT OR Apache-2.0
//! The row about settings that change while clients use the volume (`set.rs`).

use super::bases::{KIB, OWN};
use super::kinds::{
    BALANCED, EXTENDED, JOURNALED, LOG_ORDERED, LOG_THROUGH, SYNCED, VOLATILE, WRITE_BACK,
};
use super::profile::Profile;

pub(super) const SETTINGS: Profile = Profile {
    name: "settings",
    what: "write policy, replacement and limits change while clients use the volume",
    takes: &[
        &JOURNALED,
        &JOURNALED,
        &EXTENDED,
        &BALANCED,
        &VOLATILE,
        &WRITE_BACK,
        &SYNCED,
        &LOG_THROUGH,
        &LOG_ORDERED,
    ],
    units: &[4 * KIB, 16 * KIB, 64 * KIB],
    volumes: &[1],
    slots: 1..8,
    percent: 3,
    settings: 0.05,
    resizes: 0.005,
    plugs: 0.002,
    ..OWN
};
