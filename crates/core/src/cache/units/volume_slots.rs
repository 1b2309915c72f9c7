// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a table knows of volumes: their shares of its slots (`shares.rs`), and units that get no slot.
//!
//! Those are the units that a rule excludes (`range_rules.rs`), and the units of a *closed* volume: its origin cannot be flushed, or
//! it left the cache. An operation in flight does not make a single page valid that has left. Slots are freed by the owner of the
//! table, each when nothing pins it.

use std::ops::Range;

use super::table::{Hold, NONE, Table};
use crate::pages::Pages;

impl Table {
    /// From now on these units of a volume get no slot and no place in a mixed slot.
    pub(crate) fn close(&self, volume: u32, units: Range<u32>) {
        let mut entries = self.entries.borrow_mut();
        entries.shares.keep_least(volume, false);
        if !entries.closed.contains(&units) {
            entries.closed.push(units);
        }
    }

    /// Takes single pages of these units out of their places, at most so many; returns whether there may be more.
    pub(crate) fn remove_singles(&self, units: &Range<u32>, most: usize) -> bool {
        self.entries.borrow_mut().mixed.remove_units(units, most)
    }

    /// Takes the single pages of a unit out of their places.
    pub(super) fn remove_pages(&self, unit: u32) {
        let pages = self.shape.pages_of(unit);
        self.entries.borrow_mut().mixed.remove_all(unit, 0..pages);
    }

    /// Whether a unit without a slot would get a free one.
    pub(super) fn has_room(&self, unit: u32) -> bool {
        let entries = self.entries.borrow();
        let is_free = |set: u32| entries.free.get(set as usize).is_some_and(|slot| *slot != NONE);
        is_free(entries.set_of(unit)) && entries.shares.may_insert(unit, entries.free_slots())
    }

    /// How many of these pages of a unit are valid.
    pub(crate) fn valid_in(&self, unit: u32, pages: &Pages) -> u64 {
        let entries = self.entries.borrow();
        match entries.slot_of(unit) {
            Some(slot) => entries.valid_in(slot, pages),
            None if entries.mixed.is_empty() => 0,
            None => {
                let is_valid = |page: &u32| entries.mixed.peek(unit, &(*page..page + 1)).is_some();
                pages.clone().filter(is_valid).count() as u64
            }
        }
    }

    /// These units of a volume may have slots again.
    pub(crate) fn reopen(&self, volume: u32, units: &Range<u32>) {
        let mut entries = self.entries.borrow_mut();
        entries.closed.retain(|closed| closed != units);
        entries.shares.keep_least(volume, true);
    }

    /// At most so many slots that hold these units, from `slot` on.
    pub(crate) fn slots_of(&self, units: &Range<u32>, slot: u32, most: usize) -> Vec<u32> {
        let entries = self.entries.borrow();
        let holds = |slot: &u32| entries.unit_in(*slot).is_some_and(|unit| units.contains(&unit));
        (slot..entries.slots.len() as u32).filter(holds).take(most).collect()
    }

    /// Whether a unit gets no slot: its volume is closed, or a rule excludes it.
    #[inline]
    pub(crate) fn is_closed(&self, unit: u32) -> bool {
        let entries = self.entries.borrow();
        entries.closed.iter().any(|units| units.contains(&unit))
            || entries.rules.excludes(self.shape.unit_offset(unit))
    }

    /// The slots that hold units of closed volumes.
    pub(crate) fn closed_slots(&self) -> Vec<u32> {
        let entries = self.entries.borrow();
        let is_closed = |unit| entries.closed.iter().any(|units| units.contains(&unit));
        let slots = 0..entries.slots.len() as u32;
        slots.filter(|slot| entries.unit_in(*slot).is_some_and(is_closed)).collect()
    }

    /// Slots of a volume.
    pub(crate) fn used_by(&self, volume: u32) -> u32 {
        self.entries.borrow().shares.used(volume)
    }

    /// Holds a volume at the slots that it has, or no longer.
    pub(crate) fn hold(&self, volume: u32, why: Hold, holds: bool) {
        self.entries.borrow_mut().shares.hold(volume, why, holds);
    }

    /// Whether the volume of a unit is held.
    pub(crate) fn is_held(&self, unit: u32) -> bool {
        self.entries.borrow().shares.is_held(unit)
    }

    /// Whether a unit may get a slot: that of `victim`, or a free one.
    pub(crate) fn may_take(&self, unit: u32, victim: Option<u32>) -> bool {
        let entries = self.entries.borrow();
        match victim {
            Some(victim) => entries.shares.may_displace(unit, victim),
            None => entries.shares.may_insert(unit, entries.free_slots()),
        }
    }

    /// Whether a unit would get one more free slot, such as a mixed one that is evicted.
    pub(crate) fn would_take_another(&self, unit: u32) -> bool {
        let entries = self.entries.borrow();
        entries.shares.may_insert(unit, entries.free_slots() + 1)
    }

    /// The unit of a slot counts as new for the replacement policy.
    pub(crate) fn renew(&self, slot: u32) {
        let mut entries = self.entries.borrow_mut();
        if entries.unit_in(slot).is_some() && !entries.slots[slot as usize].is_kept() {
            entries.left(slot);
            entries.enters_replacement(slot);
        }
    }
}
