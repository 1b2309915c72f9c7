// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rows about checksums of cached pages.

use super::bases::{KIB, OWN, PAGES_OWNED};
use super::kinds::{
    BALANCED_WRITE_BACK, EXTENDED, JOURNALED, SYNCED, SYNCED_BY_EVICTION, VOLATILE, WRITE_BACK,
};
use super::profile::Profile;
use super::promise::Trouble;

/// Memory for two blocks of checksums, or for all.
const SUMS: &[u64] = &[0, 0, 64 << 10];

pub(super) const VERIFIED: Profile = Profile {
    name: "verified",
    what: "cached pages have checksums, and rot, or the checksums do: no wrong byte is read",
    takes: &[&JOURNALED, &JOURNALED, &EXTENDED, &VOLATILE],
    units: &[4 * KIB, 16 * KIB, 64 * KIB, 1024 * KIB, 2048 * KIB],
    percent: 5,
    plugs: 0.002,
    scrubs: 0.01,
    sums: SUMS,
    troubles: &[
        Trouble::None,
        Trouble::DataRot,
        Trouble::DataRot,
        Trouble::SumsRot,
        Trouble::MetadataRot,
        Trouble::FlashErrors,
        Trouble::FlashHangs,
        Trouble::FlashVanishes,
    ],
    ..OWN
};

pub(super) const VERIFIED_OWNED: Profile = Profile {
    name: "verified-owned",
    what: "as verified, where flash owns units or pages, through crashes",
    takes: &[&WRITE_BACK, &BALANCED_WRITE_BACK, &SYNCED, &SYNCED, &SYNCED_BY_EVICTION],
    units: &[4 * KIB, 64 * KIB],
    percent: 4,
    scrubs: 0.01,
    sums: SUMS,
    troubles: &[
        Trouble::None,
        Trouble::None,
        Trouble::SumsRot,
        Trouble::FlashErrors,
        Trouble::FlashForgets,
        Trouble::FlashOutages,
    ],
    ..PAGES_OWNED
};

pub(super) const VERIFIED_OWNED_ROT: Profile = Profile {
    name: "verified-owned-rot",
    what: "as verified-owned, without a crash: pages rot that only flash has",
    takes: &[&WRITE_BACK, &BALANCED_WRITE_BACK, &SYNCED, &SYNCED_BY_EVICTION],
    units: &[4 * KIB, 64 * KIB],
    percent: 2,
    crashes: 0..1,
    scrubs: 0.01,
    sums: SUMS,
    troubles: &[Trouble::DataRot],
    ..PAGES_OWNED
};
