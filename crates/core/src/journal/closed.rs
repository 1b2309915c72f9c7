// SPDX-License-Identifier: MIT OR Apache-2.0
//! A volume of a clean cache whose origin cannot be flushed.
//!
//! A failed flush is final: the origin may have dropped writes, so nothing of the volume can be logged any more, and its
//! touched regions would stay touched until the log is full. Its units leave the cache, and its requests go to the origin. The
//! other volumes continue. If no volume is left, the cache stops using flash.
//!
//! What was logged of such a unit before remains true until the unit is dropped: those regions are not touched, so they were
//! durable on both devices, and nothing has changed them since. A checkpoint writes nothing of it: its present pages may be
//! newer than what the origin has durably.

use super::base::Journal;
use super::clean::CleanJournal;
use super::log::LogFailed;
use crate::mutant;
use crate::request::Errno;

/// More than a record of a dropped unit takes.
const DROP_BYTES: usize = 16;

impl CleanJournal {
    pub(super) fn is_closed(&self, volume: u32) -> bool {
        self.closed.get().has(volume)
    }

    /// Closes volumes.
    ///
    /// # Errors
    /// If no volume is left: flash is not used any more.
    pub(super) fn origins_failed(
        &self,
        failed: impl Iterator<Item = u32>,
        errno: Errno,
    ) -> Result<(), LogFailed> {
        let (cx, log) = (&self.base.cx, self.log());
        for volume in failed {
            self.closed.set(self.closed.get().with(volume));
            if mutant::is_active("closed-volume-logged") {
                continue;
            }
            let units = cx.shape.units_in(&cx.origins.volumes.range(volume));
            self.base.table.close(volume, units.clone());
            self.base.table.remove_singles(&units, usize::MAX);
        }
        if (0..cx.origins.volumes.count()).all(|volume| self.is_closed(volume))
            || mutant::is_active("failed-origin-ends-cache")
        {
            log.flash.fail(format!("the origin cannot be flushed: {errno}"));
            return Err(LogFailed);
        }
        self.base.table.take_left().into_iter().for_each(|left| self.left(left));
        self.leaving.set(true);
        self.evict_closed();
        Ok(())
    }

    /// Frees slots of units that leave, unless a pin keeps them; the others at the next call. Each is a record, and more than a
    /// part of the log at a time would not fit into the log of a checkpoint in progress.
    pub(super) fn evict_closed(&self) {
        let layout = &self.log().layout;
        let most =
            (layout.log_blocks as usize / 4).max(1) * layout.block_bytes as usize / DROP_BYTES;
        for slot in self.leaving_slots().into_iter().take(most) {
            if let Some(gone) = self.base.table.evict_slot(slot) {
                self.removed(gone);
                self.base.cx.stats.add(|c| c.evictions += 1);
            }
        }
    }

    /// The slots of units that leave.
    pub(super) fn leaving_slots(&self) -> Vec<u32> {
        if !self.leaving.get() {
            return Vec::new();
        }
        let slots = self.base.table.closed_slots();
        self.leaving.set(!slots.is_empty());
        slots
    }

    /// Whether the unit of a slot leaves.
    pub(super) fn leaves(&self, slot: u32) -> bool {
        let table = &self.base.table;
        self.leaving.get() && table.unit_of(slot).is_some_and(|unit| table.is_closed(unit))
    }
}
