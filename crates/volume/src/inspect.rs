// SPDX-License-Identifier: MIT OR Apache-2.0
//! What lies on a flash device, and what a start would make of it: `larder check`.
//!
//! Reads only, and says for each shard whether its metadata or its page log can be recovered, by the functions that a
//! start uses. A repair writes the lost copy of the label, which is known, and nothing else: what else is there twice, a
//! start writes anew.
//!
//! Why not damaged metadata: where the origin has everything a start formats it anew by itself, under
//! a new volume id, and where flash may alone have data nobody knows what would be right.
//!
//! The state file decides too whether a start uses the content: [`Report::start`], which knows less than
//! [`admit`](larder_core::format::admit): neither the origin nor the settings.

use larder_core::buf::PAGE;
use larder_core::format::label::{Found, Label};
use larder_core::format::{
    Plan, ShardState, StateRecord, Unreadable, Used, look_at_journal, look_at_log, outlook,
};
use larder_core::journal::layout::Layout;
use larder_core::journal::recover::Recovered;
use larder_core::pagelog::{Inspection, OpenError};
use larder_io::Device;
use serde::Serialize;

use super::error::VolumeError;
use super::flash::{label_of, lost_labels, size_of, write_label};
use super::raw_io::Raw;

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
    /// Bytes of the origin that it was formatted for; none in a volatile cache.
    pub origin_bytes: Option<u64>,
    /// Whether it belongs to a write-back cache, so that it may hold dirty data.
    pub write_back: bool,
    /// The write policies that it may have been used under.
    pub write_policy: &'static str,
    /// Slots in use, or valid pages, over all shards that can be recovered.
    pub units_used: u64,
    /// Units or pages of which flash alone has something, as far as is known.
    pub units_dirty: u64,
    /// One for each worker that it was formatted for; none in a volatile cache.
    pub shards: Vec<ShardReport>,
    /// What a start would do with the content of the device alone; the state file may forbid it.
    pub verdict: &'static str,
    /// Whether anything is damaged.
    pub damaged: bool,
    /// What a repair wrote.
    pub repaired: Vec<String>,
}

impl Report {
    /// What a start would do with this state record; none if no state file records the device.
    #[must_use]
    pub fn start(&self, record: Option<&StateRecord>) -> &'static str {
        if self.verdict != "starts warm" && !self.verdict.starts_with("starts cold where") {
            return self.verdict;
        }
        let dirty = self.units_dirty > 0 || (self.write_back && record.is_none_or(|r| r.dirty));
        let cold = |clean: &'static str, refused: &'static str| if dirty { refused } else { clean };
        match record {
            None => cold(
                "starts cold: no state file records it",
                "is refused without --adopt: it may hold dirty data, and no state file records it",
            ),
            Some(record) if !record.in_use => {
                "starts cold: it was detached or it failed, and writes continued without it"
            }
            Some(record) if self.is_earlier_than(record) => cold(
                "starts cold: it is a copy from before the last start or stop",
                "is refused: it is a copy from before the last start or stop, and may hold dirty data",
            ),
            Some(_) => self.verdict,
        }
    }

    /// Whether a journal had come further at the last start or stop. This report does not have it of page logs.
    fn is_earlier_than(&self, record: &StateRecord) -> bool {
        let mut shards = self.shards.iter().zip(&record.reached);
        let is_earlier =
            |(s, reached): (&ShardReport, &(u64, u64))| (s.generation, s.log_blocks) < *reached;
        self.batch_pages.is_none() && shards.any(is_earlier)
    }
}

/// What one shard's metadata says.
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
    /// Units or pages of which flash alone has something.
    pub units_dirty: u64,
    /// Blocks at the end of a page log that do not count, since a batch there is not whole.
    pub torn_blocks: u64,
}

/// Looks at a device; with `repair`, writes what can be put right.
///
/// # Errors
/// When it cannot be read or written, or holds nothing of ours.
pub fn inspect(device: &Device, repair: bool) -> Result<Report, VolumeError> {
    let label = find(device)?;
    let plan = Plan::of_label(&label, size_of(device)).map_err(|unsuitable| {
        VolumeError::Refused(format!(
            "{}: {unsuitable}, which may have been cut short or be another; accepted: the whole device",
            device.name()
        ))
    })?;
    let mut repaired = Vec::new();
    for at in lost_labels(device, &label)?.into_iter().filter(|_| repair) {
        write_label(device, &label, at)?;
        repaired.push(format!("the copy of the label at byte {at}"));
    }
    Ok(Report { repaired, ..report(device, &plan, &label)? })
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

fn report(device: &Device, plan: &Plan, label: &Label) -> Result<Report, VolumeError> {
    let (raw, volume) = (Raw(device), label.volume);
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
    Ok(Report {
        flash: device.name().to_owned(),
        volume: format!("{:016x}", label.volume),
        labels,
        unit_bytes,
        slots: label.slots,
        batch_pages,
        origin_bytes: (label.origin_bytes > 0).then_some(label.origin_bytes),
        write_back,
        write_policy,
        units_used: used,
        units_dirty: shards.iter().map(|s| s.units_dirty).sum(),
        verdict: outlook(label, &states, used),
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
        units_used: count(&|slot| found.unit(slot, layout).is_some()),
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
        inspect(&device, false)
    }

    /// Metadata of an origin so large would be read at a length of gibibytes.
    #[test]
    fn a_label_that_promises_more_than_the_device_has_is_refused() {
        assert_eq!(labelled(64 << 20).unwrap().slots, 2);
        let refused = labelled(1 << 55).unwrap_err().to_string();
        assert!(refused.contains("does not suit the device"), "{refused}");
    }
}
