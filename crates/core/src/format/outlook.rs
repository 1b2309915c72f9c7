// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a start would make of a flash, if its state record permits its use: the verdict of `larder check`.

use std::fmt;

use serde::Serialize;

use super::label::Label;

/// What is known of the metadata, or the page log, of a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ShardState {
    /// It can be recovered.
    Whole,
    /// It lost some of what it said.
    Damaged,
    /// No checkpoint was ever completed.
    Empty,
    /// A page log that does not count, since it was not closed.
    Open,
    /// The device fails reads.
    Unreadable,
}

impl fmt::Display for ShardState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Whole => "whole",
            Self::Damaged => "damaged",
            Self::Empty => "empty",
            Self::Open => "open",
            Self::Unreadable => "unreadable",
        })
    }
}

/// What a start would do, in the words of a report, with a flash of this label on which so many slots or pages are in
/// use.
#[must_use]
pub fn outlook(label: &Label, shards: &[ShardState], used: u64) -> &'static str {
    let are = |states: &[ShardState]| shards.iter().all(|state| states.contains(state));
    match label.keeps_metadata() {
        false => "starts cold: it keeps no journal",
        true if are(&[ShardState::Whole]) && used == 0 => "starts cold: it holds nothing",
        true if are(&[ShardState::Whole]) => "starts warm",
        true if label.keeps.dirty => "is refused: it may alone have data, and cannot say which",
        true if are(&[ShardState::Whole, ShardState::Open]) => {
            "starts cold where its log was not closed"
        }
        true => "starts cold: the origin has everything",
    }
}

#[cfg(test)]
mod tests {
    use super::super::label::{Keeps, Section, SectionKind};
    use super::ShardState::{Damaged, Empty, Open, Unreadable, Whole};
    use super::*;

    #[test]
    fn a_verdict_for_each_state() {
        let log = SectionKind::Log { blocks: 64, segment: 16, batch_pages: 32 };
        let table: &[(SectionKind, bool, &[ShardState], u64, &str)] = &[
            (SectionKind::Slots, false, &[], 0, "starts cold: it keeps no journal"),
            (SectionKind::Metadata, false, &[Whole, Whole], 0, "starts cold: it holds nothing"),
            (SectionKind::Metadata, true, &[Whole, Whole], 3, "starts warm"),
            (SectionKind::Metadata, true, &[Whole, Damaged], 3, "is refused"),
            (SectionKind::Metadata, false, &[Whole, Unreadable], 3, "the origin has everything"),
            (SectionKind::Metadata, false, &[Empty], 0, "the origin has everything"),
            (log, false, &[Whole, Open], 3, "where its log was not closed"),
            (log, true, &[Open], 3, "is refused"),
        ];
        for (kind, dirty, shards, used, said) in table {
            let label = Label {
                volume: 1,
                unit_bytes: 1 << 20,
                slots: 9,
                shards: 2,
                log_bytes: 4096,
                keeps: Keeps { dirty: *dirty, factors: false },
                origin_bytes: 1 << 30,
                sections: vec![Section { kind: *kind, offset: 1 << 20, bytes: 1 << 20 }],
            };
            let verdict = outlook(&label, shards, *used);
            assert!(verdict.contains(said), "{kind:?}, {shards:?}: {verdict}");
        }
    }
}
