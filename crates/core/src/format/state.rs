// SPDX-License-Identifier: MIT OR Apache-2.0
//! The state record of a volume, kept off the flash: whether what lies on a flash device may be used (design rule 10).
//!
//! A record names the flash's volume id and says whether that flash is in use. Before the first write that goes on
//! without the flash is answered, the record durably says "out of use". A flash that the record does not name, or that is
//! out of use, starts cold.
//!
//! The record also says how far the flash's metadata had come, which shows an earlier copy of the flash unless the copy
//! was made after the last start. And it describes the origin: its size and, after a stop in good order, when it was last
//! modified.
//!
//! Here is what a record says and how each event changes it. Where records are kept is the driver's business.

use serde::{Deserialize, Serialize};

use super::kept::Kept;
use crate::config::WritePolicy;

/// The version of the record.
pub const FORMAT: u32 = 1;

/// What is known of a flash, see the module.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StateRecord {
    /// The version of the record.
    pub format: u32,
    /// The flash's volume id, in hexadecimal. What was read may be any text.
    pub volume: String,
    /// Whether that flash may be used.
    pub in_use: bool,
    /// Whether that flash may hold dirty data.
    pub dirty: bool,
    /// The origin, by the place where it lies.
    pub origin: String,
    /// Size of the origin.
    pub origin_bytes: u64,
    /// When the origin was last modified, in nanoseconds since 1970: known after a stop in good order and only for
    /// files.
    pub origin_mtime_ns: Option<i64>,
    /// How far the metadata of each shard had come at the last start or stop: its generation, and blocks of that log. A
    /// flash that has come less far is an earlier copy.
    #[serde(default)]
    pub reached: Vec<(u64, u64)>,
}

/// An origin, as far as a decision depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OriginFacts {
    /// Its size.
    pub bytes: u64,
    /// When it was last modified, in nanoseconds since 1970; unknown of a block device.
    pub modified_ns: Option<i64>,
}

impl StateRecord {
    /// A flash begins to be used for an origin. Where dirty data survives a crash, any crash may leave some.
    #[must_use]
    pub fn attached(
        volume: u64,
        kept: &Kept,
        write: WritePolicy,
        origin: &str,
        origin_bytes: u64,
    ) -> Self {
        Self {
            format: FORMAT,
            volume: hex(volume),
            in_use: true,
            // What a stop left in logs that no crash survives is brought to the origin before they open.
            dirty: write.flash_keeps() || kept.is_dirty_log(),
            origin: origin.to_owned(),
            origin_bytes,
            origin_mtime_ns: None,
            reached: kept.reached(),
        }
    }

    /// The page logs were opened, each in this generation: what was found is an earlier copy from now on, and nothing
    /// that a crash may take is dirty. How far the logs come in the generation, a crash may take back.
    #[must_use]
    pub fn opened(self, generations: &[u64], write: WritePolicy) -> Self {
        let reached = generations.iter().map(|generation| (*generation, 0)).collect();
        Self { reached, dirty: write.flash_keeps(), ..self }
    }

    /// The volume stopped in good order. An origin that is written to from now on has another time.
    #[must_use]
    pub fn stopped(
        self,
        reached: Vec<(u64, u64)>,
        dirty: bool,
        origin_mtime_ns: Option<i64>,
    ) -> Self {
        Self { reached, dirty, origin_mtime_ns, ..self }
    }

    /// The origin has everything.
    #[must_use]
    pub fn cleaned(self) -> Self {
        Self { dirty: false, ..self }
    }

    /// Writes go on without the flash.
    #[must_use]
    pub fn out_of_use(self) -> Self {
        Self { in_use: false, ..self }
    }

    /// Whether the record names this flash.
    #[must_use]
    pub fn names(&self, volume: u64) -> bool {
        self.volume == hex(volume)
    }
}

/// A volume's id as records have it.
fn hex(volume: u64) -> String {
    format!("{volume:016x}")
}

/// The records that are to say "out of use" before a volume of this origin goes on, of all records that are kept
/// together. `own` tells the volume's own record, which stays in use if it names the flash `keeps`.
///
/// # Errors
/// The record of a flash that may hold dirty data of the origin: the volume cannot go on without that flash.
pub fn superseded<T>(
    records: Vec<(T, StateRecord)>,
    own: impl Fn(&T) -> bool,
    origin: &str,
    keeps: Option<u64>,
) -> Result<Vec<(T, StateRecord)>, (T, StateRecord)> {
    let mut superseded = Vec::new();
    for (place, record) in records {
        let is_own = own(&place);
        let kept = is_own && keeps.is_some_and(|volume| record.names(volume));
        if !record.in_use || kept || !(is_own || record.origin == origin) {
            continue;
        }
        if record.dirty {
            return Err((place, record));
        }
        superseded.push((place, record.out_of_use()));
    }
    Ok(superseded)
}
