// SPDX-License-Identifier: MIT OR Apache-2.0
//! Decides whether a flash may be used (design rule 10).
//!
//! A flash starts warm if all of the following hold: the volume's state record names it and marks it as in use; its label
//! equals the one that this volume would write; the origin is as the record describes it; its metadata is readable and
//! not an earlier copy. Otherwise it starts cold. If it may hold dirty data, of this volume or another, it is refused
//! instead, unless the user gave `--format`.
//!
//! Where several volumes share a clean flash, an origin that is not as recorded costs its own volume's content alone.
//!
//! The decision writes nothing. The caller formats and labels the flash, and changes state records in the order that
//! [`Decision`] states.

use super::kept::{Kept, LogsKept, Medium, Unreadable, is_blank, records_dirty_data};
use super::label::{Found, Label};
use super::plan::Plan;
use super::room::DeviceSize;
use super::state::{OriginFacts, OriginPlace, OriginRecord, StateRecord};
use super::why::{Misfit, WhyCold, WhyRefused, end};
use crate::config::WritePolicy;
use crate::mutant;

/// The options of the user for a flash.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wishes {
    /// `--format`: overwrite it.
    pub formats: bool,
    /// `--adopt`: use it, although no state record names it, or the origin has another path or modification time.
    pub adopted: bool,
}

/// The state records that concern a flash.
#[derive(Clone, Copy, Debug)]
pub struct Records<'a> {
    /// The volume's own.
    pub own: Option<&'a StateRecord>,
    /// The one that names the flash; it may belong to another volume.
    pub naming: Option<&'a StateRecord>,
}

/// The input of a decision, besides the flash.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    /// The plan of the flash if it is formatted for this volume.
    pub plan: &'a Plan,
    /// The flash device.
    pub device: DeviceSize,
    /// The volume's write policy.
    pub write: WritePolicy,
    /// The options of the user.
    pub wishes: Wishes,
    /// The origins, in the order of their places.
    pub origins: &'a [AskedOrigin<'a>],
    /// The state records; `None` if the volume keeps none.
    pub records: Option<Records<'a>>,
}

/// An origin, in the input of a decision.
#[derive(Clone, Copy, Debug)]
pub struct AskedOrigin<'a> {
    /// Its properties.
    pub facts: OriginFacts,
    /// Where it lies; `None` if that is not known.
    pub place: Option<&'a OriginPlace>,
}

/// What to do with a flash.
#[derive(Debug)]
pub enum Decision {
    /// Use its content. The device was flushed.
    Warm(Warm),
    /// Format it. First mark the record that names it as clean and out of use, then the records that the new one
    /// supersedes, then write to the flash.
    Cold {
        /// Why its content is not used.
        why: WhyCold,
        /// Whether formatting may lose dirty data.
        loses_dirty: bool,
    },
    /// Do not write to it.
    Refused(WhyRefused),
}

/// A flash whose content is used.
#[derive(Debug)]
pub struct Warm {
    /// The volume id on its label.
    pub volume: u64,
    /// Its metadata.
    pub kept: Kept,
    /// First byte after the slots with dirty data.
    pub dirty_end: u64,
    /// What the user asserts, if the decision depends on it.
    pub vouched: Option<Vouched>,
    /// Bytes that the origin had when it was served last, if it has grown since.
    pub grew_from: Option<u64>,
    /// Volumes of a clean cache of which the content may not be used, and why. There is another one of which it may be.
    pub stale: Vec<(u32, WhyCold)>,
}

/// What a user asserts with `--adopt`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vouched {
    /// The flash belongs to this volume, although no state record names it.
    Flash,
    /// No program wrote to the origin, although its modification time changed.
    Origin,
    /// It is the same origin, although its path or address changed.
    Place,
}

/// The owner of a device, by its label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// A Larder cache.
    Larder,
    /// No owner if the whole device is zero, else another program.
    NobodyIfZero,
}

/// Whether its label permits writing to a device without `--format`.
///
/// # Errors
/// Why not.
pub fn owner(found: &Found, device_bytes: u64) -> Result<Owner, WhyRefused> {
    match found {
        // A cache that may hold dirty data must be complete.
        Found::Label(label) if label.keeps.dirty && end(label) > device_bytes => {
            Err(WhyRefused::CutShort { bytes: device_bytes, needed: end(label) })
        }
        Found::Label(_) => Ok(Owner::Larder),
        Found::Unknown { version } => Err(WhyRefused::Version { version: *version }),
        Found::Damaged => Err(WhyRefused::DamagedLabel),
        Found::Nothing => Ok(Owner::NobodyIfZero),
    }
}

