// SPDX-License-Identifier: MIT OR Apache-2.0
//! The records of a cache in its state file, by event.

use std::ops::Range;
use std::sync::MutexGuard;

use larder_core::format::{Kept, OriginPlace, OriginRecord, StateRecord};
use larder_core::volumes::VolumeSet;
use larder_io::Device;

use super::cache::Cache;
use super::error::VolumeError;
use super::lock::lock;
use super::part::Part;
use super::state_file::{StateFile, Turn};
use super::worker::Worker;

/// The right to change records, in this process and among processes.
pub(super) struct Changing<'a> {
    _turn: Turn,
    _records: MutexGuard<'a, ()>,
}

impl Cache {
    /// The state file, and the right to change it: workers, commands and other processes change records at any time. A file
    /// that was deleted is written again.
    pub(super) fn records(&self) -> Result<Option<(&StateFile, Changing<'_>)>, VolumeError> {
        let Some(file) = &self.config.state else { return Ok(None) };
        let records = lock(&self.records);
        let changing = Changing { _turn: file.turn()?, _records: records };
        file.put_back();
        Ok(Some((file, changing)))
    }

    /// Records that only this flash may be used for the origins. What it has of the `stale` volumes may not be used yet.
    pub(super) fn note_attached(
        &self,
        volume: u64,
        kept: &Kept,
        stale: &[u32],
    ) -> Result<(), VolumeError> {
        let Some((file, _records)) = self.records()? else { return Ok(()) };
        file.put_out_of_use(Some(volume))?;
        let earlier = file.load()?;
        let places = file.origins();
        let of = |((number, part), place): ((u32, &Part), &OriginPlace)| {
            let bytes = part.range.end - part.range.start;
            let record = OriginRecord::new(place, bytes);
            // An origin that is missing may have changed when it returns.
            let absent = earlier.as_ref().filter(|_| part.origin.is_absent());
            let before = absent.and_then(|earlier| earlier.origins.get(number as usize));
            let same = before.filter(|before| before.is_at(place));
            let origin_mtime_ns = same.and_then(|before| before.origin_mtime_ns);
            let in_use = !stale.contains(&number);
            OriginRecord { origin_mtime_ns, in_use, ..record }
        };
        let origins = (0..).zip(self.parts.iter()).zip(places).map(of).collect();
        let record = StateRecord::attached(volume, kept, self.config.choices.write, origins);
        let record = record.ignoring_as(earlier.as_ref());
        file.store(&record.under(file.preset()))
    }

    /// Records that the flash has nothing of this volume that is older than its origin, so that it may be used for it; or that it
    /// has nothing of it, and that writes bypass it.
    pub(super) fn note_use(&self, volume: u32, in_use: bool) -> Result<(), VolumeError> {
        let Some((file, _records)) = self.records()? else { return Ok(()) };
        match file.load()? {
            Some(record) if record.in_use => file.store(&record.using(volume, in_use)),
            _ => Ok(()),
        }
    }

    /// The pages that the recovery of each page log ignores.
    pub(super) fn ignored(&self) -> Result<Vec<Vec<Range<u64>>>, VolumeError> {
        let record = self.config.state.as_ref().map_or(Ok(None), StateFile::load)?;
        let of = |log| record.as_ref().map_or_else(Vec::new, |record| record.ignored(log));
        Ok((0..self.shape().shards).map(of).collect())
    }

    /// Records that the recovery of this page log ignores these pages, and no others.
    pub(super) fn note_ignored(&self, log: u32, pages: &[Range<u64>]) -> Result<(), VolumeError> {
        let Some((file, _records)) = self.records()? else { return Ok(()) };
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
        let Some((file, _records)) = self.records()? else { return Ok(()) };
        match file.load()? {
            Some(record) if !record.ignored.is_empty() => file.store(&record.ignoring_nothing()),
            _ => Ok(()),
        }
    }

    /// Records that the page logs of this flash were opened.
    pub(super) fn note_opened(&self, volume: u64) -> Result<(), VolumeError> {
        let generation = |worker: &mut Worker| Some(worker.shard.cache_status()?.reached.0);
        let generations = self.ask(generation)?.into_iter().collect::<Option<Vec<_>>>();
        let Some((file, _records)) = self.records()? else { return Ok(()) };
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
        let Some((file, _records)) = self.records()? else { return Ok(()) };
        file.put_out_of_use(None)
    }

    /// Records that a flash of another cache, which is about to be formatted, holds nothing.
    pub(super) fn note_formatted(&self, volume: u64) -> Result<(), VolumeError> {
        let Some((file, _records)) = self.records()? else { return Ok(()) };
        file.give_up(volume)
    }

    /// Moves the file of an earlier version to the path of this cache.
    pub(super) fn take_earlier(&self, volume: Option<u64>) -> Result<(), VolumeError> {
        let Some((file, _records)) = self.records()? else { return Ok(()) };
        file.take_earlier(volume)
    }

    /// Records that flash holds no dirty data.
    pub(super) fn note_cleaned(&self) -> Result<(), VolumeError> {
        let Some((file, _records)) = self.records()? else { return Ok(()) };
        match file.load()? {
            Some(record) if record.dirty => file.store(&record.cleaned()),
            _ => Ok(()),
        }
    }

    /// Records a clean stop; `flushed`: whether each origin has all acknowledged writes durably. Without an attached flash, or
    /// after the loss of a worker, the record stays as it is.
    pub(super) fn note_stopped(&self, flushed: &[bool]) -> Result<(), VolumeError> {
        let Some((file, _records)) = self.records()? else { return Ok(()) };
        let left = lock(&self.left);
        if left.len() < self.mailboxes.len() {
            return Ok(());
        }
        match file.load()? {
            Some(record) if record.in_use => {
                let dirty =
                    left.values().fold(VolumeSet::default(), |all, left| all.and(left.dirty));
                let reached = left.values().map(|left| left.reached).collect();
                let modified: Vec<_> = self
                    .parts
                    .iter()
                    .zip(flushed)
                    .map(|(part, flushed)| modified(&part.origin).filter(|_| *flushed))
                    .collect();
                file.store(&record.stopped(reached, dirty, &modified))
            }
            _ => Ok(()),
        }
    }
}

/// The modification time of an origin; block devices have none.
fn modified(origin: &Device) -> Option<i64> {
    let identity = origin.identity().ok().flatten()?;
    i64::try_from(identity.mtime_ns).ok().filter(|ns| *ns != 0)
}
