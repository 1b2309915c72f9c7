// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kinds of caches, as torture knows them: what is drawn for a kind, what may happen to it, and what it promises.
//!
//! A volume is drawn with a cache of one kind ([`profile`](super::profile)). From then on its steps and judges come from
//! the kind's row, so that neither drawing nor running a history asks what kind it is. A new kind is a row.

use larder_core::config::{Choices, Durability, WritePolicy};
use larder_core::format::Plan;
use larder_core::pagelog::LogPolicy;

use super::choices::{
    Tune, any_log, any_synced, any_units, any_updated, tune_balanced, tune_log, tune_patient,
    tune_synced, tune_synced_at_once, tune_synced_by_eviction, tune_units,
};
use super::places::{self, Sizes};
use super::promise::{Promise, Trouble};
use super::reads::{Judge, against_history, against_origin};
use super::step::{Step, Stop};

/// A kind of cache, see the module.
#[derive(Debug)]
pub struct Kind {
    /// Its name in headlines, which no other has.
    pub name: &'static str,
    pub(super) durability: Durability,
    /// The write policy, where it is not the preset's.
    pub(super) write: Option<WritePolicy>,
    /// Shrinks the preset's choices to the volume; blocks of a page log.
    pub(super) tune: Tune,
    /// Draws any choices of the kind instead; blocks of a page log.
    pub(super) any: Tune,
    /// The choices of a life, counted from 0: a restart may change some.
    pub(super) of_life: fn(&Choices, u32) -> Choices,
    /// Where things lie on flash.
    pub(super) plan: fn(&Sizes, &Choices) -> Plan,
    /// The larger of the block sizes that its flash may have.
    pub(super) large_block_bytes: u32,
    /// What an administrator may ask for before a request, and how probable that is.
    pub(super) asks: &'static [(f64, Step)],
    /// How flash is detached.
    pub(super) leaves: Step,
    /// The kinds of crash, with their weights.
    pub(super) stops: &'static [(u32, Stop)],
    /// Troubles that are not drawn for it, since nothing is promised under them.
    pub(super) excludes: &'static [Trouble],
    /// What is promised otherwise than in the table of troubles.
    pub(super) promises: &'static [(Trouble, Promise)],
    /// Whether the origin by itself holds what every answered FLUSH and FUA write promised.
    pub(super) outlives_flash: bool,
    /// Whether the origin by itself is an older state of the volume.
    pub(super) in_order: bool,
    /// What a read after a crash is compared with.
    pub(super) read_back: Judge,
}

const FLUSHES: (f64, Step) = (0.003, Step::Flush);
const DETACHES: (f64, Step) = (0.0003, Step::Detach);
const LEAVES: (f64, Step) = (0.0003, Step::Leave);
const SETTLES: (f64, Step) = (0.003, Step::Settle);

/// Units whose metadata does not survive; the origin has everything.
pub const VOLATILE: Kind = Kind {
    name: "volatile",
    durability: Durability::Volatile,
    write: None,
    tune: tune_units,
    any: any_units,
    of_life: |choices, _| choices.clone(),
    plan: places::units,
    large_block_bytes: 4096,
    asks: &[DETACHES],
    leaves: Step::Detach,
    stops: &[(1, Stop::FlashLost), (2, Stop::Process), (9, Stop::Power)],
    // There is none.
    excludes: &[Trouble::MetadataRot],
    promises: &[],
    outlives_flash: true,
    in_order: false,
    read_back: against_origin,
};

/// Units with a journal; the origin has everything.
pub const JOURNALED: Kind =
    Kind { name: "journaled", durability: Durability::Journal, excludes: &[], ..VOLATILE };

/// Units without and with a journal, whose misses read a block around the request. Kinds of their own, so that the rows
/// from before draw what they drew.
pub const EXTENDED_VOLATILE: Kind = Kind { name: "extended-volatile", ..VOLATILE };
/// As above, with a journal.
pub const EXTENDED: Kind = Kind { name: "extended", ..JOURNALED };

/// As above, and the origin serves hits too.
pub const BALANCED: Kind = Kind { name: "balanced", tune: tune_balanced, ..EXTENDED };

