// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which choices may be combined, and the kind of cache that they make.
//!
//! The engine takes a [`CacheSpec`], which is made from [`Choices`] only: an invalid combination cannot be constructed.

use super::choices::{
    AdmissionChoice, Choices, Durability, Eviction, Placement, ReplacementChoice, WritePolicy,
};
use crate::buf::PAGE;
use crate::pagelog::{LogPolicy, LogSettings};
use larder_policy::balance::BalanceSettings;
use larder_policy::replacement::{Replacement, Update};
use larder_policy::syncer::SyncerSettings;
use larder_policy::touched::TouchSettings;

/// A choice that cannot be combined with the others.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{setting}: {reason}; accepted: {accepted}")]
pub struct Rejected {
    /// The choice, by the name of its setting.
    pub setting: &'static str,
    /// Why it is rejected.
    pub reason: &'static str,
    /// What is accepted with the other choices.
    pub accepted: &'static str,
}

/// A valid combination of choices.
#[derive(Clone, Debug, PartialEq)]
pub struct CacheSpec {
    /// Bytes of a unit; with a page log, bytes of a stripe of the volume that belongs to one shard.
    pub unit_bytes: u64,
    pub(crate) admission: AdmissionChoice,
    pub(crate) kind: KindSpec,
}

/// The kind of a cache, with the choices that only it has.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum KindSpec {
    Clean(CleanSpec),
    WriteBack(WriteBackSpec),
    Log(LogSpec),
}

/// The slots of a unit cache: placement and replacement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct SlotSpec {
    pub placement: Placement,
    /// None: only an update evicts.
    pub replacement: Option<ReplacementChoice>,
}

impl SlotSpec {
    /// The replacement policy of so many slots, in sets of `ways`.
    pub(crate) fn build_replacement(
        &self,
        slots: u32,
        ways: u32,
        unit_bytes: u64,
    ) -> Box<dyn Replacement> {
        match self.replacement {
            Some(policy) => policy.build(slots, ways, unit_bytes),
            None => Box::new(Update),
        }
    }
}

/// The data on a flash device, which decides how its failure is handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Contents {
    /// Copies of data on the origin: overdue operations and a failed device are abandoned.
    Copies,
    /// Dirty data: only the flash can answer, so its operations have no time limit, and a failed device stays in use.
    Dirty,
}

/// A clean cache of units.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct CleanSpec {
    pub slots: SlotSpec,
    pub flash_copy: FlashCopy,
    pub balance: Option<BalanceSettings>,
    pub touch: Option<TouchSettings>,
}

/// When a write's flash copy is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FlashCopy {
    /// After the client was answered.
    AfterAnswer,
    /// Before the client is answered.
    BeforeAnswer,
    /// Not at all.
    Never,
}

/// A write-back cache of units.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct WriteBackSpec {
    pub slots: SlotSpec,
    /// Whether the journal records which regions are dirty; else all count as dirty after a restart.
    pub dirty_log: bool,
    pub sync: SyncerSettings,
    pub balance: Option<BalanceSettings>,
}

/// A cache in page logs.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct LogSpec {
    pub settings: LogSettings,
    pub contents: Contents,
    /// Whether pages read from the origin are admitted.
    pub admits_reads: bool,
}

impl CacheSpec {
    /// Whether a FLUSH goes to every shard, since each has dirty data that a crash would lose. Else the first shard flushes
    /// the devices.
    #[must_use]
    pub fn flushes_every_shard(&self) -> bool {
        match &self.kind {
            KindSpec::Clean(_) => false,
            KindSpec::WriteBack(_) => true,
            KindSpec::Log(spec) => spec.contents == Contents::Dirty,
        }
    }

    /// Whether a cache in use may take another specification: nothing differs that a restart reads from flash.
    pub(crate) fn may_become(&self, other: &Self) -> bool {
        let mut same = other.clone();
        if let (KindSpec::Clean(same), KindSpec::Clean(own)) = (&mut same.kind, &self.kind) {
            same.flash_copy = own.flash_copy;
        }
        if let (Some(same), Some(own)) = (same.kind.slots_mut(), self.kind.slots())
            && same.replacement.is_some() == own.replacement.is_some()
        {
            same.replacement = own.replacement;
        }
        same == *self
    }

    /// Whether it caches units, which several volumes may share, and which may be pinned and excluded. In a page log one origin that
    /// refuses pages would hold up all volumes: its tail passes only what is durable on the origin.
    #[must_use]
    pub fn has_units(&self) -> bool {
        !matches!(self.kind, KindSpec::Log(_))
    }

    /// The device whose holes are those of the volume; `None` if flash may hold data there.
    pub fn with_holes<D>(&self, origin: D) -> Option<D> {
        (self.kind.contents() == Contents::Copies).then_some(origin)
    }
}

impl KindSpec {
    /// The slots of a cache of units.
    pub fn slots(&self) -> Option<&SlotSpec> {
        match self {
            Self::Clean(spec) => Some(&spec.slots),
            Self::WriteBack(spec) => Some(&spec.slots),
            Self::Log(_) => None,
        }
    }

