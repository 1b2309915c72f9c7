// SPDX-License-Identifier: MIT OR Apache-2.0
//! The content of a flash device, and what a start does with it: `larder check`.
//!
//! The report states for each shard whether its metadata or its page log can be recovered, by the functions that a start
//! uses. It reads only, except with a repair, which writes a lost copy of the label. A start rewrites everything else of
//! which there are two copies.
//!
//! Why a repair leaves damaged metadata: where the origin has all data, a start formats the flash by itself under a new
//! volume id. Where flash may hold dirty data, the correct metadata is unknown.

use std::path::PathBuf;

use larder_core::buf::PAGE;
use larder_core::format::label::{Found, Label};
use larder_core::format::{
    OriginFacts, Plan, StateRecord, Unreadable, Used, look_at_journal, look_at_log, owner,
};
use larder_core::journal::layout::Layout;
use larder_core::journal::recover::Recovered;
use larder_core::pagelog::{Inspection, OpenError};
use larder_io::{Device, rough_size};
use serde::Serialize;

use super::error::VolumeError;
use super::flash::{label_of, lost_labels, refused, size_of, write_label};
use super::raw_io::Raw;
use super::state_file::StateFile;
use super::verdict::{origin_facts, verdict};

/// What is on a device.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The device.
    pub flash: String,
    /// Names the formatting, in hexadecimal.
    pub volume: String,
    /// Whole copies of the label, of two.
    pub labels: u32,
    /// Bytes of a unit, or of a page of a log.
    pub unit_bytes: u64,
    /// Slots, or blocks of page logs.
    pub slots: u64,
    /// Pages of a batch, where pages lie in logs.
    pub batch_pages: Option<u32>,
    /// Bytes of the origin when it was served last; none in a volatile cache.
    pub origin_bytes: Option<u64>,
    /// Whether it belongs to a write-back cache, so that it may hold dirty data.
    pub write_back: bool,
    /// The write policies that it may have been used under.
    pub write_policy: &'static str,
    /// Slots in use, or valid pages, over all shards that can be recovered.
    pub units_used: u64,
    /// Units or pages with dirty data, as far as is known.
    pub units_dirty: u64,
    /// One for each worker that it was formatted for; none in a volatile cache.
    pub shards: Vec<ShardReport>,
    /// What a start does with the device.
    pub verdict: String,
    /// The state file that names the device.
    pub state_file: Option<PathBuf>,
    /// Whether that file permits the use of the device.
    pub in_use: Option<bool>,
    /// The origins that the state file names.
    #[serde(skip)]
    pub origin: Option<String>,
    /// Why one of them was not read; it is then assumed to be unchanged.
    #[serde(skip)]
    pub origin_unread: Option<String>,
    /// Whether anything is damaged.
    pub damaged: bool,
    /// What a repair wrote.
    pub repaired: Vec<String>,
}

/// The state of the metadata, or of the page log, of a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ShardState {
    /// It can be recovered.
    Whole,
    /// A part of it is lost.
    Damaged,
    /// No checkpoint was ever completed.
    Empty,
    /// A page log that was not closed and is invalid.
    Open,
    /// The device fails reads.
    Unreadable,
}

impl std::fmt::Display for ShardState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Whole => "whole",
            Self::Damaged => "damaged",
            Self::Empty => "empty",
            Self::Open => "open",
            Self::Unreadable => "unreadable",
        })
    }
}

/// The metadata of a shard.
#[derive(Clone, Debug, Serialize)]
pub struct ShardReport {
    /// Whether it can be recovered.
    pub state: ShardState,
    /// The region in force's generation, or the log's.
    pub generation: u64,
    /// Blocks of its log that are written.
    pub log_blocks: u64,
    /// Slots in use, or valid pages.
    pub units_used: u64,
    /// Units or pages with dirty data.
    pub units_dirty: u64,
    /// Invalid blocks at the end of a page log: a batch there is incomplete.
    pub torn_blocks: u64,
}

