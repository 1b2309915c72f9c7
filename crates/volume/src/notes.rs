// SPDX-License-Identifier: MIT OR Apache-2.0
//! The records of a volume in its state file, by event.

use std::ops::Range;
use std::sync::MutexGuard;

use larder_core::format::{Kept, StateRecord};

use super::error::VolumeError;
use super::state_file::StateFile;
use super::volume::{Volume, lock};
use super::worker::Worker;

impl Volume {
    /// The state file, and the right to change it: workers and commands change it at any time.
    fn records(&self) -> Option<(&StateFile, MutexGuard<'_, ()>)> {
        let file = self.config.state.as_ref()?;
        Some((file, lock(&self.records)))
    }

    /// Records that only this flash may be used for the origin.
    pub(super) fn note_attached(&self, volume: u64, kept: &Kept) -> Result<(), VolumeError> {
        let Some((file, _records)) = self.records() else { return Ok(()) };
        file.put_out_of_use(Some(volume))?;
        let (origin, bytes) = (file.origin(), self.config.origin.geometry().bytes);
        let write = self.config.choices.write;
        let record = StateRecord::attached(volume, kept, write, origin, bytes);
        let record = record.ignoring_as(file.load()?.as_ref());
        file.store(&record.under(file.preset()))
    }

    /// The pages that the recovery of each page log ignores.
    pub(super) fn ignored(&self) -> Result<Vec<Vec<Range<u64>>>, VolumeError> {
        let record = self.config.state.as_ref().map_or(Ok(None), StateFile::load)?;
        let of = |log| record.as_ref().map_or_else(Vec::new, |record| record.ignored(log));
        Ok((0..self.shape().shards).map(of).collect())
    }

    /// Records that the recovery of this page log ignores these pages, and no others.
    pub(super) fn note_ignored(&self, log: u32, pages: &[Range<u64>]) -> Result<(), VolumeError> {
        let Some((file, _records)) = self.records() else { return Ok(()) };
        match file.load()? {
            Some(record) => file.store(&record.ignoring(log, pages)),
            None => Err(VolumeError::Refused(format!(
                "state file {}: it is missing",
                file.path().display()
            ))),
        }
    }

    /// Records that the recovery of every page log ignores nothing: the logs began again.
    pub(super) fn note_nothing_ignored(&self) -> Result<(), VolumeError> {
        let Some((file, _records)) = self.records() else { return Ok(()) };
        match file.load()? {
            Some(record) if !record.ignored.is_empty() => file.store(&record.ignoring_nothing()),
            _ => Ok(()),
        }
    }

    /// Records that the page logs of this flash were opened.
    pub(super) fn note_opened(&self, volume: u64) -> Result<(), VolumeError> {
        let generation = |worker: &mut Worker| Some(worker.shard.cache_status()?.reached.0);
        let generations = self.ask(generation)?.into_iter().collect::<Option<Vec<_>>>();
        let Some((file, _records)) = self.records() else { return Ok(()) };
        match (file.load()?, generations) {
            (Some(record), Some(generations)) if record.in_use && record.names(volume) => {
                file.store(&record.opened(&generations, self.config.choices.write))
            }
            _ => Ok(()),
        }
    }

    /// Records durably that the content of the flash may not be used.
    ///
    /// # Errors
    /// When the state file cannot be written.
    pub fn mark_out_of_use(&self) -> Result<(), VolumeError> {
        let Some((file, _records)) = self.records() else { return Ok(()) };
        file.put_out_of_use(None)
    }

    /// Records that flash holds no dirty data.
    pub(super) fn note_cleaned(&self) -> Result<(), VolumeError> {
        let Some((file, _records)) = self.records() else { return Ok(()) };
        match file.load()? {
            Some(record) if record.dirty => file.store(&record.cleaned()),
            _ => Ok(()),
        }
    }

    /// Records a clean stop. Without an attached flash, or after the loss of a worker, the record stays as it is.
    pub(super) fn note_stopped(&self) -> Result<(), VolumeError> {
        let Some((file, _records)) = self.records() else { return Ok(()) };
        let left = lock(&self.left);
        if left.len() < self.mailboxes.len() {
            return Ok(());
        }
        match file.load()? {
            Some(record) if record.in_use => {
                let dirty = left.values().any(|left| left.dirty);
                let reached = left.values().map(|left| left.reached).collect();
                file.store(&record.stopped(reached, dirty, self.origin_mtime()))
            }
            _ => Ok(()),
        }
    }

    fn origin_mtime(&self) -> Option<i64> {
        let identity = self.config.origin.identity().ok().flatten()?;
        // Block devices have none.
        i64::try_from(identity.mtime_ns).ok().filter(|ns| *ns != 0)
    }
}
