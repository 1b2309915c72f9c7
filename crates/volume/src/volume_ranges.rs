// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ranges of a volume that are pinned and excluded: who asked for them, and what a command changes.
//!
//! Invariants: a range of commands is pinned or excluded, the last command decides; a command does not contradict the configuration.

use std::ops::Range;

use larder_core::ranges::{has_any, merged, without};
use serde::{Deserialize, Serialize};

use super::error::VolumeError;

/// Ranges of bytes of a volume, in order and apart from each other.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VolumeRanges {
    /// Those that are cached and not evicted.
    #[serde(default)]
    pub pinned: Vec<Range<u64>>,
    /// Those that are never admitted.
    #[serde(default)]
    pub excluded: Vec<Range<u64>>,
}

/// The ranges of a volume, by who asked for them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Asked {
    pub configured: VolumeRanges,
    pub by_command: VolumeRanges,
}

/// What becomes of ranges.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RangeRule {
    /// They are cached and not evicted.
    Pin,
    /// They are pinned no longer; they stay cached until they are evicted.
    Unpin,
    /// They are never admitted.
    Exclude,
    /// They are excluded no longer.
    Include,
}

/// When the rest of what a command asked for follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Rest {
    /// In the background.
    Follows,
    /// Once the volume has a flash device.
    NeedsFlash,
    /// Once population is on.
    NeedsPopulation,
}

impl VolumeRanges {
    /// Why a configuration may not have these ranges for a volume of so many bytes: the key, the range, and what is accepted.
    #[must_use]
    pub fn refused(&self, bytes: u64) -> Option<(&'static str, Range<u64>, String)> {
        let beyond = |range: &&Range<u64>| range.end > bytes;
        let why = || format!("ends beyond the volume; accepted: an end up to {bytes}");
        for (key, ranges) in [("pin", &self.pinned), ("exclude", &self.excluded)] {
            if let Some(range) = ranges.iter().find(beyond) {
                return Some((key, range.clone(), why()));
            }
        }
        let pinned = merged(self.pinned.clone());
        let range = self.excluded.iter().find(|range| has_any(&pinned, range))?;
        let why = "has bytes that `pin` has too; accepted: other ranges";
        Some(("exclude", range.clone(), why.to_owned()))
    }

    /// Sorted and joined, within a volume of so many bytes.
    pub(crate) fn within(&self, bytes: u64) -> Self {
        let within = |ranges: &[Range<u64>]| {
            merged(ranges.iter().map(|r| r.start..r.end.min(bytes)).collect())
        };
        Self { pinned: within(&self.pinned), excluded: within(&self.excluded) }
    }

    /// With a command.
    pub(crate) fn with(&self, rule: RangeRule, ranges: &[Range<u64>]) -> Self {
        let ranges = merged(ranges.to_vec());
        let more =
            |list: &[Range<u64>]| merged(list.iter().chain(&ranges).cloned().collect::<Vec<_>>());
        let (pinned, excluded) = (&self.pinned, &self.excluded);
        match rule {
            RangeRule::Pin => Self { pinned: more(pinned), excluded: without(excluded, &ranges) },
            RangeRule::Unpin => {
                Self { pinned: without(pinned, &ranges), excluded: excluded.clone() }
            }
            RangeRule::Exclude => {
                Self { pinned: without(pinned, &ranges), excluded: more(excluded) }
            }
            RangeRule::Include => {
                Self { pinned: pinned.clone(), excluded: without(excluded, &ranges) }
            }
        }
    }
}

impl Asked {
    /// All of them.
    pub(crate) fn all(&self) -> VolumeRanges {
        let both = |a: &[Range<u64>], b: &[Range<u64>]| merged([a, b].concat());
        let Self { configured, by_command } = self;
        let excluded = both(&configured.excluded, &by_command.excluded);
        let pinned = without(&both(&configured.pinned, &by_command.pinned), &excluded);
        VolumeRanges { pinned, excluded }
    }

    /// Refuses a command that contradicts the configuration.
    pub(crate) fn check(&self, rule: RangeRule, ranges: &[Range<u64>]) -> Result<(), VolumeError> {
        let (key, of) = match rule {
            RangeRule::Pin | RangeRule::Include => ("exclude", &self.configured.excluded),
            RangeRule::Unpin | RangeRule::Exclude => ("pin", &self.configured.pinned),
        };
        match ranges.iter().find(|range| has_any(of, range)) {
            None => Ok(()),
            Some(Range { start, end }) => Err(VolumeError::Refused(format!(
                "{start}+{}: `{key}` of the configuration has bytes of it; accepted: change the configuration, and reload it (SIGHUP)",
                end - start
            ))),
        }
    }
}

/// What `status` shows of the ranges of a kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ShownRanges {
    /// Bytes.
    pub bytes: u64,
    /// Offset and length of each.
    pub ranges: Vec<(u64, u64)>,
}

impl ShownRanges {
    /// None if there is no range.
    pub(crate) fn of(ranges: &[Range<u64>]) -> Option<Self> {
        let pair = |range: &Range<u64>| (range.start, range.end - range.start);
        let shown = || Self {
            bytes: ranges.iter().map(|range| range.end - range.start).sum(),
            ranges: ranges.iter().map(pair).collect(),
        };
        (!ranges.is_empty()).then(shown)
    }
}

#[cfg(test)]
mod tests {
    use std::iter::once;
    use std::slice::from_ref;

    use super::*;

    #[test]
    fn the_last_command_decides() {
        let none = VolumeRanges::default();
        let pinned = none.with(RangeRule::Pin, &[30..40, 0..20]);
        assert_eq!((&pinned.pinned[..], pinned.excluded.len()), (&[0..20, 30..40][..], 0));
        let excluded = pinned.with(RangeRule::Exclude, from_ref(&(10..35)));
        assert_eq!(excluded.pinned, [0..10, 35..40]);
        assert_eq!(excluded.excluded.first(), Some(&(10..35)));
        let again = excluded
            .with(RangeRule::Pin, from_ref(&(15..16)))
            .with(RangeRule::Unpin, from_ref(&(0..5)));
        assert_eq!(
            (again.pinned, again.excluded),
            (vec![5..10, 15..16, 35..40], vec![10..15, 16..35])
        );
        assert_eq!(excluded.with(RangeRule::Include, from_ref(&(0..100))).excluded, []);
    }

    #[test]
    fn a_command_does_not_contradict_the_configuration() {
        let configured =
            VolumeRanges { pinned: once(0..10).collect(), excluded: once(20..30).collect() };
        let asked = Asked { configured, by_command: VolumeRanges::default() };
        for (rule, range, accepted) in [
            (RangeRule::Pin, 0..20, true),
            (RangeRule::Pin, 0..21, false),
            (RangeRule::Exclude, 9..12, false),
            (RangeRule::Unpin, 5..6, false),
            (RangeRule::Unpin, 10..12, true),
            (RangeRule::Include, 29..31, false),
        ] {
            assert_eq!(asked.check(rule, from_ref(&range)).is_ok(), accepted, "{rule:?} {range:?}");
        }
    }
}