/// Decides about a flash with this label. The caller checks that a device without a label is empty.
#[must_use]
pub fn admit(found: &Found, asked: &Asked<'_>, flash: &impl Medium) -> Decision {
    if !asked.wishes.formats
        && let Err(why) = owner(found, asked.device.bytes)
    {
        return Decision::Refused(why);
    }
    let Found::Label(label) = found else {
        return Decision::Cold { why: WhyCold::New, loses_dirty: false };
    };
    match may_use(label, asked, flash) {
        Ok(warm) => Decision::Warm(warm),
        Err(why) => {
            let dirty = may_hold_dirty(label, asked, flash);
            if dirty && !asked.wishes.formats && !mutant::is_active("dirty-flash-formatted") {
                let adopted = asked.wishes.adopted || matches!(why, WhyCold::OriginOfOther { .. });
                return Decision::Refused(WhyRefused::MayHoldDirty { why, adopted });
            }
            Decision::Cold { why, loses_dirty: dirty }
        }
    }
}

/// The content of the flash, or why it may not be used.
fn may_use(label: &Label, asked: &Asked<'_>, flash: &impl Medium) -> Result<Warm, WhyCold> {
    let records = asked.records.filter(|_| asked.plan.keeps_metadata());
    let Some(records) = records else { return Err(WhyCold::WriteBack) };
    if asked.wishes.formats {
        return Err(WhyCold::FormatGiven);
    }
    if !label.keeps_metadata() {
        return Err(WhyCold::NoJournal);
    }
    let ignored = mutant::is_active("state-file-ignored");
    let Some(state) = records.own.filter(|state| state.names(label.volume) || ignored) else {
        if asked.wishes.adopted && may_adopt(label, asked, &records) {
            fits(label, asked)?;
            // Its size is all that distinguishes it from another origin.
            if let Some(was) = grew_from(label.origin_bytes, asked) {
                let is = asked.origins[0].facts.bytes;
                return Err(WhyCold::OriginResized { was, is });
            }
            return read(label, asked, flash, Some(Vouched::Flash));
        }
        return Err(records.own.map_or(WhyCold::Unnamed, |_| WhyCold::OtherFlash));
    };
    if !state.in_use && !ignored {
        return Err(WhyCold::OutOfUse);
    }
    if state.origins.len() != asked.origins.len() {
        return Err(WhyCold::OtherVolumes { recorded: state.origins_in_words() });
    }
    fits(label, asked)?;
    if state.dirty && !asked.write.flash_owns() {
        return Err(WhyCold::WriteBack);
    }
    let vouches = asked.wishes.adopted && state.dirty;
    let (mut vouched, mut stale) = (None, Vec::new());
    for ((number, recorded), origin) in (0..).zip(&state.origins).zip(asked.origins) {
        // Dirty data of the one would be copied to the other.
        let is_of_other = || {
            let place = origin.place?;
            let others = (0..).zip(&state.origins).filter(|(other, _)| *other != number);
            let other = others.map(|(_, other)| other).find(|other| other.is_at(place))?;
            Some(WhyCold::OriginOfOther { volume: other.name.clone() })
        };
        let vouches = vouches && recorded.may_be_dirty() && is_of_other().is_none();
        match fits_origin(recorded, origin, asked, vouches) {
            Ok(new) => vouched = vouched.or(new),
            Err(why) if state.dirty && recorded.may_be_dirty() => {
                return Err(is_of_other().unwrap_or(why));
            }
            Err(why) => stale.push((number, why)),
        }
    }
    // Without any origin nothing is left.
    if stale.len() == state.origins.len() {
        stale.drain(..).next().map_or(Ok(()), |(_, why)| Err(why))?;
    }
    let warm = read(label, asked, flash, vouched)?;
    let reached = warm.kept.reached();
    let behind = reached.iter().zip(&state.reached).any(|(found, reached)| found < reached);
    if behind && !mutant::is_active("older-flash-accepted") {
        return Err(WhyCold::EarlierCopy);
    }
    let grew_from = state.origins.first().and_then(|of| grew_from(of.origin_bytes, asked));
    Ok(Warm { stale, grew_from, ..warm })
}

/// The former size of a lone origin that is larger now.
fn grew_from(was: u64, asked: &Asked<'_>) -> Option<u64> {
    let [alone] = asked.origins else { return None };
    (was < alone.facts.bytes).then_some(was)
}

