// SPDX-License-Identifier: MIT OR Apache-2.0
//! The places of page logs: one for each shard, consecutive.

use super::label::{HEADER_BYTES, Keeps, LABELS_END, Label, MOST_SHARDS, Section, SectionKind};
use super::room::{TooSmall, is_same_or_grew};
use crate::buf::PAGE;
use crate::pagelog::{Geometry, LogPolicy, LogSettings};
use crate::shape::Shape;

/// The places of page logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogsPlan {
    /// First byte of the first log.
    pub at: u64,
    /// The volume's shape.
    pub shape: Shape,
    /// Bytes of the origin when flash was formatted, as in the label.
    pub formatted_for: u64,
    /// Blocks of each log.
    pub blocks: u32,
    /// Pages of a batch.
    pub batch_pages: u32,
    /// Whether the logs survive a crash. Logs of all other write policies are equal on flash.
    pub survives_crash: bool,
}

impl LogsPlan {
    /// A log of this size for each shard.
    #[must_use]
    pub fn of(at: u64, shape: Shape, log: Geometry, policy: LogPolicy) -> Self {
        let Geometry { blocks, batch_pages, .. } = log;
        let (formatted_for, survives_crash) = (shape.origin_bytes, policy.survives_crash());
        Self { at, shape, formatted_for, blocks, batch_pages, survives_crash }
    }

    /// The largest logs that fit into `bytes` bytes after the label.
    pub(super) fn fit(
        shape: Shape,
        bytes: u64,
        batch_pages: u32,
        policy: LogPolicy,
    ) -> Result<Self, TooSmall> {
        let shards = shape.shards;
        let log =
            |blocks| Geometry { base: 0, blocks, page_bytes: PAGE as u32, batch_pages, volume: 0 };
        let of = |blocks| Self::of(HEADER_BYTES, shape, log(blocks), policy);
        if let Some(fits) = Geometry::fit(0, bytes / u64::from(shards), batch_pages, 0) {
            return Ok(of(fits.blocks));
        }
        let least = of(of(0).geometry(0, 0).least_blocks()).geometry(0, 0).bytes();
        let needed = (u64::from(shards) * least).next_multiple_of(shape.unit_bytes);
        let (bytes, least) = (HEADER_BYTES + bytes, HEADER_BYTES + needed);
        Err(TooSmall::Logs { bytes, least, shards, batch_pages })
    }

    pub(super) fn of_label(label: &Label, first: &Section) -> Option<Self> {
        let SectionKind::Log { blocks, batch_pages, .. } = first.kind else { return None };
        let shape = Shape::new(label.origin_bytes, label.unit_bytes, label.shards);
        let (at, survives_crash) = (first.offset, label.keeps.dirty);
        let formatted_for = label.origin_bytes;
        let plan = Self { at, shape, formatted_for, blocks, batch_pages, survives_crash };
        let valid = (1..=MOST_SHARDS).contains(&label.shards)
            && shape.unit_bytes.is_power_of_two()
            && shape.unit_bytes >= PAGE as u64
            && plan.geometry(0, 0).is_possible()
            && at >= LABELS_END;
        valid.then_some(plan)
    }

    pub(super) fn label(&self, volume: u64) -> Label {
        let section = |log: Geometry| Section {
            kind: SectionKind::Log {
                blocks: log.blocks,
                segment: log.segment() as u32,
                batch_pages: log.batch_pages,
            },
            offset: log.base,
            bytes: log.bytes(),
        };
        let Shape { unit_bytes, shards, .. } = self.shape;
        Label {
            volume,
            unit_bytes,
            slots: u64::from(shards) * u64::from(self.blocks),
            shards,
            log_bytes: 0,
            keeps: Keeps { dirty: self.survives_crash, factors: false },
            origin_bytes: self.formatted_for,
            volumes: 0,
            sections: self.each(volume).map(section).collect(),
        }
    }

    /// This plan as a label has it that was written when the origin was smaller; `None` if it is that of another cache.
    pub(super) fn as_formatted(&self, label: &Label) -> Option<Self> {
        let plan = Self { formatted_for: label.origin_bytes, ..*self };
        let serves = self.serves(label.origin_bytes, self.shape.origin_bytes);
        (serves && plan.label(label.volume) == *label).then_some(plan)
    }

    pub(super) fn serves(&self, was: u64, is: u64) -> bool {
        is_same_or_grew(was, is, PAGE as u64)
    }

    /// The place of a shard's log.
    #[must_use]
    pub fn geometry(&self, volume: u64, shard: u32) -> Geometry {
        let &Self { at, blocks, batch_pages, .. } = self;
        let first = Geometry { base: at, blocks, page_bytes: PAGE as u32, batch_pages, volume };
        Geometry { base: at + u64::from(shard) * first.bytes(), ..first }
    }

    /// The places of all logs.
    pub fn each(&self, volume: u64) -> impl Iterator<Item = Geometry> + use<> {
        let plan = *self;
        (0..plan.shape.shards).map(move |shard| plan.geometry(volume, shard))
    }

    /// The settings for reading a log, which has the same format under all policies that do not survive a crash.
    #[must_use]
    pub fn settings(&self) -> LogSettings {
        let policy = if self.survives_crash { LogPolicy::Full } else { LogPolicy::Through };
        LogSettings { policy, second_chance: false }
    }

    pub(super) fn blank(&self, volume: u64) -> impl Iterator<Item = (u64, Vec<u8>)> + use<> {
        let headers = self.each(volume).flat_map(|log| log.blank());
        headers.map(|(at, header)| (at, header.to_vec()))
    }
}
