// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pages of a table that become invalid: of a unit with a slot, or single pages in mixed slots.

use std::rc::Rc;

use super::table::{SlotPin, Table};
use crate::mutant;
use crate::pages::{PageSet, Pages};

/// The slot that a write goes to.
#[derive(Clone)]
pub(crate) struct WriteTarget {
    pub(crate) pin: SlotPin,
    /// The pages of the write that were valid before it.
    pub(crate) valid: PageSet,
}

impl Table {
    /// Begins a write to a resident unit: invalidates its pages and pins its slot.
    pub(crate) fn begin_write(self: &Rc<Self>, unit: u32, pages: &Pages) -> Option<WriteTarget> {
        let mut entries = self.entries.borrow_mut();
        entries.replacement.requested();
        let Some(slot) = entries.slot_of(unit) else {
            let singles = entries.mixed.places(unit, pages);
            let valid = singles.map(|(slot, shift)| {
                PageSet::of(pages, |p| entries.places_valid(slot, shift, &(p..p + 1)))
            });
            entries.mixed.invalidate(unit, pages);
            let (slot, shift) = singles?;
            let pin = self.pin_pages(&mut entries, unit, (slot, shift));
            return Some(WriteTarget { pin, valid: valid? });
        };
        let valid = PageSet::of(pages, |p| entries.all_valid(slot, &(p..p + 1)));
        if !mutant::is_active("write-keeps-valid") {
            entries.assign(slot, pages, false, self.shape.pages_per_unit());
        }
        entries.accessed(slot);
        let pin = self.pin(&mut entries, slot);
        Some(WriteTarget { pin, valid })
    }

    /// Makes these pages of a unit invalid.
    pub(crate) fn invalidate(&self, unit: u32, pages: &Pages) {
        let mut entries = self.entries.borrow_mut();
        match entries.slot_of(unit) {
            Some(slot) => entries.assign(slot, pages, false, self.shape.pages_per_unit()),
            None => entries.mixed.invalidate(unit, pages),
        }
    }
}