    fn slots_mut(&mut self) -> Option<&mut SlotSpec> {
        match self {
            Self::Clean(spec) => Some(&mut spec.slots),
            Self::WriteBack(spec) => Some(&mut spec.slots),
            Self::Log(_) => None,
        }
    }

    /// The data on flash.
    pub fn contents(&self) -> Contents {
        match self {
            Self::Clean(_) => Contents::Copies,
            Self::WriteBack(_) => Contents::Dirty,
            Self::Log(spec) => spec.contents,
        }
    }
}

impl TryFrom<&Choices> for CacheSpec {
    type Error = Rejected;

    fn try_from(choices: &Choices) -> Result<Self, Rejected> {
        choices.clone().try_into()
    }
}

impl TryFrom<Choices> for CacheSpec {
    type Error = Rejected;

    fn try_from(choices: Choices) -> Result<Self, Rejected> {
        let kind = match choices.write {
            WritePolicy::Logged(policy) => KindSpec::Log(log(&choices, policy)?),
            WritePolicy::WriteBack => KindSpec::WriteBack(write_back(&choices)?),
            WritePolicy::AsyncWriteThrough => clean(&choices, FlashCopy::AfterAnswer)?,
            WritePolicy::WriteThrough => clean(&choices, FlashCopy::BeforeAnswer)?,
            WritePolicy::WriteAround => clean(&choices, FlashCopy::Never)?,
        };
        Ok(Self { unit_bytes: choices.unit_bytes, admission: choices.admission, kind })
    }
}

fn rejected<T>(
    setting: &'static str,
    reason: &'static str,
    accepted: &'static str,
) -> Result<T, Rejected> {
    Err(Rejected { setting, reason, accepted })
}

fn log(choices: &Choices, policy: LogPolicy) -> Result<LogSpec, Rejected> {
    let AdmissionChoice::OnExit(settings) = &choices.admission else {
        return rejected("admission", "a page log admits the pages that are written", "on exit");
    };
    let Eviction::LogOrder { second_chance } = choices.eviction else {
        return rejected(
            "replacement",
            "pages are evicted in the order of the log",
            "multi-version FIFO",
        );
    };
    if choices.balance.is_some() {
        return rejected("balance", "a page log reads hits from flash only", "none");
    }
    if choices.durability != Durability::Log {
        return rejected("durability", "a page log has its own metadata", "log");
    }
    let contents = match policy {
        LogPolicy::Through => Contents::Copies,
        LogPolicy::Bounded | LogPolicy::Full | LogPolicy::Ordered => Contents::Dirty,
    };
    let settings_of_log = LogSettings { policy, second_chance };
    Ok(LogSpec { settings: settings_of_log, contents, admits_reads: settings.reads })
}

fn write_back(choices: &Choices) -> Result<WriteBackSpec, Rejected> {
    let on_miss = matches!(choices.admission, AdmissionChoice::OnMiss(_));
    // A write that misses admits its unit only if it covers it.
    let whole = choices.admission.is_periodic() || on_miss && choices.unit_bytes == PAGE as u64;
    if !whole {
        return rejected(
            "write policy",
            "flash has dirty units as a whole",
            "write-back with periodic admission, or with units of 4 KiB that each miss admits",
        );
    }
    let Choices { balance, dirty_log, sync, .. } = *choices;
    Ok(WriteBackSpec { slots: slots(choices)?, dirty_log, sync, balance })
}

fn clean(choices: &Choices, flash_copy: FlashCopy) -> Result<KindSpec, Rejected> {
    let Choices { balance, touch, .. } = *choices;
    Ok(KindSpec::Clean(CleanSpec { slots: slots(choices)?, flash_copy, balance, touch }))
}

/// The choices that every cache of units needs.
fn slots(choices: &Choices) -> Result<SlotSpec, Rejected> {
    if matches!(choices.admission, AdmissionChoice::OnExit(_)) {
        return rejected("admission", "only a page log admits on exit", "any other");
    }
    if choices.durability == Durability::Log {
        return rejected("durability", "units have no page log", "volatile, journal");
    }
    let placement = choices.placement;
    match (choices.eviction, choices.admission.is_periodic()) {
        (Eviction::Update, true) if placement != Placement::Anywhere => {
            rejected("placement", "an update exchanges any two slots", "anywhere")
        }
        (Eviction::Update, true) => Ok(SlotSpec { placement, replacement: None }),
        (Eviction::Replacement(policy), false) => {
            if placement != Placement::Anywhere && !policy.knows_sets() {
                return rejected("replacement", "units are placed in sets", "lru, fifo");
            }
            Ok(SlotSpec { placement, replacement: Some(policy) })
        }
        (_, true) => {
            rejected("replacement", "units are evicted by updates", "none with periodic admission")
        }
        (_, false) => rejected("replacement", "unit caches need one", "a replacement policy"),
    }
}
