// SPDX-License-Identifier: MIT OR Apache-2.0
//! The state record of a volume, stored off the flash: whether a flash device may be used (design rule 10).
//!
//! A record contains the flash's volume id and whether that flash is in use. It is durably "out of use" before the first
//! write that bypasses the flash is acknowledged. A flash that the record does not name, or that is out of use, starts
//! cold.
//!
//! The record also contains the progress of the flash's metadata, which reveals an earlier copy of the flash, unless the
//! copy was made after the last start. And it describes each origin: its size and, after a clean stop, its modification
//! time.
//!
//! A flash that several volumes share has one record, of version 2, which lists their origins. What the flash has of one of
//! them may be out of use while the others' stays in use. A program that knows version 1 alone rejects it.
//!
//! This file has the content of a record and its change by each event. The driver stores records.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::kept::Kept;
use crate::config::WritePolicy;
use crate::ranges;
use crate::volumes::VolumeSet;

/// The version of the record of one origin ...
pub const FORMAT: u32 = 1;
/// ... and of that of several.
pub const FORMAT_SHARED: u32 = 2;

/// A state record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Wire", into = "Wire", expecting = "an object")]
pub struct StateRecord {
    /// The version of the record.
    pub format: u32,
    /// The flash's volume id, in hexadecimal. A record that was read may contain any text.
    pub volume: String,
    /// Whether that flash may be used.
    pub in_use: bool,
    /// Whether that flash may hold dirty data.
    pub dirty: bool,
    /// The origins, in the order of their places; at least one.
    pub origins: Vec<OriginRecord>,
    /// The metadata's progress in each shard at the last start or stop: its generation, and blocks of that log. A flash
    /// with less progress is an earlier copy.
    pub reached: Vec<(u64, u64)>,
    /// Of each page log, the pages that its recovery ignores: they were changed past the log while flash failed, and an older
    /// version may be on flash. First page, and the page after the last.
    pub ignored: Vec<Vec<(u64, u64)>>,
    /// The preset under which the flash was last attached: the volume's default at the next start. Earlier versions
    /// recorded none.
    pub preset: Option<Box<str>>,
}

/// What a state record has of an origin.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object")]
pub struct OriginRecord {
    /// The name of its volume, where several share the flash.
    pub name: Box<str>,
    /// Its path without links, or its address.
    pub origin: String,
    /// The link to it in /dev that the user gave, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin_link: Option<Box<str>>,
    /// Its size.
    pub origin_bytes: u64,
    /// Its modification time, in nanoseconds since 1970: after a clean stop, for files only.
    pub origin_mtime_ns: Option<i64>,
    /// Whether what the flash has of it may be used, if the flash may be.
    pub in_use: bool,
    /// Whether nothing that the flash has of it is dirty, where that of others is: after a clean stop.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub clean: bool,
}

/// The file of a record: that of one origin has its fields beside the others.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object")]
struct Wire {
    format: u32,
    volume: String,
    in_use: bool,
    dirty: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    origin: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    origin_link: Option<Box<str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    origin_bytes: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    origin_mtime_ns: Option<i64>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    origins: Vec<OriginRecord>,
    #[serde(default)]
    reached: Vec<(u64, u64)>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    ignored: Vec<Vec<(u64, u64)>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    preset: Option<Box<str>>,
}

impl From<StateRecord> for Wire {
    fn from(record: StateRecord) -> Self {
        let StateRecord { format, volume, in_use, dirty, mut origins, .. } = record;
        let StateRecord { reached, ignored, preset, .. } = record;
        let lone = if format == FORMAT { origins.pop() } else { None };
        let (origin, origin_link, origin_bytes, origin_mtime_ns) = match lone {
            Some(one) => {
                (Some(one.origin), one.origin_link, Some(one.origin_bytes), one.origin_mtime_ns)
            }
            None => (None, None, None, None),
        };
        Self {
            format,
            volume,
            in_use,
            dirty,
            origin,
            origin_link,
            origin_bytes,
            origin_mtime_ns,
            origins,
            reached,
            ignored,
            preset,
        }
    }
}

impl TryFrom<Wire> for StateRecord {
    type Error = String;

    fn try_from(wire: Wire) -> Result<Self, String> {
        let Wire { format, volume, in_use, dirty, mut origins, reached, ignored, preset, .. } =
            wire;
        let Wire { origin, origin_link, origin_bytes, origin_mtime_ns, .. } = wire;
        if format == FORMAT {
            let lacks = |field: &str| format!("missing field `{field}`");
            let origin = origin.ok_or_else(|| lacks("origin"))?;
            let origin_bytes = origin_bytes.ok_or_else(|| lacks("origin_bytes"))?;
            origins = vec![OriginRecord {
                origin,
                origin_link,
                origin_bytes,
                origin_mtime_ns,
                in_use: true,
                ..OriginRecord::default()
            }];
        } else if format == FORMAT_SHARED && origins.is_empty() {
            return Err("it lists no origin".to_owned());
        }
        Ok(Self { format, volume, in_use, dirty, origins, reached, ignored, preset })
    }
}

/// The properties of an origin that a decision depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OriginFacts {
    /// Its size.
    pub bytes: u64,
    /// Its modification time, in nanoseconds since 1970; `None` for a block device.
    pub modified_ns: Option<i64>,
}

/// Where an origin lies, and whose it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OriginPlace {
    /// The name of its volume; may be empty.
    pub name: Box<str>,
    /// Its path without links, or its address.
    pub resolved: String,
    /// The link to it in /dev that the user gave, if there is one. After a restart of the machine the device may have
    /// another path, and the system makes the link point there.
    pub link: Option<Box<str>>,
}

