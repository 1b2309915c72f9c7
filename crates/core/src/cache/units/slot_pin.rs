// SPDX-License-Identifier: MIT OR Apache-2.0
//! A pin on a slot: while it lives, the slot keeps what it holds (design rule 5).

use std::rc::Rc;

use super::table::{MIXED, Slot, Table};
use crate::buf::PAGE;
use crate::pages::{PageSet, Pages};

/// Keeps the unit of a slot, or the single pages in a mixed slot, from eviction.
pub(crate) struct SlotPin {
    table: Rc<Table>,
    slot: u32,
    /// The place in the slot of the unit's page 0, which may wrap; 0 for a slot that holds the unit.
    shift: u32,
}

/// Pages moved by a shift that may wrap.
pub(super) fn shifted(pages: &Pages, shift: u32) -> Pages {
    let start = pages.start.wrapping_add(shift);
    start..start + pages.len() as u32
}

impl SlotPin {
    /// The caller has counted it in the slot.
    pub(super) fn new(table: &Rc<Table>, slot: u32, shift: u32) -> Self {
        Self { table: Rc::clone(table), slot, shift }
    }

    /// Whether it keeps single pages in a mixed slot.
    pub(crate) fn is_single(&self) -> bool {
        self.table.entries.borrow().slots[self.slot as usize].bits == MIXED
    }

    /// The slot.
    pub(crate) fn slot(&self) -> u32 {
        self.slot
    }

    /// The places of pages of the unit in the slot: the pages themselves, unless the slot is mixed.
    pub(crate) fn places(&self, pages: &Pages) -> Pages {
        shifted(pages, self.shift)
    }

    /// The first byte in the slot of byte `within` of the unit.
    pub(crate) fn offset(&self, within: u64) -> u64 {
        let page = PAGE as u64;
        let place = ((within / page) as u32).wrapping_add(self.shift);
        u64::from(place) * page + within % page
    }

    /// Makes the pages that are not in `except` valid.
    pub(crate) fn make_valid(&self, pages: &Pages, except: &PageSet) {
        let unit_pages = self.table.shape.pages_per_unit();
        let mut entries = self.table.entries.borrow_mut();
        for run in PageSet::runs(pages.clone(), |p| !except.has(p)) {
            match entries.slots[self.slot as usize] {
                Slot { bits: MIXED, owner, .. } => {
                    entries.mixed.make_valid(owner, shifted(&run, self.shift));
                }
                _ => entries.assign(self.slot, &run, true, unit_pages),
            }
        }
    }

    /// Whether all of these pages are valid.
    pub(crate) fn all_valid(&self, pages: &Pages) -> bool {
        self.table.entries.borrow().places_valid(self.slot, self.shift, pages)
    }

    /// The pages of the range that are valid.
    pub(crate) fn valid_pages(&self, pages: &Pages) -> PageSet {
        let entries = self.table.entries.borrow();
        let mut set = PageSet::at(pages.start);
        let valid = |p: &u32| entries.places_valid(self.slot, self.shift, &(*p..p + 1));
        pages.clone().filter(valid).for_each(|p| {
            set.add(&(p..p + 1));
        });
        set
    }
}

impl Clone for SlotPin {
    fn clone(&self) -> Self {
        self.table.pin_singles(&mut self.table.entries.borrow_mut(), self.slot, self.shift)
    }
}

impl Drop for SlotPin {
    fn drop(&mut self) {
        self.table.entries.borrow_mut().slots[self.slot as usize].pins -= 1;
    }
}
