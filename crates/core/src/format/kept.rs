// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the metadata on a flash says: of a cache of units, or of page logs.
//!
//! Nothing is written here. Whoever uses what was found flushes the device after it was read: the last block may have
//! been read from a write cache that the next power cut empties.

use super::logs::LogsPlan;
use super::plan::Plan;
use crate::buf::Buf;
use crate::journal::layout::Layout;
use crate::journal::recover::{Recovered, Unusable, recover};
use crate::pagelog::{Geometry, Look, OpenError};
use crate::request::Errno;

/// The most bytes of one read.
const STEP: u64 = 1 << 20;

/// A flash device that is looked at.
pub trait Medium {
    /// Fills a buffer from a byte of the device on; the buffer has at most a MiB.
    ///
    /// # Errors
    /// If the device cannot be read.
    fn fill(&self, at: u64, buf: Buf) -> Result<Buf, Errno>;

    /// Makes durable what was written and read.
    ///
    /// # Errors
    /// If the device cannot be flushed.
    fn flush(&self) -> Result<(), Errno>;

    /// Reads any number of bytes.
    ///
    /// # Errors
    /// If the device cannot be read.
    fn read(&self, at: u64, len: u64) -> Result<Vec<u8>, Errno> {
        let mut bytes = Vec::with_capacity(len as usize);
        while (bytes.len() as u64) < len {
            let done = bytes.len() as u64;
            let step = Buf::with_len((len - done).min(STEP) as usize);
            bytes.extend_from_slice(&self.fill(at + done, step)?);
        }
        Ok(bytes)
    }
}

/// What the metadata of all shards says.
#[derive(Debug)]
pub enum Kept {
    /// What each slot holds, by shard; nothing where there is no journal.
    Units(Vec<Recovered>),
    /// What the page logs hold, which their shards open themselves.
    Logs(LogsKept),
}

/// What page logs hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogsKept {
    /// How far each log had come.
    pub reached: Vec<(u64, u64)>,
    /// Logs that do not count, since they were not closed.
    pub unclosed: usize,
    /// Whether the origin lacks anything that is there.
    pub dirty: bool,
    /// Blocks behind the logs' ends that do not count.
    pub torn: u64,
}

/// Why metadata or page logs cannot be recovered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    /// A journal that was never formatted as this volume's.
    #[error("holds no complete checkpoint")]
    NoCheckpoint,
    /// A journal that lost what it said.
    #[error("holds damaged metadata")]
    Damaged,
    /// The device fails reads.
    #[error("cannot be read: {0}")]
    Read(Errno),
    /// A page log that lost what it said, or that cannot be read.
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

/// What the journal of a shard says.
///
/// # Errors
/// Why that is unknown.
pub fn look_at_journal(
    layout: &Layout,
    volume: u64,
    flash: &impl Medium,
) -> Result<Recovered, Unreadable> {
    Ok(recover(layout, volume, &mut |at, len| flash.read(at, len))?)
}

/// What the page log of a shard holds.
///
/// # Errors
/// Why that is unknown.
pub fn look_at_log<'a>(
    logs: &LogsPlan,
    place: Geometry,
    flash: &'a impl Medium,
) -> Result<Look<'a>, OpenError> {
    Look::new(place, logs.settings(), |at, buf| flash.fill(at, buf))
}

/// Whether the metadata of this volume, as far as it can be read, says that flash holds dirty data.
pub(super) fn says_dirty(plan: &Plan, volume: u64, flash: &impl Medium) -> bool {
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

impl Kept {
    /// What the metadata of this volume says.
    ///
    /// # Errors
    /// Why what one of the shards has is unknown.
    pub fn read(plan: &Plan, volume: u64, flash: &impl Medium) -> Result<Self, Unreadable> {
        match plan {
            Plan::Units(units) => {
                let found = units.layouts(volume).map(|at| look_at_journal(&at, volume, flash));
                found.collect::<Result<_, _>>().map(Self::Units)
            }
            Plan::Logs(logs) => LogsKept::read(logs, volume, flash).map(Self::Logs),
        }
    }

    /// What an empty cache without metadata has kept.
    #[must_use]
    pub fn nothing(plan: &Plan) -> Self {
        match plan {
            Plan::Units(_) => Self::Units(Vec::new()),
            Plan::Logs(_) => Self::Logs(LogsKept::default()),
        }
    }

    /// What the journal of each shard says; nothing of page logs.
    #[must_use]
    pub fn recovered(self) -> Vec<Recovered> {
        match self {
            Self::Units(recovered) => recovered,
            Self::Logs(_) => Vec::new(),
        }
    }

    /// How far the metadata of each shard has come.
    #[must_use]
    pub fn reached(&self) -> Vec<(u64, u64)> {
        match self {
            Self::Units(recovered) => recovered.iter().map(Recovered::reached).collect(),
            Self::Logs(logs) => logs.reached.clone(),
        }
    }

    /// Whether these are page logs with something that the origin lacks.
    pub(super) fn is_dirty_log(&self) -> bool {
        matches!(self, Self::Logs(LogsKept { dirty: true, .. }))
    }
}

impl LogsKept {
    /// What the page logs of this volume hold.
    ///
    /// # Errors
    /// Why what one of the logs has is unknown.
    pub fn read(logs: &LogsPlan, volume: u64, flash: &impl Medium) -> Result<Self, Unreadable> {
        let mut kept = Self::default();
        for place in logs.each(volume) {
            let look = look_at_log(logs, place, flash).map_err(Unreadable::Log)?;
            let reached = look.found.reached();
            // A log that was never opened is not closed either.
            kept.unclosed += usize::from(!look.found.warm && reached.0 > 0);
            kept.dirty |= look.is_dirty();
            kept.torn += look.found.torn;
            kept.reached.push(reached);
        }
        Ok(kept)
    }
}
