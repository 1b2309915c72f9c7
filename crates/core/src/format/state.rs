// SPDX-License-Identifier: MIT OR Apache-2.0
//! The state record of a volume, stored off the flash: whether a flash device may be used (design rule 10).
//!
//! A record contains the flash's volume id and whether that flash is in use. It is durably "out of use" before the first
//! write that bypasses the flash is acknowledged. A flash that the record does not name, or that is out of use, starts
//! cold.
//!
//! The record also contains the progress of the flash's metadata, which reveals an earlier copy of the flash, unless the
//! copy was made after the last start. And it describes the origin: its size and, after a clean stop, its modification
//! time.
//!
//! This file has the content of a record and its change by each event. The driver stores records.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::kept::Kept;
use crate::config::WritePolicy;
use crate::ranges;

/// The version of the record.
pub const FORMAT: u32 = 1;

/// A state record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object")]
pub struct StateRecord {
    /// The version of the record.
    pub format: u32,
    /// The flash's volume id, in hexadecimal. A record that was read may contain any text.
    pub volume: String,
    /// Whether that flash may be used.
    pub in_use: bool,
    /// Whether that flash may hold dirty data.
    pub dirty: bool,
    /// The origin's path without links, or its address.
    pub origin: String,
    /// The link to it in /dev that the user gave, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin_link: Option<Box<str>>,
    /// Size of the origin.
    pub origin_bytes: u64,
    /// The origin's modification time, in nanoseconds since 1970: after a clean stop, for files only.
    pub origin_mtime_ns: Option<i64>,
    /// The metadata's progress in each shard at the last start or stop: its generation, and blocks of that log. A flash
    /// with less progress is an earlier copy.
    #[serde(default)]
    pub reached: Vec<(u64, u64)>,
    /// Of each page log, the pages that its recovery ignores: they were changed past the log while flash failed, and an older
    /// version may be on flash. First page, and the page after the last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ignored: Vec<Vec<(u64, u64)>>,
    /// The preset under which the flash was last attached: the volume's default at the next start. Earlier versions
    /// recorded none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preset: Option<Box<str>>,
}

/// The properties of an origin that a decision depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OriginFacts {
    /// Its size.
    pub bytes: u64,
    /// Its modification time, in nanoseconds since 1970; `None` for a block device.
    pub modified_ns: Option<i64>,
}

/// Where an origin lies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OriginPlace {
    /// Its path without links, or its address.
    pub resolved: String,
    /// The link to it in /dev that the user gave, if there is one. After a restart of the machine the device may have
    /// another path, and the system makes the link point there.
    pub link: Option<Box<str>>,
}

impl StateRecord {
    /// The record of a flash that is attached to an origin. If dirty data survives a crash, it counts as dirty.
    #[must_use]
    pub fn attached(
        volume: u64,
        kept: &Kept,
        write: WritePolicy,
        origin: &OriginPlace,
        origin_bytes: u64,
    ) -> Self {
        Self {
            format: FORMAT,
            volume: hex(volume),
            in_use: true,
            // Logs that do not survive a crash write their dirty pages of a stop to the origin before they open.
            dirty: write.flash_keeps() || kept.is_dirty_log(),
            origin: origin.resolved.clone(),
            origin_link: origin.link.clone(),
            origin_bytes,
            origin_mtime_ns: None,
            reached: kept.reached(),
            ignored: Vec::new(),
            preset: None,
        }
    }

    /// As `earlier`, the recovery of its logs ignores pages, if that is a record of the same flash.
    #[must_use]
    pub fn ignoring_as(self, earlier: Option<&Self>) -> Self {
        let same = earlier.filter(|earlier| earlier.volume == self.volume);
        let ignored = same.map_or_else(Vec::new, |earlier| earlier.ignored.clone());
        Self { ignored, ..self }
    }

    /// The recovery of this log ignores these pages, and no others.
    #[must_use]
    pub fn ignoring(mut self, log: u32, pages: &[Range<u64>]) -> Self {
        let log = log as usize;
        self.ignored.resize_with(self.ignored.len().max(log + 1), Vec::new);
        self.ignored[log] = pages.iter().map(|pages| (pages.start, pages.end)).collect();
        if self.ignored.iter().all(Vec::is_empty) {
            self.ignored.clear();
        }
        self
    }

    /// The recovery of every log ignores nothing: each began again.
    #[must_use]
    pub fn ignoring_nothing(self) -> Self {
        Self { ignored: Vec::new(), ..self }
    }

    /// The pages that the recovery of this log ignores, in order and apart from each other. A record that was read may have
    /// any numbers.
    #[must_use]
    pub fn ignored(&self, log: u32) -> Vec<Range<u64>> {
        let pages = self.ignored.get(log as usize).map_or(&[][..], Vec::as_slice);
        ranges::merged(pages.iter().map(|(first, end)| *first..*end).collect())
    }

    /// The flash was attached under this preset.
    #[must_use]
    pub fn under(self, preset: Option<Box<str>>) -> Self {
        Self { preset, ..self }
    }

    /// The page logs were opened, each in this generation: the generations before are earlier copies. Progress within the
    /// generation is not recorded, since a crash may revert it.
    #[must_use]
    pub fn opened(self, generations: &[u64], write: WritePolicy) -> Self {
        let reached = generations.iter().map(|generation| (*generation, 0)).collect();
        Self { reached, dirty: write.flash_keeps(), ..self }
    }

    /// The volume stopped cleanly. A later write to the origin changes its modification time.
    #[must_use]
    pub fn stopped(
        self,
        reached: Vec<(u64, u64)>,
        dirty: bool,
        origin_mtime_ns: Option<i64>,
    ) -> Self {
        Self { reached, dirty, origin_mtime_ns, ..self }
    }

    /// The flash holds no dirty data.
    #[must_use]
    pub fn cleaned(self) -> Self {
        Self { dirty: false, ..self }
    }

    /// Writes bypass the flash.
    #[must_use]
    pub fn out_of_use(self) -> Self {
        Self { in_use: false, ..self }
    }

    /// Whether the record is of the origin at this place.
    #[must_use]
    pub fn is_of(&self, place: &OriginPlace) -> bool {
        self.origin == place.resolved
            || self.origin_link.is_some() && self.origin_link == place.link
    }

    /// Whether the record names this flash.
    #[must_use]
    pub fn names(&self, volume: u64) -> bool {
        self.volume == hex(volume)
    }
}

/// A volume's id in the form of a record.
fn hex(volume: u64) -> String {
    format!("{volume:016x}")
}

/// A state record, and where it is kept.
pub type Placed<T> = (T, StateRecord);

/// The records, of all in one place, that must be marked "out of use" before a volume of this origin starts. `own` selects
/// the volume's own record, which stays in use if it names the flash `keeps`.
///
/// # Errors
/// The record of a flash that may hold dirty data of the origin: the volume cannot start without that flash.
pub fn superseded<T>(
    records: Vec<Placed<T>>,
    own: impl Fn(&T) -> bool,
    origin: &str,
    keeps: Option<u64>,
) -> Result<Vec<Placed<T>>, Box<Placed<T>>> {
    let mut superseded = Vec::new();
    for (place, record) in records {
        let is_own = own(&place);
        let kept = is_own && keeps.is_some_and(|volume| record.names(volume));
        if !record.in_use || kept || !(is_own || record.origin == origin) {
            continue;
        }
        if record.dirty {
            return Err(Box::new((place, record)));
        }
        superseded.push((place, record.out_of_use()));
    }
    Ok(superseded)
}
