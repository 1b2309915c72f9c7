// SPDX-License-Identifier: MIT OR Apache-2.0
//! The rows of the swarm.
//!
//! A seed selects a row (or the caller names one), and from the row everything else. Narrow rows find what a broad mixture
//! hardly ever meets. A new preset is a name in `CACHES`; a new kind of stress is a row.

use super::bases::{
    CLEAN_UNITS, EVERY, EVERYDAY, KIB, OWN, OWNED, PAGE_LOG, PAGES_OWNED, SHARED, UNITS,
    WITH_JOURNAL,
};
use super::grown::{GROWN, GROWN_VERIFIED};
use super::in_order::ORDERED;
use super::kinds::{
    BALANCED, BALANCED_WRITE_BACK, EXTENDED, EXTENDED_VOLATILE, JOURNALED, LOG_BOUNDED, LOG_FULL,
    LOG_THROUGH, SYNCED, SYNCED_AT_ONCE, SYNCED_BY_EVICTION, UNLOGGED_WRITE_BACK, VOLATILE,
    WRITE_BACK,
};
use super::mix::Mix;
use super::profile::Profile;
use super::promise::Trouble;
use super::resized::{RESIZED, RESIZED_VERIFIED};
use super::settings::SETTINGS;
use super::verified::{VERIFIED, VERIFIED_OWNED, VERIFIED_OWNED_ROT};