impl OriginRecord {
    /// The record of a volume's origin, at its start.
    #[must_use]
    pub fn new(place: &OriginPlace, bytes: u64) -> Self {
        Self {
            name: place.name.clone(),
            origin: place.resolved.clone(),
            origin_link: place.link.clone(),
            origin_bytes: bytes,
            origin_mtime_ns: None,
            in_use: true,
            clean: false,
        }
    }

    /// Whether what the flash has of it may be dirty, if anything is.
    pub(super) fn may_be_dirty(&self) -> bool {
        self.in_use && !self.clean
    }

    /// Whether it is the origin at this place. Links decide if both have one: after a restart of the machine another device
    /// may have its path.
    #[must_use]
    pub fn is_at(&self, place: &OriginPlace) -> bool {
        match (&self.origin_link, &place.link) {
            (Some(recorded), Some(link)) => recorded == link,
            _ => self.origin == place.resolved,
        }
    }

    /// Whether it may be the origin at this place.
    fn may_be_at(&self, place: &OriginPlace) -> bool {
        self.origin == place.resolved || self.is_at(place)
    }
}

impl StateRecord {
    /// The record of a flash that is attached to these origins. If dirty data survives a crash, it counts as dirty.
    #[must_use]
    pub fn attached(
        volume: u64,
        kept: &Kept,
        write: WritePolicy,
        mut origins: Vec<OriginRecord>,
    ) -> Self {
        // The record of a lone origin has no place for a name.
        if let [alone] = &mut origins[..] {
            alone.name = Box::default();
        }
        Self {
            format: if origins.len() > 1 { FORMAT_SHARED } else { FORMAT },
            volume: hex(volume),
            in_use: true,
            // Logs that do not survive a crash write their dirty pages of a stop to the origin before they open.
            dirty: write.flash_keeps() || kept.is_dirty_log(),
            origins,
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

    /// The volumes stopped cleanly; flash has dirty data of those in `dirty`. A later write to an origin changes its
    /// modification time. `modified` has one for each origin: if its is not known, that of the record stays.
    #[must_use]
    pub fn stopped(
        mut self,
        reached: Vec<(u64, u64)>,
        dirty: VolumeSet,
        modified: &[Option<i64>],
    ) -> Self {
        let several = self.origins.len() > 1 && !dirty.is_empty();
        for ((number, origin), modified) in (0..).zip(&mut self.origins).zip(modified) {
            origin.origin_mtime_ns = modified.or(origin.origin_mtime_ns);
            origin.clean = several && !dirty.has(number);
        }
        Self { reached, dirty: !dirty.is_empty(), ..self }
    }

    /// What the flash has of this origin may be used, since it holds nothing that is older; or not, since writes bypass it.
    #[must_use]
    pub fn using(mut self, origin: u32, in_use: bool) -> Self {
        if let Some(origin) = self.origins.get_mut(origin as usize) {
            origin.in_use = in_use;
        }
        self
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

    /// Writes to some origins bypass the flash.
    fn without(mut self, is_out: impl Fn(&OriginRecord) -> bool) -> Self {
        for origin in &mut self.origins {
            origin.in_use &= !is_out(origin);
        }
        self
    }

    /// Whether the record is of the origins at these places, in this order.
    #[must_use]
    pub fn is_of(&self, places: &[OriginPlace]) -> bool {
        self.origins.len() == places.len()
            && self.origins.iter().zip(places).all(|(origin, place)| origin.is_at(place))
    }

    /// The origins, for a message.
    #[must_use]
    pub fn origins_in_words(&self) -> String {
        let origins: Vec<&str> = self.origins.iter().map(|of| of.origin.as_str()).collect();
        origins.join(", ")
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

/// The records, of all in one place, that must be marked "out of use" before volumes of these origins start. `own` selects
/// their own record, which stays in use if it names the flash `keeps`. `named` selects records of one origin by the name of its
/// volume; those of several have the names. A volume is the same if its name or its origin is. A flash that also has other
/// volumes stays in use for those.
///
/// # Errors
/// The record of a flash that may hold dirty data of a volume: it cannot start without that flash.
pub fn superseded<T>(
    records: Vec<Placed<T>>,
    own: impl Fn(&T) -> bool,
    named: impl Fn(&T, &str) -> bool,
    origins: &[OriginPlace],
    keeps: Option<u64>,
) -> Result<Vec<Placed<T>>, Box<Placed<T>>> {
    let mut superseded = Vec::new();
    for (place, record) in records {
        let alone = record.format == FORMAT;
        let has_name = |of: &OriginRecord, name: &str| {
            !name.is_empty() && if alone { named(&place, name) } else { *of.name == *name }
        };
        let is_ours = |of: &OriginRecord| {
            origins.iter().any(|place| of.may_be_at(place) || has_name(of, &place.name))
        };
        let is_own = own(&place);
        let kept = is_own && keeps.is_some_and(|volume| record.names(volume));
        let ours = |of: &OriginRecord| is_own || of.in_use && is_ours(of);
        if !record.in_use || kept || !record.origins.iter().any(ours) {
            continue;
        }
        let at_risk = |of: &OriginRecord| is_own || ours(of) && of.may_be_dirty();
        if record.dirty && record.origins.iter().any(at_risk) {
            return Err(Box::new((place, record)));
        }
        let others = record.origins.iter().any(|of| of.in_use && !ours(of));
        let next = if others { record.without(is_ours) } else { record.out_of_use() };
        superseded.push((place, next));
    }
    Ok(superseded)
}
