// SPDX-License-Identifier: MIT OR Apache-2.0
//! The records of a volume in its state file, by event.

use larder_core::format::{Kept, StateRecord};

use super::error::VolumeError;
use super::volume::{Volume, lock};
use super::worker::Worker;

impl Volume {
    /// Records that only this flash may be used for the origin.
    pub(super) fn note_attached(&self, volume: u64, kept: &Kept) -> Result<(), VolumeError> {
        let Some(file) = &self.config.state else { return Ok(()) };
        file.put_out_of_use(Some(volume))?;
        let (origin, bytes) = (file.origin(), self.config.origin.geometry().bytes);
        let write = self.config.choices.write;
        let record = StateRecord::attached(volume, kept, write, origin, bytes);
        file.store(&record.under(file.preset()))
    }

    /// Records that the page logs of this flash were opened.
    pub(super) fn note_opened(&self, volume: u64) -> Result<(), VolumeError> {
        let Some(file) = &self.config.state else { return Ok(()) };
        let generation = |worker: &mut Worker| Some(worker.shard.cache_status()?.reached.0);
        let generations = self.ask(generation)?.into_iter().collect::<Option<Vec<_>>>();
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
        let Some(file) = &self.config.state else { return Ok(()) };
        file.put_out_of_use(None)
    }

    /// Records that flash holds no dirty data.
    pub(super) fn note_cleaned(&self) -> Result<(), VolumeError> {
        let Some(file) = &self.config.state else { return Ok(()) };
        match file.load()? {
            Some(record) if record.dirty => file.store(&record.cleaned()),
            _ => Ok(()),
        }
    }

    /// Records a clean stop. Without an attached flash, or after the loss of a worker, the record stays as it is.
    pub(super) fn note_stopped(&self) -> Result<(), VolumeError> {
        let Some(file) = &self.config.state else { return Ok(()) };
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
