// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which regions of which slots are dirty: only the flash holds their data.
//!
//! A region is one 64th of a unit, so that write-back copies less than whole units (PRWC 2.4 has one bit per segment).
//! The map lives in memory; a journal may persist it.

use std::cell::RefCell;
use std::collections::BTreeMap;

use crate::pages::{Pages, Regions};
use crate::shape::Shape;

/// The dirty regions of all slots.
pub(crate) struct DirtyMap {
    regions: Regions,
    masks: RefCell<BTreeMap<u32, u64>>,
}

impl DirtyMap {
    pub(crate) fn new(shape: &Shape) -> Self {
        Self { regions: Regions::of(shape.pages_per_unit()), masks: RefCell::default() }
    }

    /// Marks the regions of these pages. Returns their mask, or 0 if all of them were dirty before.
    pub(crate) fn mark(&self, slot: u32, pages: &Pages) -> u64 {
        let mask = self.regions.mask_of(pages);
        let mut masks = self.masks.borrow_mut();
        let known = masks.entry(slot).or_default();
        if *known & mask == mask {
            return 0;
        }
        *known |= mask;
        mask
    }

    /// The slot's unit is clean, or evicted.
    pub(crate) fn clear(&self, slot: u32) {
        self.masks.borrow_mut().remove(&slot);
    }

    /// Restores the recovered dirty regions of a slot.
    pub(crate) fn restore(&self, slot: u32, mask: u64) {
        if mask != 0 {
            self.masks.borrow_mut().insert(slot, mask);
        }
    }

    /// The slot's dirty regions.
    pub(crate) fn mask(&self, slot: u32) -> u64 {
        self.masks.borrow().get(&slot).copied().unwrap_or(0)
    }

    /// At most `most` slots with dirty regions, from `slot` on.
    pub(crate) fn slots_from(&self, slot: u32, most: usize) -> Vec<u32> {
        self.masks.borrow().range(slot..).take(most).map(|(slot, _)| *slot).collect()
    }

    /// How many slots have dirty regions.
    pub(crate) fn count(&self) -> u64 {
        self.masks.borrow().len() as u64
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