/// Units with a journal; flash owns the units that it holds.
pub const WRITE_BACK: Kind = Kind {
    name: "write-back",
    any: any_updated,
    // It takes what the origin takes.
    large_block_bytes: 512,
    asks: &[FLUSHES, LEAVES],
    leaves: Step::Leave,
    // Losing the flash device loses its data, as with a disk.
    stops: &[(1, Stop::Power), (2, Stop::Process), (9, Stop::Power)],
    excludes: &[
        Trouble::FlashFull,
        Trouble::FlashHangs,
        Trouble::FlashVanishes,
        Trouble::FlashShrinks,
        // Metadata is kept twice, but payloads are not.
        Trouble::MetadataRot,
        Trouble::DataRot,
    ],
    promises: &[
        (Trouble::FlashOutages, Promise::ErrorsPass),
        // What only flash had and lost cannot be read.
        (Trouble::FlashForgets, Promise::ErrorsPass),
    ],
    outlives_flash: false,
    read_back: against_history,
    ..JOURNALED
};

/// As above, and the origin serves hits in clean regions too.
pub const BALANCED_WRITE_BACK: Kind =
    Kind { name: "balanced-write-back", tune: tune_balanced, ..WRITE_BACK };

/// As [`WRITE_BACK`], every second life has no dirty log, and updates may wait until clients are idle.
pub const UNLOGGED_WRITE_BACK: Kind = Kind {
    name: "unlogged-write-back",
    tune: tune_patient,
    of_life: |choices, life| Choices { dirty_log: life % 2 == 1, ..choices.clone() },
    ..WRITE_BACK
};

/// Units of a page that each miss admits, with a journal; flash owns them until a syncer has copied them to the origin.
pub const SYNCED: Kind = Kind {
    name: "synced",
    write: Some(WritePolicy::WriteBack),
    tune: tune_synced,
    any: any_synced,
    ..WRITE_BACK
};

/// As above; the syncer copies a unit as soon as it is dirty.
pub const SYNCED_AT_ONCE: Kind =
    Kind { name: "synced-at-once", tune: tune_synced_at_once, any: tune_synced_at_once, ..SYNCED };

/// As above; the syncer copies only what eviction wants.
pub const SYNCED_BY_EVICTION: Kind = Kind {
    name: "synced-by-eviction",
    tune: tune_synced_by_eviction,
    any: tune_synced_by_eviction,
    ..SYNCED
};

/// A page log of clean pages.
pub const LOG_THROUGH: Kind = Kind {
    name: "through",
    durability: Durability::Log,
    write: Some(WritePolicy::Logged(LogPolicy::Through)),
    tune: tune_log,
    any: any_log,
    plan: places::passing_logs,
    large_block_bytes: 512,
    asks: &[DETACHES, SETTLES],
    excludes: &[],
    // A page has a checksum.
    promises: &[(Trouble::DataRot, Promise::Invisible)],
    ..VOLATILE
};

/// A page log that is part of the durable state.
pub const LOG_FULL: Kind = Kind {
    name: "full",
    write: Some(WritePolicy::Logged(LogPolicy::Full)),
    plan: places::lasting_logs,
    asks: &[FLUSHES, LEAVES, SETTLES],
    leaves: Step::Leave,
    stops: WRITE_BACK.stops,
    excludes: &[
        Trouble::FlashFull,
        Trouble::FlashHangs,
        Trouble::FlashVanishes,
        Trouble::FlashShrinks,
        Trouble::DataRot,
    ],
    promises: &[
        (Trouble::FlashOutages, Promise::ErrorsPass),
        // What only flash had and lost cannot be read.
        (Trouble::FlashForgets, Promise::ErrorsPass),
    ],
    outlives_flash: false,
    read_back: against_history,
    ..LOG_THROUGH
};

/// The same, and the origin receives changes in the order of FLUSH and FUA.
pub const LOG_ORDERED: Kind = Kind {
    name: "ordered",
    write: Some(WritePolicy::Logged(LogPolicy::Ordered)),
    in_order: true,
    ..LOG_FULL
};

/// A page log that a FLUSH writes back to the origin.
pub const LOG_BOUNDED: Kind = Kind {
    name: "bounded",
    write: Some(WritePolicy::Logged(LogPolicy::Bounded)),
    plan: places::passing_logs,
    outlives_flash: true,
    ..LOG_FULL
};

impl Kind {
    /// The trouble that is used when this one was drawn. Checksums make a promise where there was none.
    pub(super) fn bears(&self, drawn: Trouble, verify: bool) -> Trouble {
        let promised = verify && drawn == Trouble::DataRot || !self.excludes.contains(&drawn);
        if promised { drawn } else { Trouble::None }
    }

    /// What is promised under a trouble.
    #[must_use]
    pub fn promise(&self, trouble: Trouble) -> Promise {
        let own = self.promises.iter().find(|(of, _)| *of == trouble);
        own.map_or_else(|| trouble.promise(), |(_, promise)| *promise)
    }
}
