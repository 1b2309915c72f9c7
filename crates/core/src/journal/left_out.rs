// SPDX-License-Identifier: MIT OR Apache-2.0
//! A clean cache's journal continues without the volumes whose origin is overdue (`overdue.rs`).
//!
//! None of their changes is logged: that needs a flush of their origin. Their touched regions stay touched, and their changed
//! slots wait. A checkpoint has those of their slots that have not changed since they were logged, which needs no flush; it omits
//! the others, so that a crash leaves them cold. When the origin answers, the slots are logged as usual.
//!
//! Invariant: an omitted slot still counts as logged if it did, so a write to it has its touched record in both logs. Recovery
//! may begin with the earlier payload, which has the slot, if the new one is damaged. In the new one the record does nothing.
//!
//! A mixed slot belongs to the volumes of all of its pages.

use super::base::Journal as _;
use super::clean::{Before, CleanJournal};
use crate::volumes::VolumeSet;

impl CleanJournal {
    /// The volumes without which the journal continues. Without a flush there is nothing to wait for.
    pub(super) fn absent(&self, rests: bool) -> VolumeSet {
        if rests { VolumeSet::default() } else { self.base().cx.origins.overdue() }
    }

    /// Whether a slot has pages of one of these volumes.
    pub(super) fn is_of(&self, slot: u32, volumes: VolumeSet) -> bool {
        !volumes.is_empty() && self.volumes_in(slot).meets(volumes)
    }

    /// The volumes of a slot's pages.
    pub(super) fn volumes_in(&self, slot: u32) -> VolumeSet {
        let (table, origins) = (&self.base().table, &self.base().cx.origins);
        match table.unit_of(slot) {
            Some(unit) => origins.volumes_of([unit].into_iter()),
            None => {
                let pages = table.pages_in(slot, 0..self.log().layout.pages);
                origins.volumes_of(pages.into_iter().map(|page| page.unit))
            }
        }
    }

    /// Whether the checkpoint in progress omits a slot.
    pub(super) fn omits(&self, slot: u32) -> bool {
        let changed =
            || self.changed.borrow().contains(&slot) || self.waiting.borrow().contains(&slot);
        self.is_of(slot, self.left_out.get()) && changed()
    }

    /// The checkpoint in progress leaves out more volumes: their slots are as they were before. Returns false if there are none.
    pub(super) fn leave_out(&self, slots: &mut Vec<Before>, absent: VolumeSet) -> bool {
        let more = absent.without(self.left_out.get());
        if more.is_empty() {
            return false;
        }
        self.left_out.set(self.left_out.get().and(more));
        let theirs = slots.extract_if(.., |before| self.is_of(before.slot, more));
        theirs.for_each(|before| self.cancel(before));
        true
    }
}
