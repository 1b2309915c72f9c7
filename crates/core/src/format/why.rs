// SPDX-License-Identifier: MIT OR Apache-2.0
//! Why a flash starts cold, or is refused.

use std::fmt;

use super::kept::Unreadable;
use super::label::{Label, Section, SectionKind};
use super::state::StateRecord;
use crate::config::WritePolicy;
use crate::pagelog::LogPolicy;
use crate::size::Size;

/// Why a flash starts cold.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WhyCold {
    /// It has no label.
    #[error("it is new")]
    New,
    /// The user gave `--format`.
    #[error("--format was given")]
    FormatGiven,
    /// It was formatted for a volatile cache.
    #[error("it kept no journal")]
    NoJournal,
    /// It was formatted for another cache.
    #[error("{0}")]
    Misfit(Box<Misfit>),
    /// The volume's state record names another volume id.
    #[error("the state file names another flash, or an older formatting of it")]
    OtherFlash,
    /// The volume has no state record.
    #[error("there is no state file that names it")]
    Unnamed,
    /// The state record marks it as out of use.
    #[error("it was detached or it failed, and writes continued without it")]
    OutOfUse,
    /// It may hold dirty data, and this volume's choices have none.
    #[error("it was used under write-back")]
    WriteBack,
    /// The state record has another size of the origin.
    #[error("the origin has another size: {is} bytes, after {was}")]
    OriginResized {
        /// Bytes that it had.
        was: u64,
        /// Bytes that it has.
        is: u64,
    },
    /// The state record has another origin.
    #[error("the state file records it for the origin {recorded}")]
    OtherOrigin {
        /// That origin's path or address.
        recorded: String,
    },
    /// The state record has this origin as that of another volume.
    #[error("the state file records the origin as that of the volume '{volume}'")]
    OriginOfOther {
        /// That volume's name.
        volume: Box<str>,
    },
    /// The state record has another number of volumes.
    #[error("the state file records it for the origins {recorded}")]
    OtherVolumes {
        /// Their paths or addresses.
        recorded: String,
    },
    /// The state record has another modification time of the origin.
    #[error("the origin was written to while it was not served")]
    OriginChanged,
    /// Its metadata cannot be used.
    #[error("it {0}")]
    Unreadable(#[from] Unreadable),
    /// Dirty data lies beyond the bytes that may be used.
    #[error("its dirty data takes {} of flash", Size(*least))]
    TooShort {
        /// Bytes that hold it.
        least: u64,
    },
    /// Its metadata has less progress than the state record.
    #[error("it is a copy from before the last start or stop")]
    EarlierCopy,
}

/// Why a flash is refused: nothing is written to it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WhyRefused {
    /// The device is shorter than its cache, which may hold dirty data.
    #[error(
        "holds {} of a cache that takes at least {}, and it may hold dirty data; accepted: the whole device, or --format to discard that data",
        Size(*bytes),
        Size(*needed)
    )]
    CutShort {
        /// Bytes of the device.
        bytes: u64,
        /// Bytes that the label describes.
        needed: u64,
    },
    /// A newer program formatted it.
    #[error(
        "holds a Larder cache of format version {version}, newer than this program; give --format to overwrite it, or another device"
    )]
    Version {
        /// The version of its format.
        version: u32,
    },
    /// Both copies of its label are damaged.
    #[error("holds a damaged Larder label; give --format to overwrite it, or another device")]
    DamagedLabel,
    /// It has no label, and is not empty.
    #[error(
        "holds {}; give --format to overwrite it, or another device",
        match found {
            Some(found) => format!("{found}, which is not Larder's"),
            None => "data that is not Larder's (it is neither zero nor labelled)".to_owned(),
        }
    )]
    Foreign {
        /// The name of what was found, if it is known.
        found: Option<String>,
    },
    /// It would start cold, and may hold dirty data.
    #[error(
        "cannot be used ({why}), and it may hold dirty data; start it with the settings that it had, {}or discard that data with --format",
        if *adopted {
            ""
        } else {
            "with --adopt if only its state file is lost, or only the path or the modification time of the origin changed, "
        }
    )]
    MayHoldDirty {
        /// Why it would start cold.
        why: WhyCold,
        /// Whether --adopt was given, or would not help.
        adopted: bool,
    },
}

/// A flash was formatted for another cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Misfit {
    /// The label that was found.
    pub found: Label,
    /// The label that this cache would write.
    pub wanted: Label,
}

/// The use of a flash, by its label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Used {
    /// The write policies under which it may have been used.
    pub write_policy: &'static str,
    /// Whether a crash may have left dirty data.
    pub write_back: bool,
}

impl Used {
    /// The use of a flash with this label.
    #[must_use]
    pub fn of(label: &Label) -> Self {
        let write_back = label.keeps.dirty;
        let write_policy = match (label.log().is_some(), write_back) {
            (true, true) => "full",
            (true, false) => "through or bounded",
            (false, true) => "write-back",
            (false, false) => "async, through or around",
        };
        Self { write_policy, write_back }
    }