/// Inspects a device; with `repair`, writes a lost copy of its label. `files` is any state file of the directory that
/// the server uses; without it, the device counts as one that no state file names.
///
/// # Errors
/// When the device cannot be read or written, holds no cache of this program, or is shorter than its cache; when the state
/// file that names it cannot be used.
pub fn inspect(
    device: &Device,
    repair: bool,
    files: Option<&StateFile>,
) -> Result<Report, VolumeError> {
    let (label, plan) = plan_of(device)?;
    let mut repaired = Vec::new();
    for at in lost_labels(device, &label)?.into_iter().filter(|_| repair) {
        write_label(device, &label, at)?;
        repaired.push(format!("the copy of the label at byte {at}"));
    }
    Ok(Report { repaired, ..report(device, &plan, &label, files)? })
}

/// The label of a device, and the places that follow from it.
pub(crate) fn plan_of(device: &Device) -> Result<(Label, Plan), VolumeError> {
    let label = find(device)?;
    let size = size_of(device);
    owner(&Found::Label(label.clone()), size.bytes).map_err(|why| refused(device, &why))?;
    let plan = Plan::of_label(&label, size).map_err(|unsuitable| {
        let end = label.sections.iter().map(|s| s.offset.saturating_add(s.bytes)).max();
        let why = match end.filter(|end| *end > size.bytes) {
            Some(end) => format!(
                "it was cut short: it holds {} of a cache of {}, and starts cold; the origin has all data",
                rough_size(size.bytes),
                rough_size(end)
            ),
            None => format!("{unsuitable}; accepted: the flash device of a cache"),
        };
        VolumeError::Refused(format!("{}: {why}", device.name()))
    })?;
    Ok((label, plan))
}

fn find(device: &Device) -> Result<Label, VolumeError> {
    let refuse = |what: &str| {
        Err(VolumeError::Refused(format!(
            "{}: {what}; accepted: the flash device of a cache",
            device.name()
        )))
    };
    match label_of(device)? {
        Found::Label(label) => Ok(label),
        Found::Unknown { version } => {
            refuse(&format!("holds format version {version}, newer than this program"))
        }
        Found::Damaged => refuse("both copies of its label are damaged"),
        Found::Nothing => refuse("holds nothing of Larder's"),
    }
}

fn report(
    device: &Device,
    plan: &Plan,
    label: &Label,
    files: Option<&StateFile>,
) -> Result<Report, VolumeError> {
    let (raw, volume) = (Raw(device), label.volume);
    let recorded = files.map(|file| file.of_flash(volume)).transpose()?.flatten();
    let record = recorded.as_ref().map(|(_, record)| record);
    // A lone origin may have grown since flash was formatted.
    let served = record.and_then(|record| match &record.origins[..] {
        [alone] => Some(alone.origin_bytes),
        _ => None,
    });
    let origin_bytes = served.unwrap_or(label.origin_bytes).max(label.origin_bytes);
    let plan = &plan.of_origin(origin_bytes);
    let shards: Vec<ShardReport> = match plan {
        Plan::Logs(logs) => {
            logs.each(volume).map(|at| of_log(look_at_log(logs, at, &raw))).collect()
        }
        Plan::Units(units) => {
            let found = |at: Layout| of_shard(&at, look_at_journal(&at, volume, &raw));
            units.layouts(volume).map(found).collect()
        }
    };
    let labels = 2 - lost_labels(device, label)?.len() as u32;
    let states: Vec<ShardState> = shards.iter().map(|s| s.state).collect();
    let Used { write_policy, write_back } = Used::of(label);
    let (batch_pages, unit_bytes) = match plan {
        Plan::Logs(logs) => (Some(logs.batch_pages), PAGE as u64),
        Plan::Units(units) => (None, units.unit_bytes),
    };
    let used = shards.iter().map(|s| s.units_used).sum();
    let read = match record {
        Some(record) => record.origins.iter().map(origin_facts).collect(),
        None => vec![(OriginFacts { bytes: label.origin_bytes, modified_ns: None }, None)],
    };
    let (origins, unread): (Vec<OriginFacts>, Vec<Option<String>>) = read.into_iter().unzip();
    let origin_unread = unread.into_iter().flatten().next();
    Ok(Report {
        verdict: verdict(device, label, plan, used, record, &origins),
        in_use: record.map(|record| record.in_use),
        origin: record.map(StateRecord::origins_in_words),
        origin_unread,
        state_file: recorded.as_ref().map(|(file, _)| file.path().to_owned()),
        flash: device.name().to_owned(),
        volume: format!("{:016x}", label.volume),
        labels,
        unit_bytes,
        slots: plan.slots(),
        batch_pages,
        origin_bytes: (label.origin_bytes > 0).then_some(origin_bytes),
        write_back,
        write_policy,
        units_used: used,
        units_dirty: shards.iter().map(|s| s.units_dirty).sum(),
        damaged: labels < 2
            || states.iter().any(|s| !matches!(s, ShardState::Whole | ShardState::Open)),
        shards,
        repaired: Vec::new(),
    })
}

