// SPDX-License-Identifier: MIT OR Apache-2.0
//! May this flash be used? (design rule 10)
//!
//! A flash is used if the volume's state record names it and says that it is in use, if its label is the one that this
//! volume would write, if the origin is what the record describes, and if its metadata is readable and not an earlier
//! copy. Otherwise it starts cold, which loses nothing where the origin has everything. A flash that may hold dirty data,
//! of this volume or another, is refused instead, unless the user gives up what is there.
//!
//! The decision reads the flash and writes nothing. Carrying it out is the caller's: to format and label the flash, and
//! to change state records in the order that [`Decision`] gives.

use super::kept::{Kept, LogsKept, Medium, Unreadable, says_dirty};
use super::label::{Found, Label};
use super::plan::Plan;
use super::room::DeviceSize;
use super::state::{OriginFacts, StateRecord};
use super::why::{Misfit, WhyCold, WhyRefused, end};
use crate::config::WritePolicy;
use crate::mutant;

/// What the user says of a flash.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wishes {
    /// What is there is not wanted.
    pub formats: bool,
    /// The flash is this volume's, although no state record names it or the origin has another time.
    pub adopted: bool,
}

/// The state records that concern a flash.
#[derive(Clone, Copy, Debug)]
pub struct Records<'a> {
    /// The volume's own.
    pub own: Option<&'a StateRecord>,
    /// The one that names the flash, whatever volume it is of.
    pub naming: Option<&'a StateRecord>,
}

/// What a decision depends on, besides the flash.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    /// Where things lie if the flash is formatted for this volume.
    pub plan: &'a Plan,
    /// The flash device.
    pub device: DeviceSize,
    /// The volume's write policy.
    pub write: WritePolicy,
    /// What the user says.
    pub wishes: Wishes,
    /// The origin.
    pub origin: OriginFacts,
    /// The state records; none if the volume keeps none.
    pub records: Option<Records<'a>>,
}

/// What to do with a flash.
#[derive(Debug)]
pub enum Decision {
    /// Use it as it is. The device was flushed.
    Warm(Warm),
    /// Format it. First the record that names it, if there is one, says that it holds no dirty data and is out of use.
    /// Then the records that it supersedes do, and then it is written to.
    Cold {
        /// Why it is not used as it is.
        why: WhyCold,
        /// Whether it may hold dirty data, which the user gives up.
        loses_dirty: bool,
    },
    /// Leave it alone.
    Refused(WhyRefused),
}

/// A flash that is used as it is.
#[derive(Debug)]
pub struct Warm {
    /// The volume id on its label.
    pub volume: u64,
    /// What its metadata says.
    pub kept: Kept,
    /// What the user vouches for, where that decided.
    pub vouched: Option<Vouched>,
}

/// What a user vouches for with `--adopt`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vouched {
    /// No state record names the flash; it is this volume's.
    Flash,
    /// The origin has another time than the state record says; nobody wrote to it.
    Origin,
}

/// Whose a device is, by its label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// A cache's.
    Larder,
    /// Nobody's if all of it is zero, else somebody's data.
    NobodyIfZero,
}

/// Whether a device may be written to without the user's explicit wish, as far as its label says.
///
/// # Errors
/// Why not.
pub fn owner(found: &Found, device_bytes: u64) -> Result<Owner, WhyRefused> {
    match found {
        // What may hold dirty data must be all there.
        Found::Label(label) if label.keeps.dirty && end(label) > device_bytes => {
            Err(WhyRefused::CutShort { bytes: device_bytes, needed: end(label) })
        }
        Found::Label(_) => Ok(Owner::Larder),
        Found::Unknown { version } => Err(WhyRefused::Version { version: *version }),
        Found::Damaged => Err(WhyRefused::DamagedLabel),
        Found::Nothing => Ok(Owner::NobodyIfZero),
    }
}

/// Decides what to do with a flash on which this label was found. That a device without a label is empty is for the
/// caller to check.
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
                return Decision::Refused(WhyRefused::MayHoldDirty(why));
            }
            Decision::Cold { why, loses_dirty: dirty }
        }
    }
}

/// What is on the flash, or why it may not be used.
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
        if asked.wishes.adopted && is_nobodys(label, asked, &records) {
            fits(label, asked)?;
            return read(label, asked, flash, Some(Vouched::Flash));
        }
        return Err(records.own.map_or(WhyCold::Unnamed, |_| WhyCold::OtherFlash));
    };
    if !state.in_use && !ignored {
        return Err(WhyCold::OutOfUse);
    }
    fits(label, asked)?;
    if state.dirty && !asked.write.flash_owns() {
        return Err(WhyCold::WriteBack);
    }
    if state.origin_bytes != asked.origin.bytes {
        return Err(WhyCold::OriginResized);
    }
    let changed =
        state.origin_mtime_ns.is_some() && state.origin_mtime_ns != asked.origin.modified_ns;
    let vouches = asked.wishes.adopted && state.dirty;
    if changed && !vouches {
        return Err(WhyCold::OriginChanged);
    }
    let warm = read(label, asked, flash, changed.then_some(Vouched::Origin))?;
    let reached = warm.kept.reached();
    let behind = reached.iter().zip(&state.reached).any(|(found, reached)| found < reached);
    if behind && !mutant::is_active("older-flash-accepted") {
        return Err(WhyCold::PutBack);
    }
    Ok(warm)
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
    flash.flush().map_err(Unreadable::Flush)?;
    Ok(Warm { volume: label.volume, kept, vouched })
}

/// Whether no state record names this flash, which may hold dirty data: only then may it be adopted.
fn is_nobodys(label: &Label, asked: &Asked<'_>, records: &Records<'_>) -> bool {
    records.naming.is_none()
        && (label.keeps.dirty || label.log().is_some())
        && asked.write.flash_owns()
}

/// Whether a flash may hold dirty data, of this volume or another.
fn may_hold_dirty(label: &Label, asked: &Asked<'_>, flash: &impl Medium) -> bool {
    let naming = asked.records.and_then(|records| records.naming);
    let said = naming.map(|record| record.dirty);
    // Stripes are not on a label, so the volume's own plan is the better one.
    let own = (*label == asked.plan.label(label.volume)).then_some(*asked.plan);
    let plan = own.or_else(|| Plan::of_label(label, asked.device).ok());
    let says = || plan.is_some_and(|plan| says_dirty(&plan, label.volume, flash));
    match label.keeps.dirty {
        // A record that says "clean" may be an earlier one that was put back.
        true => {
            said != Some(false)
                || (says() && !plan.is_some_and(|plan| was_emptied(&plan, label, naming, flash)))
        }
        // A stop may have left dirty pages in logs that do not survive a crash.
        false => said == Some(true) || (label.log().is_some() && says()),
    }
}

/// Whether a detach had written the dirty pages of these logs to the origin: the state record is of their generation, and
/// marks the flash as clean.
fn was_emptied(
    plan: &Plan,
    label: &Label,
    naming: Option<&StateRecord>,
    flash: &impl Medium,
) -> bool {
    let (Plan::Logs(logs), Some(state)) = (plan, naming) else { return false };
    let Ok(LogsKept { reached, .. }) = LogsKept::read(logs, label.volume, flash) else {
        return false;
    };
    let known = |(found, said): (&(u64, u64), &(u64, u64))| found.0 <= said.0;
    !state.in_use
        && !state.dirty
        && reached.len() == state.reached.len()
        && reached.iter().zip(&state.reached).all(known)
}
