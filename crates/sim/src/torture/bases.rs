// SPDX-License-Identifier: MIT OR Apache-2.0
//! What rows of the swarm have in common (`rows.rs`).

use super::kinds::{JOURNALED, Kind, LOG_BOUNDED, LOG_FULL, LOG_THROUGH, VOLATILE, WRITE_BACK};
use super::mix::{MIXED, Mix};
use super::profile::Profile;
use super::promise::Trouble;

pub(super) const UNITS: &[&Kind] = &[&VOLATILE, &JOURNALED, &WRITE_BACK];
pub(super) const EVERY: &[&Kind] =
    &[&VOLATILE, &JOURNALED, &WRITE_BACK, &LOG_THROUGH, &LOG_BOUNDED, &LOG_FULL];
pub(super) const WITH_JOURNAL: &[&Kind] = &[&JOURNALED, &WRITE_BACK];
pub(super) const CLEAN_UNITS: &[&Kind] = &[&VOLATILE, &JOURNALED];

pub(super) const KIB: u64 = 1 << 10;

pub(super) const EVERYDAY: Profile = Profile {
    name: "everyday",
    what: "a mixed load, several crashes",
    weight: 6,
    percent: 0,
    takes: UNITS,
    units: &[4 * KIB, 4 * KIB, 64 * KIB, 64 * KIB, 64 * KIB, 128 * KIB],
    shards: &[1, 1, 2],
    stripes: &[1],
    volumes: &[1],
    slots: 2..11,
    in_flight: &[1, 4, 4, 16, 48],
    mix: MIXED,
    hot: 30,
    scan: 5,
    any: false,
    plugs: 0.0,
    departs: 0.0,
    arranges: 0.0,
    scrubs: 0.0,
    resizes: 0.0,
    grows: false,
    rules: 0.0,
    settings: 0.0,
    crashes: 3..6,
    bursts: false,
    rest: (40, 15),
    strays: false,
    ram: &[0],
    sums: &[],
    troubles: &[Trouble::None],
};

/// Troubles where flash owns data.
pub(super) const OWNED: &[Trouble] = &[
    Trouble::None,
    Trouble::None,
    Trouble::None,
    Trouble::FlashErrors,
    Trouble::FlashSlow,
    Trouble::OriginErrors,
    Trouble::OriginFlushErrors,
];

/// Rows about pages that flash owns.
pub(super) const PAGES_OWNED: Profile =
    Profile { weight: 0, percent: 2, units: &[4 * KIB], slots: 1..9, rest: (12, 8), ..EVERYDAY };

/// Rows about volumes that share a cache.
pub(super) const SHARED: Profile = Profile {
    weight: 0,
    percent: 2,
    units: &[4 * KIB, 4 * KIB, 16 * KIB, 64 * KIB],
    shards: &[1, 1, 2],
    stripes: &[1, 1, 3],
    volumes: &[2, 2, 3, 4],
    slots: 2..9,
    rest: (12, 8),
    troubles: &[
        Trouble::None,
        Trouble::None,
        Trouble::OriginErrors,
        Trouble::OriginFlushErrors,
        Trouble::OriginGone,
        Trouble::OriginGone,
        Trouble::FlashErrors,
    ],
    ..EVERYDAY
};

/// Rows about the mechanisms that only the preset `larder` has.
pub(super) const OWN: Profile = Profile {
    weight: 0,
    percent: 6,
    units: &[64 * KIB, 64 * KIB, 128 * KIB],
    in_flight: &[4, 16, 16, 48],
    mix: Mix { read: 60, write: 32, flush: 2, trim: 3, zero: 3, fill: 0 },
    hot: 50,
    troubles: &[
        Trouble::None,
        Trouble::None,
        Trouble::None,
        Trouble::OriginErrors,
        Trouble::FlashErrors,
        Trouble::FlashFull,
        Trouble::FlashHangs,
        Trouble::FlashSlow,
        Trouble::FlashVanishes,
    ],
    ..EVERYDAY
};

/// What the rows of page logs have in common.
pub(super) const PAGE_LOG: Profile = Profile {
    weight: 2,
    takes: &[&LOG_FULL],
    units: &[16 * KIB, 64 * KIB, 64 * KIB],
    hot: 50,
    rest: (30, 8),
    ..EVERYDAY
};