fn nothing(state: ShardState) -> ShardReport {
    ShardReport {
        state,
        generation: 0,
        log_blocks: 0,
        units_used: 0,
        units_dirty: 0,
        torn_blocks: 0,
    }
}

fn of_log(found: Result<Inspection<'_>, OpenError>) -> ShardReport {
    let look = match found {
        Ok(look) => look,
        Err(OpenError::Device { .. }) => return nothing(ShardState::Unreadable),
        Err(_) => return nothing(ShardState::Damaged),
    };
    ShardReport {
        state: if look.found.warm { ShardState::Whole } else { ShardState::Open },
        generation: look.found.reached().0,
        log_blocks: look.used(),
        units_used: look.pages().count() as u64,
        units_dirty: look.pages().filter(|(_, _, dirty)| *dirty).count() as u64,
        torn_blocks: look.found.torn,
    }
}

fn of_shard(layout: &Layout, found: Result<Recovered, Unreadable>) -> ShardReport {
    let found = match found {
        Ok(found) => found,
        Err(Unreadable::NoCheckpoint) => return nothing(ShardState::Empty),
        Err(Unreadable::Read(_)) => return nothing(ShardState::Unreadable),
        Err(_) => return nothing(ShardState::Damaged),
    };
    let count = |what: &dyn Fn(u32) -> bool| (0..layout.slots).filter(|s| what(*s)).count() as u64;
    ShardReport {
        state: ShardState::Whole,
        generation: found.end.generation,
        log_blocks: found.end.sequence,
        units_used: count(&|slot| found.is_used(slot, layout)),
        units_dirty: count(&|slot| found.dirty(slot, layout) != 0),
        torn_blocks: 0,
    }
}

#[cfg(test)]
mod tests {
    use larder_core::config::preset;
    use larder_core::format::{Frame, UnitsPlan};
    use larder_core::shape::Shape;
    use larder_io::{Access, DevSpec};

    use super::*;

    fn labelled(origin_bytes: u64) -> Result<Report, VolumeError> {
        let device = Device::open(&DevSpec::Mem(8 << 20), Access::ReadWrite).unwrap();
        let shape = Shape::new(origin_bytes, 1 << 20, 1);
        let choices = preset("prwc").unwrap().choices();
        let plan = Plan::Units(UnitsPlan::of(Frame::DEVICE, shape, 2, 512, &choices, 64 << 10));
        write_label(&device, &plan.label(7), 0).unwrap();
        inspect(&device, false, None)
    }

    /// Metadata of an origin so large would be read at a length of gibibytes.
    #[test]
    fn a_label_that_promises_more_than_the_device_has_is_refused() {
        assert_eq!(labelled(64 << 20).unwrap().slots, 2);
        let refused = labelled(1 << 55).unwrap_err().to_string();
        assert!(refused.contains("holds 8MiB of a cache that takes"), "{refused}");
    }
}