/// Whether an origin is as its record describes it, and what the user asserts for that.
fn fits_origin(
    recorded: &OriginRecord,
    origin: &AskedOrigin<'_>,
    asked: &Asked<'_>,
    vouches: bool,
) -> Result<Option<Vouched>, WhyCold> {
    let (was, is) = (recorded.origin_bytes, origin.facts.bytes);
    if !asked.plan.serves(was, is) {
        return Err(WhyCold::OriginResized { was, is });
    }
    if !recorded.in_use {
        return Err(WhyCold::OutOfUse);
    }
    let moved = origin.place.is_some_and(|place| !recorded.is_at(place));
    if moved && !vouches {
        return Err(WhyCold::OtherOrigin { recorded: recorded.origin.clone() });
    }
    let known = recorded.origin_mtime_ns;
    let changed = known.is_some() && known != origin.facts.modified_ns;
    if changed && !vouches {
        return Err(WhyCold::OriginChanged);
    }
    Ok(match (moved, changed) {
        (true, _) => Some(Vouched::Place),
        (false, true) => Some(Vouched::Origin),
        (false, false) => None,
    })
}

fn fits(label: &Label, asked: &Asked<'_>) -> Result<(), WhyCold> {
    let wanted = asked.plan.label(label.volume);
    if *label == wanted {
        return Ok(());
    }
    Err(WhyCold::Misfit(Box::new(Misfit { found: label.clone(), wanted })))
}

fn read(
    label: &Label,
    asked: &Asked<'_>,
    flash: &impl Medium,
    vouched: Option<Vouched>,
) -> Result<Warm, WhyCold> {
    let kept = Kept::read(asked.plan, label.volume, flash)?;
    if !kept.is_within(asked.plan, label.volume) {
        return Err(Unreadable::Damaged.into());
    }
    flash.flush().map_err(Unreadable::Flush)?;
    let dirty_end = kept.dirty_end(asked.plan, label.volume);
    if dirty_end > asked.device.bytes {
        return Err(WhyCold::TooShort { least: dirty_end });
    }
    let (volume, stale) = (label.volume, Vec::new());
    Ok(Warm { volume, kept, dirty_end, vouched, grew_from: None, stale })
}

/// Whether the flash may hold dirty data and no state record names it.
fn may_adopt(label: &Label, asked: &Asked<'_>, records: &Records<'_>) -> bool {
    records.naming.is_none()
        && (label.keeps.dirty || label.log().is_some())
        && asked.write.flash_owns()
}

/// Whether a flash may hold dirty data, of this volume or another.
fn may_hold_dirty(label: &Label, asked: &Asked<'_>, flash: &impl Medium) -> bool {
    let naming = asked.records.and_then(|records| records.naming);
    let marked = naming.map(|record| record.dirty);
    // A label does not contain stripes, so the volume's own plan is preferred.
    let own = (*label == asked.plan.label(label.volume)).then_some(*asked.plan);
    let plan = own.or_else(|| Plan::of_label(label, asked.device).ok());
    let is_dirty = || plan.is_some_and(|plan| records_dirty_data(&plan, label.volume, flash));
    let blank = || plan.is_some_and(|plan| is_blank(&plan, label.volume, flash));
    match label.keeps.dirty {
        true if marked.is_none() && blank() => false,
        // A record that marks the flash as clean may be an earlier copy, restored from a backup.
        true => {
            marked != Some(false)
                || (is_dirty()
                    && !plan.is_some_and(|plan| was_cleared(&plan, label, naming, flash)))
        }
        // Logs that do not survive a crash may hold dirty pages after a stop.
        false => marked == Some(true) || (label.log().is_some() && is_dirty()),
    }
}

/// Whether a detach wrote the dirty pages of these logs to the origin: the state record is not older than the logs, and
/// marks the flash as clean and out of use.
fn was_cleared(
    plan: &Plan,
    label: &Label,
    naming: Option<&StateRecord>,
    flash: &impl Medium,
) -> bool {
    let (Plan::Logs(logs), Some(state)) = (plan, naming) else { return false };
    let Ok(LogsKept { reached, .. }) = LogsKept::read(logs, label.volume, flash) else {
        return false;
    };
    let known = |(found, recorded): (&(u64, u64), &(u64, u64))| found.0 <= recorded.0;
    !state.in_use
        && !state.dirty
        && reached.len() == state.reached.len()
        && reached.iter().zip(&state.reached).all(known)
}
