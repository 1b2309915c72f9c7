// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which regions of which slots are dirty: only the flash holds their data.
//!
//! A region is one 64th of a unit, so that write-back copies less than whole units (PRWC 2.4 has one bit per segment).
//! The map lives in memory; a journal may persist it.
//!
//! Each change of a slot has a number. A copy to the origin that began at one number may count as the whole only if it is
//! still the last one when the copy is durable.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use crate::pages::{Pages, REGIONS, Regions};
use crate::shape::Shape;

/// Memory of a dirty slot, with its entries in the queues of the syncer and the journal.
pub(crate) const DIRTY_SLOT_BYTES: u64 = 128;

/// The dirty regions of all slots.
pub(crate) struct DirtyMap {
    regions: Regions,
    slots: RefCell<BTreeMap<u32, Dirty>>,
    changes: Cell<u64>,
}

/// The dirty regions of a slot.
#[derive(Clone, Copy, Default)]
struct Dirty {
    mask: u64,
    /// The number of the last change.
    change: u64,
}

impl DirtyMap {
    pub(crate) fn new(shape: &Shape) -> Self {
        let regions = Regions::of(shape.pages_per_unit());
        Self { regions, slots: RefCell::default(), changes: Cell::new(0) }
    }

    /// Marks the regions of these pages: a change begins. Returns their mask, or 0 if all of them were dirty before.
    pub(crate) fn mark(&self, slot: u32, pages: &Pages) -> u64 {
        let mask = self.regions.mask_of(pages);
        let mut slots = self.slots.borrow_mut();
        let known = slots.entry(slot).or_default();
        known.change = self.changes.get() + 1;
        self.changes.set(known.change);
        if known.mask & mask == mask {
            return 0;
        }
        known.mask |= mask;
        mask
    }

    /// The slot's unit is clean, or evicted.
    pub(crate) fn clear(&self, slot: u32) {
        self.slots.borrow_mut().remove(&slot);
    }

    /// Restores the recovered dirty regions of a slot.
    pub(crate) fn restore(&self, slot: u32, mask: u64) {
        if mask != 0 {
            self.slots.borrow_mut().insert(slot, Dirty { mask, change: 0 });
        }
    }

    /// The slot's dirty regions.
    pub(crate) fn mask(&self, slot: u32) -> u64 {
        self.slots.borrow().get(&slot).map_or(0, |dirty| dirty.mask)
    }

    /// The number of the last change of a slot that is dirty.
    pub(crate) fn change(&self, slot: u32) -> Option<u64> {
        self.slots.borrow().get(&slot).map(|dirty| dirty.change)
    }

    /// At most `most` slots with dirty regions, from `slot` on.
    pub(crate) fn slots_from(&self, slot: u32, most: usize) -> Vec<u32> {
        self.slots.borrow().range(slot..).take(most).map(|(slot, _)| *slot).collect()
    }

    /// Calls `see` for every dirty region, with its slot and its pages.
    pub(crate) fn each_dirty(&self, mut see: impl FnMut(u32, Pages)) {
        for (slot, Dirty { mask, .. }) in &*self.slots.borrow() {
            for region in (0..REGIONS).filter(|region| mask >> region & 1 == 1) {
                see(*slot, self.regions.pages(region..region + 1));
            }
        }
    }

    /// How many slots have dirty regions.
    pub(crate) fn count(&self) -> u64 {
        self.slots.borrow().len() as u64
    }

    /// Whether one of these pages of a slot's unit lies in a dirty region.
    pub(crate) fn is_dirty(&self, slot: u32, pages: &Pages) -> bool {
        self.mask(slot) & self.regions.mask_of(pages) != 0
    }

    /// How units are divided.
    pub(crate) fn regions(&self) -> Regions {
        self.regions
    }
}
