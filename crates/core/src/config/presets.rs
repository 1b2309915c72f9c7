// SPDX-License-Identifier: MIT OR Apache-2.0
//! Presets: named rows of the five choices.
//!
//! The engine reads the choices, never the name of a preset. Every setting has the paper's value as its default.

use super::choices::{
    AdmissionChoice, Choices, Durability, Eviction, OnExitSettings, Placement, ReplacementChoice,
    WritePolicy,
};
use crate::pagelog::{BATCH_PAGES, LogPolicy};
use larder_policy::admission::{
    Class, ExtendedSettings, InvestmentSettings, OnMissSettings, PeriodicSettings,
    SelectiveSettings, SequentialSettings, SinglesSettings,
};
use larder_policy::balance::BalanceSettings;
use larder_policy::replacement::{BucketOrder, DEFAULT_CEILING};
use larder_policy::syncer::SyncerSettings;
use larder_policy::touched::TouchSettings;

/// A named row.
#[derive(Clone, Copy, Debug)]
pub struct Preset {
    /// Its name on the command line.
    pub name: &'static str,
    /// The paper and section that describe it.
    pub source: &'static str,
    /// The five choices in words: unit, admission, replacement, write policy, metadata.
    pub words: [&'static str; 5],
    choices: fn() -> Choices,
}

impl Preset {
    /// The choices with their default settings.
    #[must_use]
    pub fn choices(&self) -> Choices {
        (self.choices)()
    }
}

/// The preset of a volume that names none.
pub const DEFAULT_PRESET: &str = "larder";

/// Presets of unit caches.
pub const PRESETS: &[Preset] = &[
    Preset {
        name: "sce",
        source: "SCE, ADMS 2014, section 3",
        words: [
            "1 MiB fragment, valid per 4 KiB page",
            "hottest of the 100 most recent misses, by background workers",
            "generalised CLOCK, ceiling 4",
            "asynchronous write-through",
            "journal (in the paper volatile)",
        ],
        choices: sce,
    },
    Preset {
        name: "larder",
        source: "Larder's own",
        words: [
            "1 MiB unit, valid per 4 KiB page; single pages where reads are scattered",
            "misses read their neighbours along; hottest of the 800 most recent misses, by a background worker; in a full cache no streams of over 2 MiB that do not return",
            "generalised CLOCK, ceiling 4; only for a unit that is read more often",
            "asynchronous write-through; the origin too serves clean hits while flash is the busier device",
            "journal",
        ],
        choices: || Choices {
            admission: refined(),
            balance: Some(BalanceSettings::default()),
            touch: Some(TouchSettings::default()),
            ..sce()
        },
    },
    Preset {
        name: "prwc",
        source: "PRWC, Information Systems 2016, section 2",
        words: [
            "1 MiB segment, wholly valid",
            "periodic update: reference factor above 50",
            "cold segment under the clock, in an update",
            "write-back: dirty until evicted",
            "journal",
        ],
        choices: || periodic(WritePolicy::WriteBack),
    },
    Preset {
        name: "proc",
        source: "PRWC, section 3.1: its persistent read-only comparison",
        words: [
            "1 MiB segment, valid per 4 KiB page",
            "periodic update: reference factor above 50",
            "cold segment under the clock, in an update",
            "write-through",
            "journal",
        ],
        choices: || periodic(WritePolicy::WriteThrough),
    },
    Preset {
        name: "slru",
        source: "PRWC, section 3.1: its read-only comparison",
        words: [
            "1 MiB segment, valid per 4 KiB page",
            "every read miss, whole segment, inline",
            "LRU",
            "write-around",
            "volatile",
        ],
        choices: || Choices {
            unit_bytes: 1 << 20,
            placement: Placement::Anywhere,
            admission: on_miss(true, false, 0),
            eviction: Eviction::Replacement(ReplacementChoice::Lru),
            write: WritePolicy::WriteAround,
            durability: Durability::Volatile,
            balance: None,
            touch: None,
            dirty_log: true,
            sync: SyncerSettings::default(),
            verify: false,
        },
    },
    Preset {
        name: "flashcache",
        source: "SCE, section 4.1: its comparison (512-way sets)",
        words: [
            "4 KiB block, sets of 512 neighbours",
            "every miss and write, inline",
            "LRU in the set (or FIFO)",
            "write-through",
            "volatile",
        ],
        choices: || Choices {
            unit_bytes: 4 << 10,
            placement: Placement::Sets { ways: 512, hashed: false },
            admission: on_miss(true, true, 0),
            eviction: Eviction::Replacement(ReplacementChoice::Lru),
            write: WritePolicy::WriteThrough,
            durability: Durability::Volatile,
            balance: None,
            touch: None,
            dirty_log: true,
            sync: SyncerSettings::default(),
            verify: false,
        },
    },
    Preset {
        name: "enhanceio",
        source: "SCE, section 4.1: its comparison (256-way sets)",
        words: [
            "4 KiB block, hashed sets of 256",
            "every miss and write, inline",
            "LRU in the set (or FIFO)",
            "write-through",
            "volatile",
        ],
        choices: || Choices {
            unit_bytes: 4 << 10,
            placement: Placement::Sets { ways: 256, hashed: true },
            admission: on_miss(true, true, 0),
            eviction: Eviction::Replacement(ReplacementChoice::Lru),
            write: WritePolicy::WriteThrough,
            durability: Durability::Volatile,
            balance: None,
            touch: None,
            dirty_log: true,
            sync: SyncerSettings::default(),
            verify: false,
        },
    },
    Preset {
        name: "bcache",
        source: "SCE, section 4.1: its comparison (512 KiB buckets)",
        words: [
            "4 KiB page in a 512 KiB bucket",
            "every miss and write except streams of over 4 MiB; answered before the flash write",
            "least recently used bucket, as a whole",
            "write-through",
            "volatile (its journal is not modelled)",
        ],
        choices: || Choices {
            unit_bytes: 4 << 10,
            placement: Placement::Anywhere,
            admission: on_miss(false, true, 4 << 20),
            eviction: Eviction::Replacement(ReplacementChoice::Buckets {
                bytes: 512 << 10,
                order: BucketOrder::Lru,
            }),
            write: WritePolicy::WriteThrough,
            durability: Durability::Volatile,
            balance: None,
            touch: None,
            dirty_log: true,
            sync: SyncerSettings::default(),
            verify: false,
        },
    },
];

/// Presets of page logs. A log reads its metadata from flash, so it needs a device that stores data. The volumes of the
/// laboratory store none: they use the other presets only, and its database has its own log.
pub const PAGE_LOGS: &[Preset] = &[
    Preset {
        name: "face",
        source: "FaCE, VLDB Journal 2015, section 4",
        words: [
            "4 KiB page in a circular log, batches of 64",
            "every page that is written, or read from the origin",
            "multi-version FIFO, group second chance",
            "write-back, the log survives a crash (or bounded, or write-through)",
            "segments of 65,536 entries and batch headers",
        ],
        choices: || face(true),
    },
    Preset {
        name: "face-basic",
        source: "FaCE, section 4.2: without the second chance",
        words: [
            "4 KiB page in a circular log, batches of 64",
            "every page that is written, or read from the origin",
            "multi-version FIFO",
            "write-back, the log survives a crash (or bounded, or write-through)",
            "segments of 65,536 entries and batch headers",
        ],
        choices: || face(false),
    },
];

fn sce() -> Choices {
    Choices {
        unit_bytes: 1 << 20,
        placement: Placement::Anywhere,
        admission: AdmissionChoice::Selective(SelectiveSettings::default()),
        eviction: Eviction::Replacement(ReplacementChoice::GClock { ceiling: DEFAULT_CEILING }),
        write: WritePolicy::AsyncWriteThrough,
        durability: Durability::Journal,
        balance: None,
        touch: None,
        dirty_log: true,
        sync: SyncerSettings::NONE,
        verify: false,
    }
}

/// Selective admission with all that refines it.
fn refined() -> AdmissionChoice {
    AdmissionChoice::Selective(SelectiveSettings {
        extended: Some(ExtendedSettings::default()),
        by_benefit: true,
        investment: Some(InvestmentSettings::default()),
        singles: Some(SinglesSettings::default()),
        sequential: Some(SequentialSettings::default()),
        // One worker achieves what several do: the pace lets one read of the origin run at a time. One long list holds
        // what the bursts of a cold start miss.
        classes: vec![Class {
            workers: 1,
            target_miss_ratio: 0.0,
            min_free_ratio: 0.0,
            period_ns: 0,
        }],
        list_length: 800,
        // Benefit decides, not heat.
        displace_heat: 2,
        ..SelectiveSettings::default()
    })
}

fn face(second_chance: bool) -> Choices {
    Choices {
        // Pages are cached; this is the stripe of the volume that belongs to one log.
        unit_bytes: 1 << 20,
        placement: Placement::Anywhere,
        admission: AdmissionChoice::OnExit(OnExitSettings {
            reads: true,
            batch_pages: BATCH_PAGES,
        }),
        eviction: Eviction::LogOrder { second_chance },
        write: WritePolicy::Logged(LogPolicy::Full),
        durability: Durability::Log,
        balance: None,
        touch: None,
        dirty_log: true,
        sync: SyncerSettings::NONE,
        verify: false,
    }
}

fn on_miss(client_waits: bool, on_write: bool, bypass_bytes: u64) -> AdmissionChoice {
    AdmissionChoice::OnMiss(OnMissSettings { client_waits, on_write, bypass_bytes })
}

fn periodic(write: WritePolicy) -> Choices {
    Choices {
        unit_bytes: 1 << 20,
        placement: Placement::Anywhere,
        admission: AdmissionChoice::Periodic(PeriodicSettings::default()),
        eviction: Eviction::Update,
        write,
        durability: Durability::Journal,
        balance: None,
        touch: None,
        dirty_log: true,
        sync: SyncerSettings::NONE,
        verify: false,
    }
}

/// All presets.
pub fn presets() -> impl Iterator<Item = &'static Preset> {
    PRESETS.iter().chain(PAGE_LOGS)
}

/// The preset of this name.
#[must_use]
pub fn preset(name: &str) -> Option<&'static Preset> {
    presets().find(|p| p.name == name)
}

/// The smallest unit.
pub const UNIT_BYTES_LEAST: u64 = 4 << 10;
/// The smallest unit with selective admission (SCE 3.4).
pub const FRAGMENT_BYTES_LEAST: u64 = 64 << 10;
/// The largest unit.
pub const UNIT_BYTES_MOST: u64 = 8 << 20;