/// Every row.
pub const PROFILES: &[Profile] = &[
    EVERYDAY,
    Profile {
        name: "hot-overwrite",
        what: "a few pages are written and read again and again, by many clients at once",
        weight: 3,
        mix: Mix { read: 35, write: 58, flush: 3, trim: 1, zero: 3, fill: 0 },
        in_flight: &[16, 48],
        hot: 90,
        ..EVERYDAY
    },
    Profile {
        name: "scan",
        what: "sequential streams through a small cache",
        weight: 2,
        mix: Mix { read: 70, write: 25, flush: 3, trim: 0, zero: 2, fill: 0 },
        scan: 75,
        slots: 2..6,
        ..EVERYDAY
    },
    Profile {
        name: "flush-storm",
        what: "every third request is a FLUSH",
        weight: 2,
        mix: Mix { read: 20, write: 45, flush: 33, trim: 0, zero: 2, fill: 0 },
        ..EVERYDAY
    },
    Profile {
        name: "tiny-cache",
        what: "one or two slots, so that units are evicted all the time",
        weight: 3,
        takes: WITH_JOURNAL,
        slots: 0..3,
        ..EVERYDAY
    },
    Profile {
        name: "log-edge",
        what: "first writes to new regions fill the log; checkpoints follow each other",
        weight: 3,
        takes: WITH_JOURNAL,
        units: &[64 * KIB, 128 * KIB, 256 * KIB],
        slots: 8..11,
        mix: Mix { read: 35, write: 60, flush: 2, trim: 0, zero: 3, fill: 0 },
        hot: 0,
        rest: (12, 25),
        ..EVERYDAY
    },
    Profile {
        name: "restart-loop",
        what: "crash after crash, often before the run after the last crash did anything",
        weight: 2,
        takes: WITH_JOURNAL,
        crashes: 9..16,
        bursts: true,
        in_flight: &[1, 4, 16],
        ..EVERYDAY
    },
    Profile {
        name: "write-back",
        what: "flash owns the units that it holds, and units are exchanged all the time",
        weight: 4,
        takes: &[&WRITE_BACK],
        slots: 1..9,
        rest: (12, 8),
        troubles: OWNED,
        ..EVERYDAY
    },
    Profile {
        name: "volatile",
        what: "caches whose metadata does not survive a crash",
        weight: 2,
        takes: &[&VOLATILE],
        units: &[4 * KIB, 64 * KIB, 64 * KIB, 256 * KIB],
        rest: (0, 0),
        troubles: &[
            Trouble::None,
            Trouble::FlashErrors,
            Trouble::FlashHangs,
            Trouble::FlashVanishes,
            Trouble::OriginErrors,
        ],
        ..EVERYDAY
    },
    Profile {
        name: "flash-fails",
        what: "flash fails operations, is full, slow, hangs, disappears and returns, or shrinks",
        weight: 4,
        takes: CLEAN_UNITS,
        troubles: &[
            Trouble::FlashErrors,
            Trouble::FlashFull,
            Trouble::FlashHangs,
            Trouble::FlashSlow,
            Trouble::FlashVanishes,
            Trouble::FlashShrinks,
        ],
        ..EVERYDAY
    },
    Profile {
        name: "origin-fails",
        what: "the origin fails reads, writes and flushes",
        weight: 2,
        troubles: &[Trouble::OriginErrors, Trouble::OriginFlushErrors],
        ..EVERYDAY
    },
    Profile {
        name: "metadata-rot",
        what: "one copy of the metadata on flash loses, misplaces or repeats writes, or flips bits",
        weight: 3,
        takes: WITH_JOURNAL,
        troubles: &[Trouble::MetadataRot],
        ..EVERYDAY
    },
    Profile {
        name: "data-rot",
        what: "cached data on flash does the same: wrong bytes are undetected by contract",
        weight: 1,
        takes: CLEAN_UNITS,
        troubles: &[Trouble::DataRot],
        ..EVERYDAY
    },
    Profile {
        name: "runs",
        what: "small units, several of which a shard owns in a row",
        weight: 0,
        percent: 2,
        takes: UNITS,
        units: &[4 * KIB, 4 * KIB, 64 * KIB],
        shards: &[2, 2, 3],
        stripes: &[2, 4, 7],
        troubles: &[
            Trouble::None,
            Trouble::None,
            Trouble::OriginErrors,
            Trouble::OriginFlushErrors,
            Trouble::FlashErrors,
        ],
        ..EVERYDAY
    },
    Profile {
        name: "attach",
        what: "flash is detached, and it or another is attached, under load",
        weight: 0,
        percent: 4,
        takes: EVERY,
        units: &[16 * KIB, 64 * KIB, 64 * KIB, 128 * KIB],
        plugs: 0.02,
        rest: (30, 8),
        troubles: &[
            Trouble::None,
            Trouble::None,
            Trouble::None,
            Trouble::FlashErrors,
            Trouble::FlashHangs,
            Trouble::FlashSlow,
            Trouble::FlashVanishes,
            Trouble::OriginErrors,
            Trouble::OriginFlushErrors,
        ],
        ..EVERYDAY
    },
    Profile {
        name: "lawful",
        what: "any choices that go together, with any unit and any limits",
        weight: 0,
        percent: 4,
        takes: EVERY,
        units: &[
            4 * KIB,
            4 * KIB,
            8 * KIB,
            64 * KIB,
            64 * KIB,
            128 * KIB,
            256 * KIB,
            512 * KIB,
            1024 * KIB,
            2048 * KIB,
            8192 * KIB,
        ],
        shards: &[1, 1, 2, 3],
        stripes: &[1, 1, 2, 5],
        slots: 0..11,
        in_flight: &[1, 4, 16, 64],
        mix: Mix { read: 50, write: 36, flush: 5, trim: 3, zero: 3, fill: 3 },
        any: true,
        plugs: 0.004,
        troubles: &[
            Trouble::None,
            Trouble::None,
            Trouble::None,
            Trouble::FlashErrors,
            Trouble::FlashFull,
            Trouble::FlashHangs,
            Trouble::FlashSlow,
            Trouble::FlashVanishes,
            Trouble::FlashShrinks,
            Trouble::OriginErrors,
            Trouble::OriginFlushErrors,
            Trouble::MetadataRot,
        ],
        ..EVERYDAY
    },
    Profile {
        name: "strays",
        what: "a start finds an older or foreign flash, or another state file or none",
        weight: 0,
        percent: 4,
        takes: &[&JOURNALED, &WRITE_BACK, &LOG_FULL, &LOG_BOUNDED, &LOG_THROUGH],
        slots: 4..11,
        crashes: 9..16,
        strays: true,
        ..EVERYDAY
    },
    Profile {
        name: "page-log",
        what: "a page log that is part of the durable state, over several laps",
        weight: 6,
        troubles: &[
            Trouble::None,
            Trouble::None,
            Trouble::None,
            Trouble::FlashErrors,
            Trouble::FlashSlow,
            Trouble::OriginErrors,
            Trouble::OriginFlushErrors,
            Trouble::MetadataRot,
        ],
        ..PAGE_LOG
    },
    Profile {
        name: "page-log-trims",
        what: "the same, and a third of the pages is soon trimmed",
        mix: Mix { read: 25, write: 40, flush: 5, trim: 12, zero: 18, fill: 0 },
        ..PAGE_LOG
    },
    Profile {
        name: "page-log-unflushed",
        what: "a page log that a FLUSH copies to the origin",
        takes: &[&LOG_BOUNDED],
        troubles: &[
            Trouble::None,
            Trouble::None,
            Trouble::FlashErrors,
            Trouble::FlashSlow,
            Trouble::OriginErrors,
        ],
        ..PAGE_LOG
    },
    Profile {
        name: "page-log-through",
        what: "a page log of clean pages",
        takes: &[&LOG_THROUGH],
        troubles: &[
            Trouble::None,
            Trouble::FlashErrors,
            Trouble::FlashFull,
            Trouble::FlashHangs,
            Trouble::FlashSlow,
            Trouble::FlashVanishes,
            Trouble::OriginErrors,
            Trouble::DataRot,
        ],
        ..PAGE_LOG
    },
    Profile {
        name: "extended",
        what: "misses read a block around the request, which requests for its other pages join",
        takes: &[&EXTENDED, &EXTENDED_VOLATILE],
        ..OWN
    },
    Profile {
        name: "balanced",
        what: "the origin serves reads of clean data that hit, under write-through and write-back",
        takes: &[&BALANCED, &BALANCED_WRITE_BACK],
        mix: Mix { read: 55, write: 36, flush: 3, trim: 3, zero: 3, fill: 0 },
        rest: (12, 8),
        troubles: &[
            Trouble::None,
            Trouble::None,
            Trouble::None,
            Trouble::OriginErrors,
            Trouble::OriginFlushErrors,
            Trouble::FlashErrors,
            Trouble::FlashHangs,
            Trouble::FlashSlow,
            Trouble::FlashVanishes,
        ],
        ..OWN
    },
    Profile {
        name: "flash-outages",
        what: "all operations on flash fail for a while; service returns",
        percent: 3,
        takes: &[&LOG_FULL, &LOG_BOUNDED, &LOG_THROUGH, &JOURNALED],
        plugs: 0.005,
        troubles: &[Trouble::FlashBursts, Trouble::FlashOutages],
        weight: 0,
        ..PAGE_LOG
    },
    Profile {
        name: "flash-forgets",
        what: "flushes of flash fail, and what flash had acknowledged is lost",
        percent: 3,
        takes: &[&LOG_FULL, &LOG_FULL, &LOG_BOUNDED, &LOG_THROUGH],
        mix: Mix { read: 40, write: 40, flush: 14, trim: 2, zero: 4, fill: 0 },
        troubles: &[Trouble::FlashForgets],
        weight: 0,
        ..PAGE_LOG
    },
    Profile {
        name: "write-back-unlogged",
        what: "as write-back, and every second life has no dirty log",
        percent: 3,
        takes: &[&UNLOGGED_WRITE_BACK],
        slots: 1..9,
        weight: 0,
        ..EVERYDAY
    },
    Profile {
        name: "write-back-outages",
        what: "as flash-outages, where flash owns units, and units are exchanged",
        percent: 3,
        takes: &[&WRITE_BACK, &BALANCED_WRITE_BACK],
        slots: 1..9,
        rest: (12, 8),
        troubles: &[Trouble::FlashBursts, Trouble::FlashOutages],
        weight: 0,
        ..EVERYDAY
    },
    Profile {
        name: "write-back-forgets",
        what: "as flash-forgets, where flash owns units, and units are exchanged",
        percent: 3,
        takes: &[&WRITE_BACK, &BALANCED_WRITE_BACK],
        slots: 1..9,
        mix: Mix { read: 40, write: 40, flush: 14, trim: 2, zero: 4, fill: 0 },
        rest: (12, 8),
        troubles: &[Trouble::FlashForgets],
        weight: 0,
        ..EVERYDAY
    },
    Profile {
        name: "synced",
        what: "flash owns pages that each miss admits, until a syncer has copied them",
        takes: &[&SYNCED],
        troubles: OWNED,
        ..PAGES_OWNED
    },
    Profile {
        name: "synced-at-once",
        what: "as synced, and a page is copied as soon as it is dirty",
        takes: &[&SYNCED_AT_ONCE],
        ..PAGES_OWNED
    },
    Profile {
        name: "synced-by-eviction",
        what: "as synced, and only pages that eviction wants are copied",
        takes: &[&SYNCED_BY_EVICTION],
        mix: Mix { read: 35, write: 55, flush: 5, trim: 2, zero: 3, fill: 0 },
        ..PAGES_OWNED
    },
    Profile {
        name: "synced-outages",
        what: "as synced, and all operations on flash fail for a while",
        takes: &[&SYNCED],
        troubles: &[Trouble::FlashBursts, Trouble::FlashOutages],
        ..PAGES_OWNED
    },
    Profile {
        name: "synced-forgets",
        what: "as synced, and flushes of flash fail, and lose what it had acknowledged",
        takes: &[&SYNCED],
        mix: Mix { read: 40, write: 40, flush: 14, trim: 2, zero: 4, fill: 0 },
        troubles: &[Trouble::FlashForgets],
        ..PAGES_OWNED
    },
    Profile {
        name: "ram",
        what: "a tier of RAM over flash that holds a part of its pages",
        takes: &[&JOURNALED, &EXTENDED, &WRITE_BACK, &SYNCED],
        ram: &[16 * KIB, 64 * KIB, 512 * KIB],
        ..OWN
    },
    Profile {
        name: "ranges",
        what: "ranges are warmed and evicted by commands",
        takes: &[&JOURNALED, &EXTENDED, &WRITE_BACK, &SYNCED, &VOLATILE],
        units: &[4 * KIB, 16 * KIB, 64 * KIB],
        volumes: &[1, 1, 2],
        percent: 4,
        arranges: 0.05,
        plugs: 0.003,
        ..OWN
    },
    Profile {
        name: "pinned",
        what: "ranges are pinned and excluded",
        takes: &[&JOURNALED, &EXTENDED, &WRITE_BACK, &SYNCED, &VOLATILE],
        units: &[4 * KIB, 16 * KIB, 64 * KIB],
        volumes: &[1, 1, 2],
        percent: 3,
        rules: 0.03,
        arranges: 0.01,
        plugs: 0.002,
        ..OWN
    },
    VERIFIED,
    VERIFIED_OWNED,
    VERIFIED_OWNED_ROT,
    RESIZED,
    RESIZED_VERIFIED,
    GROWN,
    GROWN_VERIFIED,
    ORDERED,
    SETTINGS,
    Profile {
        name: "shared",
        what: "two to four volumes share a cache, and the origin of one may fail",
        takes: &[&JOURNALED, &JOURNALED, &VOLATILE, &EXTENDED],
        ..SHARED
    },
    Profile {
        name: "shared-owned",
        what: "as shared, and flash owns units or pages",
        takes: &[&WRITE_BACK, &SYNCED, &SYNCED, &SYNCED_BY_EVICTION],
        units: &[4 * KIB],
        ..SHARED
    },
    Profile {
        name: "shared-leaves",
        what: "as shared, and volumes leave the cache and join it again",
        takes: &[&JOURNALED, &JOURNALED, &EXTENDED, &WRITE_BACK, &SYNCED],
        departs: 0.03,
        ..SHARED
    },
    Profile {
        name: "shared-hangs",
        what: "as shared, and the origin of one hangs for a while; requests of the others are answered",
        takes: &[&JOURNALED, &JOURNALED, &EXTENDED, &VOLATILE],
        percent: 1,
        troubles: &[Trouble::OriginHangs],
        ..SHARED
    },
    Profile {
        name: "shared-owned-hangs",
        what: "as shared-hangs, and flash owns units or pages",
        takes: &[&WRITE_BACK, &SYNCED, &SYNCED, &SYNCED_AT_ONCE, &SYNCED_BY_EVICTION],
        units: &[4 * KIB],
        percent: 1,
        troubles: &[Trouble::OriginHangs],
        ..SHARED
    },
    Profile {
        name: "shared-forgets",
        what: "as shared, and flushes of one origin fail, and lose what it had acknowledged",
        takes: &[&JOURNALED, &JOURNALED, &EXTENDED, &WRITE_BACK, &SYNCED],
        mix: Mix { read: 40, write: 40, flush: 14, trim: 2, zero: 4, fill: 0 },
        percent: 1,
        troubles: &[Trouble::OriginForgets],
        ..SHARED
    },
];

/// The row of this name. The row `write-back` has an older name, which is accepted too.
#[must_use]
pub fn profile(name: &str) -> Option<&'static Profile> {
    let name = if name == "no-write-back" { "write-back" } else { name };
    PROFILES.iter().find(|p| p.name == name)
}
