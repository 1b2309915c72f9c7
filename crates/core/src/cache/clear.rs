// SPDX-License-Identifier: MIT OR Apache-2.0
//! Clears of a shard: dirty data copied to the origins, and volumes that leave the cache and join it again.

use std::rc::Rc;

use super::detaching::{Clear, Step};
use super::{Cache, Current};
use crate::config::Contents;
use crate::exec::MILLISECOND;
use crate::request::Errno;

impl Current {
    /// Copies dirty data to the origins in the background, and evicts if asked.
    pub(crate) fn clear(self: &Rc<Self>, clear: Clear) {
        if self.has_nothing_to_clear(clear) {
            return;
        }
        if clear.evict
            && clear.volume.is_none()
            && let Cache::WriteBack(cache) = self.get()
        {
            cache.admit_no_more();
        }
        for volume in self.detaching.request(clear).iter() {
            self.cx.exec.spawn(Rc::clone(self).clear_volume(volume));
        }
    }

    /// Clears a volume, until nothing further is requested or a device fails.
    async fn clear_volume(self: Rc<Self>, volume: u32) {
        let detaching = &self.detaching;
        while detaching.moves_units() {
            self.cx.exec.sleep(MILLISECOND).await;
        }
        while let Some(step) = detaching.next(volume) {
            let result = self.clear_once(volume, step).await;
            detaching.did(volume, step, result);
        }
        detaching.ended(volume);
    }

    /// Result of the last clear of this kind; `None` while it is in progress.
    pub(crate) fn cleared(&self, clear: Clear) -> Option<Result<(), Errno>> {
        if self.has_nothing_to_clear(clear) { Some(Ok(())) } else { self.detaching.cleared(clear) }
    }

    /// From a clean cache only a volume leaves.
    fn has_nothing_to_clear(&self, clear: Clear) -> bool {
        let leaves = clear.evict && clear.volume.is_some();
        self.spec.borrow().kind.contents() != Contents::Dirty && !leaves
    }

    async fn clear_once(&self, volume: u32, step: Step) -> Result<(), Errno> {
        let joined = self.detaching.joined(volume);
        let has_joined = || self.detaching.joined(volume) != joined;
        match self.get() {
            Cache::PassThrough => Ok(()),
            Cache::Clean(clean) => match step {
                Step::Leave => clean.units.leave(volume, &has_joined).await,
                Step::Copy | Step::Evict => Ok(()),
            },
            Cache::WriteBack(cache) => cache.clear(volume, step, &has_joined).await,
            Cache::Log(_) => match self.opened().await? {
                Some(open) => open.clear(step != Step::Copy, &self.detaching.hold_back).await,
                None => Ok(()),
            },
        }
    }

    /// A volume that left may have slots again, unless its origin cannot be flushed. A leave in progress ends.
    pub(crate) fn join(&self, volume: u32) {
        self.detaching.join(volume);
        if self.cx.origins.of(volume).flush_failed().is_some() {
            return;
        }
        let units = self.cx.shape.units_in(&self.cx.origins.volumes.range(volume));
        self.table().iter().for_each(|table| table.reopen(volume, &units));
        self.cx.rules_changed.set(&self.cx.exec);
    }

    /// Slots with units of a volume, and those of them that are dirty. A page log has one volume.
    pub(crate) fn units_of(&self, volume: u32) -> (u64, u64) {
        match self.get() {
            Cache::Clean(clean) => (u64::from(clean.units.table.used_by(volume)), 0),
            Cache::WriteBack(cache) => {
                (u64::from(cache.units.table.used_by(volume)), cache.units_dirty_of(volume))
            }
            Cache::PassThrough | Cache::Log(_) => {
                self.status().map_or((0, 0), |status| (status.units_used, status.units_dirty))
            }
        }
    }
}
