// SPDX-License-Identifier: MIT OR Apache-2.0
//! Page logs on a flash device: one for each worker, one behind the other, after the label.
//!
//! Purpose: how large they are, and where. `flash_logs.rs` formats and reads them; the workers' shards open them.
//!
//! Invariant: a log's place follows from the label alone.

use larder_core::buf::PAGE;
use larder_core::config::Choices;
use larder_core::format::Keeps;
use larder_core::format::label::{HEADER_BYTES, Label, Section, SectionKind};
use larder_core::pagelog::{BATCH_PAGES_MOST, Geometry, LogPolicy};
use larder_core::shape::Shape;
use larder_io::{Device, format_size};

use super::error::VolumeError;
use super::worker::MOST_WORKERS;

/// The page logs that a device is to hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Logs {
    /// The volume's shape.
    pub shape: Shape,
    /// Blocks of each.
    pub blocks: u32,
    /// Pages of a batch.
    pub batch_pages: u32,
    /// What they do with pages that change.
    pub policy: LogPolicy,
}

impl Logs {
    /// The largest that fit into so many bytes behind the label.
    pub fn fit(
        device: &Device,
        bytes: u64,
        shape: Shape,
        choices: &Choices,
        policy: LogPolicy,
    ) -> Result<Self, VolumeError> {
        let (batch_pages, shards) = (choices.on_exit().batch_pages, u64::from(shape.shards));
        let logs = |blocks| Self { shape, blocks, batch_pages, policy };
        match Geometry::fit(0, bytes / shards, batch_pages, 0) {
            Some(fits) => Ok(logs(fits.blocks)),
            None => {
                let least = logs(logs(0).geometry(0, 0).least_blocks());
                let needed =
                    (shards * least.geometry(0, 0).bytes()).next_multiple_of(shape.unit_bytes);
                Err(VolumeError::Usage(format!(
                    "{}: {} is too small for page logs of {shards} worker(s) with batches of {batch_pages} pages; accepted: at least {}, fewer --workers, or smaller --batch-pages",
                    device.name(),
                    format_size(HEADER_BYTES + bytes),
                    format_size(HEADER_BYTES + needed),
                )))
            }
        }
    }

    /// What a label says; nothing if it says what cannot be.
    pub fn of_label(label: &Label) -> Option<Self> {
        let SectionKind::Log { blocks, batch_pages, .. } = label.log()?.kind else { return None };
        let (origin_bytes, unit_bytes) = (label.origin_bytes, label.unit_bytes);
        let shape = Shape::new(origin_bytes, unit_bytes, label.shards);
        // Those of the clean policies are alike on flash.
        let policy = if label.keeps.dirty { LogPolicy::Full } else { LogPolicy::Through };
        let logs = Self { shape, blocks, batch_pages, policy };
        let sane = (1..=MOST_WORKERS).contains(&label.shards)
            && (1..=BATCH_PAGES_MOST).contains(&batch_pages)
            && blocks >= logs.geometry(0, 0).least_blocks();
        sane.then_some(logs)
    }

    /// Blocks of all.
    pub fn slots(&self) -> u64 {
        u64::from(self.shape.shards) * u64::from(self.blocks)
    }

    /// What they keep besides.
    pub fn keeps(&self) -> Keeps {
        Keeps { dirty: self.policy.outlives_crash(), factors: false }
    }

    /// Where a shard's log lies.
    pub fn geometry(&self, volume: u64, shard: u32) -> Geometry {
        let Self { blocks, batch_pages, .. } = *self;
        let first =
            Geometry { base: HEADER_BYTES, blocks, page_bytes: PAGE as u32, batch_pages, volume };
        Geometry { base: HEADER_BYTES + u64::from(shard) * first.bytes(), ..first }
    }

    /// All of them.
    pub fn each(&self, volume: u64) -> impl Iterator<Item = Geometry> + use<> {
        let logs = *self;
        (0..logs.shape.shards).map(move |shard| logs.geometry(volume, shard))
    }

    /// Their sections of a label.
    pub fn sections(&self) -> Vec<Section> {
        let section = |log: Geometry| Section {
            kind: SectionKind::Log {
                blocks: log.blocks,
                segment: log.segment() as u32,
                batch_pages: log.batch_pages,
            },
            offset: log.base,
            bytes: log.bytes(),
        };
        self.each(0).map(section).collect()
    }
}
