// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads the metadata on a flash: of a cache of units, or of page logs.
//!
//! Writes nothing. A caller that uses the result flushes the device first: the last block may have been read from a
//! volatile write cache.

use super::logs::LogsPlan;
use super::plan::Plan;
use crate::buf::Buf;
use crate::journal::cut::cut;
use crate::journal::layout::Layout;
use crate::journal::recover::{Recovered, Unusable, recover};
use crate::journal::start::begin;
use crate::pagelog::{Geometry, Inspection, OpenError};
use crate::request::Errno;

/// The most bytes of one read.
const STEP: u64 = 1 << 20;

/// A flash device to read.
pub trait Medium {
    /// Fills a buffer of at most 1 MiB from byte `at` of the device.
    ///
    /// # Errors
    /// If the device cannot be read.
    fn fill(&self, at: u64, buf: Buf) -> Result<Buf, Errno>;

    /// Makes all data durable that was written or read.
    ///
    /// # Errors
    /// If the device cannot be flushed.
    fn flush(&self) -> Result<(), Errno>;

    /// Reads any number of bytes.
    ///
    /// # Errors
    /// If the device cannot be read, or there is not enough memory.
    fn read(&self, at: u64, len: u64) -> Result<Vec<u8>, Errno> {
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(len as usize).map_err(|_| Errno::ENOMEM)?;
        while (bytes.len() as u64) < len {
            let done = bytes.len() as u64;
            let step = Buf::with_len((len - done).min(STEP) as usize);
            bytes.extend_from_slice(&self.fill(at + done, step)?);
        }
        Ok(bytes)
    }
}

/// The metadata of all shards.
#[derive(Debug)]
pub enum Kept {
    /// The state of the slots, by shard; empty without a journal.
    Units(Vec<Recovered>),
    /// A summary of the page logs, which their shards open themselves.
    Logs(LogsKept),
}

/// A summary of page logs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogsKept {
    /// The progress of each log.
    pub reached: Vec<(u64, u64)>,
    /// Logs that are not used because they were not closed.
    pub unclosed: usize,
    /// Whether a log holds dirty data.
    pub dirty: bool,
    /// Torn blocks beyond the logs' ends.
    pub torn: u64,
}

/// Why metadata or page logs cannot be recovered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    /// A journal without a complete checkpoint of this volume.
    #[error("holds no complete checkpoint")]
    NoCheckpoint,
    /// A damaged journal.
    #[error("holds damaged metadata")]
    Damaged,
    /// The device fails reads.
    #[error("cannot be read: {0}")]
    Read(Errno),
    /// A page log that is damaged or cannot be read.
    #[error("holds a page log that cannot be used: {0}")]
    Log(OpenError),
    /// The device fails flushes.
    #[error("cannot be flushed: {0}")]
    Flush(Errno),
}

impl From<Unusable> for Unreadable {
    fn from(why: Unusable) -> Self {
        match why {
            Unusable::Nothing => Self::NoCheckpoint,
            Unusable::Damaged => Self::Damaged,
            Unusable::Device(errno) => Self::Read(errno),
        }
    }
}

/// Recovers the journal of a shard.
///
/// # Errors
/// Why it cannot be recovered.
pub fn look_at_journal(
    layout: &Layout,
    volume: u64,
    flash: &impl Medium,
) -> Result<Recovered, Unreadable> {
    Ok(recover(layout, volume, &mut |at, len| flash.read(at, len))?)
}

/// Reads the page log of a shard.
///
/// # Errors
/// Why it cannot be used.
pub fn look_at_log<'a>(
    logs: &LogsPlan,
    place: Geometry,
    flash: &'a impl Medium,
) -> Result<Inspection<'a>, OpenError> {
    let pages = logs.shape.pages();
    Inspection::new(place, logs.settings(), pages, |at, buf| flash.fill(at, buf))
}

/// Whether the readable part of the metadata of this volume records dirty data.
pub(super) fn records_dirty_data(plan: &Plan, volume: u64, flash: &impl Medium) -> bool {
    match plan {
        Plan::Units(units) => units.layouts(volume).any(|at| {
            let found = look_at_journal(&at, volume, flash);
            found.is_ok_and(|f| (0..at.slots).any(|slot| f.dirty(slot, &at) != 0))
        }),
        Plan::Logs(logs) => logs
            .each(volume)
            .any(|place| look_at_log(logs, place, flash).is_ok_and(|look| look.is_dirty())),
    }
}