    /// A write policy of the last use of a flash. Policies that are alike on flash differ in the state record.
    #[must_use]
    pub fn last(label: &Label, record: Option<&StateRecord>) -> WritePolicy {
        match (label.log().is_some(), label.keeps.dirty) {
            (true, true) => WritePolicy::Logged(LogPolicy::Full),
            (true, false) if record.is_some_and(|record| record.dirty) => {
                WritePolicy::Logged(LogPolicy::Bounded)
            }
            (true, false) => WritePolicy::Logged(LogPolicy::Through),
            (false, true) => WritePolicy::WriteBack,
            (false, false) => WritePolicy::AsyncWriteThrough,
        }
    }
}

/// First byte after all sections of a label, of which the last slots need not be in use.
pub(super) fn end(label: &Label) -> u64 {
    let end = |s: &Section| match s.kind {
        SectionKind::Slots => s.offset.saturating_add(label.unit_bytes),
        _ => s.offset.saturating_add(s.bytes),
    };
    label.sections.iter().map(end).max().unwrap_or_default()
}

/// The settings that a label records, by their names.
fn settings(label: &Label) -> Vec<(&'static str, String)> {
    let log = label.log().map(|section| section.kind);
    let kind = if log.is_some() { "page logs" } else { "units" };
    let mut settings = vec![
        ("a cache of", kind.to_owned()),
        ("--write-policy", Used::of(label).write_policy.to_owned()),
        ("an origin of", Size(label.origin_bytes).to_string()),
        ("--unit", Size(label.unit_bytes).to_string()),
        ("--workers", label.shards.to_string()),
    ];
    if log.is_none() {
        let verify = if label.section(SectionKind::Sums).is_some() { "on" } else { "off" };
        settings.push(("--verify", verify.to_owned()));
    }
    if let Some(SectionKind::Log { batch_pages, .. }) = log {
        settings.push(("--batch-pages", batch_pages.to_string()));
    }
    let factors = if label.keeps.factors { "periodic updates" } else { "none" };
    settings.push(("reference factors for", factors.to_owned()));
    settings.push(match log {
        Some(_) => ("a flash size of", Size(end(label)).to_string()),
        None => {
            ("up to", format!("{} of slots", Size(label.slots.saturating_mul(label.unit_bytes))))
        }
    });
    settings
}

impl fmt::Display for Misfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.found.volumes != self.wanted.volumes {
            return f.write_str(
                "it was formatted for other volumes: their number, names, sizes or order differ",
            );
        }
        let (found, wanted) = (settings(&self.found), settings(&self.wanted));
        let other = |what| wanted.iter().find(|(name, _)| *name == what);
        let differ = found.iter().filter_map(|(what, was)| {
            let (_, is) = other(*what)?;
            (is != was).then(|| format!("{what} {was} (now {is})"))
        });
        // For two kinds of cache, kind and write policy are enough.
        let differ: Vec<String> =
            if found[0] == wanted[0] { differ.collect() } else { differ.take(2).collect() };
        match differ.is_empty() {
            true => f.write_str("it was formatted for the same cache with another layout"),
            false => write!(f, "it was formatted for {}", differ.join(", ")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::label::Keeps;

    use super::*;

    fn misfit(found: &Label, wanted: &Label) -> String {
        Misfit { found: found.clone(), wanted: wanted.clone() }.to_string()
    }

    #[test]
    fn a_misfit_states_both_values_of_each_difference() {
        let section = |kind, bytes| Section { kind, offset: 1 << 20, bytes };
        let units = Label {
            volume: 1,
            unit_bytes: 1 << 20,
            slots: 9,
            shards: 2,
            log_bytes: 4096,
            keeps: Keeps { dirty: false, factors: false },
            origin_bytes: 1 << 30,
            volumes: 0,
            sections: vec![section(SectionKind::Slots, 3 << 20)],
        };
        let fewer = Label { shards: 1, ..units.clone() };
        assert_eq!(misfit(&units, &fewer), "it was formatted for --workers 2 (now 1)");
        let shared = Label { volumes: 1 << 32, ..fewer.clone() };
        assert!(misfit(&units, &shared).contains("for other volumes"));
        let kind = SectionKind::Log { blocks: 64, segment: 16, batch_pages: 32 };
        let keeps = Keeps { dirty: true, factors: false };
        let log = Label { sections: vec![section(kind, 3 << 20)], keeps, ..fewer.clone() };
        let said = misfit(&units, &log);
        assert!(said.contains("a cache of units (now page logs)"), "{said}");
        assert!(!said.contains("workers"), "{said}");
        let kind = SectionKind::Log { blocks: 64, segment: 16, batch_pages: 64 };
        let larger = Label {
            sections: vec![section(kind, 4 << 20)],
            keeps: Keeps::default(),
            volume: 2,
            ..log.clone()
        };
        let said = misfit(&log, &larger);
        let all = [
            "--batch-pages 32 (now 64)",
            "full (now through or bounded)",
            "a flash size of 4MiB (now 5MiB)",
        ];
        assert!(all.iter().all(|what| said.contains(what)), "{said}");
    }
}
