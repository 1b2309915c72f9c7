// SPDX-License-Identifier: MIT OR Apache-2.0
//! Page logs on a flash device: one for each worker, one behind the other, after the label.
//!
//! Purpose: how large they are, that they are formatted, and what a start would find in them. The workers'
//! shards open them.
//!
//! Invariants: a log's place follows from the label alone; nothing is written here but headers of empty logs,
//! durable before a label says that there are any; whoever looked flushed the device afterwards, since what
//! was read may have been in its write cache alone.

use larder_core::buf::{Buf, PAGE};
use larder_core::config::Choices;
use larder_core::exec::{DevId, Io, IoId, IoKind};
use larder_core::format::Keeps;
use larder_core::format::label::{HEADER_BYTES, Label, Section, SectionKind};
use larder_core::pagelog::{BATCH_PAGES_MOST, Geometry, LogPolicy, LogSettings, Look, OpenError};
use larder_core::request::Errno;
use larder_core::shape::Shape;
use larder_io::{Device, format_size};

use super::error::VolumeError;
use super::flash::FlashDevice;
use super::kept::Kept;
use super::state_file::{FlashState, StateFile};
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

impl FlashDevice {
    /// What a shard's log holds.
    pub(super) fn look_at(&self, logs: &Logs, place: Geometry) -> Result<Look<'_>, OpenError> {
        let read = |offset, buf: Buf| {
            let (id, dev, kind, len) = (IoId(0), DevId(0), IoKind::Read, buf.len() as u64);
            let mut io = Io { id, dev, kind, offset, len, buf: Some(buf), at: 0 };
            self.device.run_blocking(&mut io)?;
            io.buf.ok_or(Errno::EIO)
        };
        Look::new(place, LogSettings { policy: logs.policy, second_chance: false }, read)
    }

    /// What each log has kept.
    pub(super) fn logs_kept(&self, logs: &Logs, volume: u64) -> Result<Kept, String> {
        let (mut all, mut unclosed, mut dirty, mut torn) = (Vec::new(), 0, false, 0);
        for place in logs.each(volume) {
            let look = self.look_at(logs, place);
            let look =
                look.map_err(|why| format!("holds a page log that cannot be used: {why}"))?;
            let reached = look.found.reached();
            // One that was never opened is not closed either.
            unclosed += usize::from(!look.found.warm && reached.0 > 0);
            dirty |= look.is_dirty();
            torn += look.found.torn;
            all.push(reached);
        }
        Ok(Kept::Logs { reached: all, unclosed, dirty, torn })
    }

    /// Whether a detach had brought to the origin what these logs say that they alone have: the state file is of
    /// their generation, and none is dirty after that.
    pub(super) fn was_emptied(
        &self,
        label: &Label,
        known: &Option<(StateFile, FlashState)>,
    ) -> bool {
        let Some((_, state)) = known.as_ref().filter(|(_, s)| !s.in_use && !s.dirty) else {
            return false;
        };
        let Some(flash) = Self::of_label(self.device.clone(), label) else { return false };
        let kept = flash.logs.as_ref().and_then(|logs| flash.logs_kept(logs, label.volume).ok());
        let Some(found) = kept.map(|kept| kept.reached()) else { return false };
        let known = |(found, said): (&(u64, u64), &(u64, u64))| found.0 <= said.0;
        found.len() == state.reached.len() && found.iter().zip(&state.reached).all(known)
    }

    /// Makes the logs empty, durably.
    pub(super) fn blank_logs(&self, volume: u64) -> Result<(), VolumeError> {
        let Some(logs) = &self.logs else { return Ok(()) };
        for (at, bytes) in logs.each(volume).flat_map(|log| log.blank()) {
            debug_assert_eq!(bytes.len(), PAGE);
            self.write(at, bytes, "writing the page logs")?;
        }
        self.flush().map_err(|errno| VolumeError::Device {
            device: self.device.name().to_owned(),
            doing: "flush",
            errno,
        })
    }
}