/// Whether the metadata of this volume is as formatting wrote it: no start has used the flash. A stop between the label of a new
/// formatting and the state record that names it leaves such a flash.
pub(super) fn is_blank(plan: &Plan, volume: u64, flash: &impl Medium) -> bool {
    let unused = match plan {
        Plan::Units(_) => (1, 0),
        Plan::Logs(_) => (0, 0),
    };
    let same = |(at, bytes): (u64, Vec<u8>)| {
        flash.read(at, bytes.len() as u64).is_ok_and(|found| found == bytes)
    };
    Kept::read(plan, volume, flash)
        .is_ok_and(|kept| kept.reached().iter().all(|reached| *reached == unused))
        && plan.blank(volume).into_iter().all(same)
}

impl Kept {
    /// Reads the metadata of this volume.
    ///
    /// # Errors
    /// Why the metadata of a shard cannot be used.
    pub fn read(plan: &Plan, volume: u64, flash: &impl Medium) -> Result<Self, Unreadable> {
        match plan {
            Plan::Units(units) => {
                let found = units.layouts(volume).map(|at| look_at_journal(&at, volume, flash));
                found.collect::<Result<_, _>>().map(Self::Units)
            }
            Plan::Logs(logs) => LogsKept::read(logs, volume, flash).map(Self::Logs),
        }
    }

    /// The metadata of an empty cache.
    #[must_use]
    pub fn nothing(plan: &Plan) -> Self {
        match plan {
            Plan::Units(_) => Self::Units(Vec::new()),
            Plan::Logs(_) => Self::Logs(LogsKept::default()),
        }
    }

    /// The recovered journals of the shards; empty for page logs.
    #[must_use]
    pub fn recovered(self) -> Vec<Recovered> {
        match self {
            Self::Units(recovered) => recovered,
            Self::Logs(_) => Vec::new(),
        }
    }

    /// The progress of the metadata of each shard.
    #[must_use]
    pub fn reached(&self) -> Vec<(u64, u64)> {
        match self {
            Self::Units(recovered) => recovered.iter().map(Recovered::reached).collect(),
            Self::Logs(logs) => logs.reached.clone(),
        }
    }

    /// Begins to use what was found: leaves out the slots that a plan does not use, none of which has dirty data, and continues
    /// each journal. Returns the writes that make it durable, in order, each of which is durable before the next.
    pub fn begin(&mut self, plan: &Plan, volume: u64) -> Vec<(u64, Vec<u8>)> {
        let (Self::Units(found), Plan::Units(units)) = (self, plan) else { return Vec::new() };
        let Some(metadata) = units.metadata else { return Vec::new() };
        let shards = (0..).zip(units.layouts(volume)).zip(found);
        let writes = shards.flat_map(|((shard, at), found)| {
            let own = (&at, volume);
            let slots = metadata.shape.of_shard(shard).slots_of(units.slots);
            let mut writes = cut(found, own, slots);
            writes.extend(begin(found, own));
            writes
        });
        writes.collect()
    }

    /// Whether all units that were recovered lie within the origin.
    pub(super) fn is_within(&self, plan: &Plan, volume: u64) -> bool {
        let (Self::Units(found), Plan::Units(units)) = (self, plan) else { return true };
        let Some(metadata) = units.metadata else { return true };
        let mut shards = (0..).zip(units.layouts(volume)).zip(found);
        shards.all(|((shard, layout), found)| {
            let units = metadata.shape.of_shard(shard).units();
            let mut used = (0..layout.slots).filter_map(|slot| found.unit(slot, &layout));
            used.all(|unit| u64::from(unit) < units)
        })
    }

    /// First byte after the last slot with dirty data; 0 if there is none, and for page logs.
    pub(super) fn dirty_end(&self, plan: &Plan, volume: u64) -> u64 {
        let (Self::Units(found), Plan::Units(units)) = (self, plan) else { return 0 };
        let end = |(at, found): (Layout, &Recovered)| {
            let last = found.held(&at).filter(|held| held.dirty != 0).last()?;
            Some(at.slots_at + u64::from(last.slot) * at.slot_stride + units.unit_bytes)
        };
        units.layouts(volume).zip(found).filter_map(end).max().unwrap_or(0)
    }

    /// Whether these are page logs with dirty data.
    pub(super) fn is_dirty_log(&self) -> bool {
        matches!(self, Self::Logs(LogsKept { dirty: true, .. }))
    }
}

impl LogsKept {
    /// Reads the page logs of this volume.
    ///
    /// # Errors
    /// Why one of the logs cannot be used.
    pub fn read(logs: &LogsPlan, volume: u64, flash: &impl Medium) -> Result<Self, Unreadable> {
        let mut kept = Self::default();
        for place in logs.each(volume) {
            let look = look_at_log(logs, place, flash).map_err(Unreadable::Log)?;
            let reached = look.found.reached();
            // A log that was never opened has generation 0 and does not count as unclosed.
            kept.unclosed += usize::from(!look.found.warm && reached.0 > 0);
            kept.dirty |= look.is_dirty();
            kept.torn += look.found.torn;
            kept.reached.push(reached);
        }
        Ok(kept)
    }
}
