// SPDX-License-Identifier: MIT OR Apache-2.0
//! Single pages in a table: places in mixed slots, given out, recycled, and logged.

use std::rc::Rc;

use super::directory::Single;
use super::mixed::{Left, MixedSlot};
use super::table::{MIXED, Slot, SlotPin, Table};
use crate::pages::Pages;

/// What a slot holds, as its record states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Logged {
    /// A unit (the shard's own number).
    Unit(u32),
    /// Single pages, which the slot's directory lists.
    Singles,
}

/// Slots that one search for a cold unit passes.
pub(super) const SEARCHED: u32 = 64;

impl Table {
    /// Consecutive places for pages of a unit that has no slot: those that they have, or new ones in the open slot. `None`
    /// if the open slot has no room.
    pub(crate) fn places_for(self: &Rc<Self>, unit: u32, pages: &Pages) -> Option<SlotPin> {
        let mut entries = self.entries.borrow_mut();
        let mixed = &mut entries.mixed;
        let (slot, shift) = mixed.places(unit, pages).or_else(|| mixed.append(unit, pages))?;
        Some(self.pin_pages(&mut entries, unit, (slot, shift)))
    }

    /// Opens a free slot for single pages; `reads`: of clients up to now. Returns false if no slot is free, or volumes need
    /// it.
    pub(crate) fn open_mixed(&self, reads: u64) -> bool {
        let mut entries = self.entries.borrow_mut();
        if !entries.shares.may_mix(entries.free_slots()) {
            return false;
        }
        let Some(slot) = entries.take_free(0) else { return false };
        entries.slots[slot as usize].owner = entries.mixed.open(slot, reads);
        entries.slots[slot as usize].bits = MIXED;
        true
    }

    /// The slot of the unit with the lowest frequency among the next slots that are neither pinned nor kept, and its frequency.
    pub(crate) fn coldest(&self, frequency: impl Fn(u32, u32) -> f64) -> Option<(u32, f64)> {
        let mut entries = self.entries.borrow_mut();
        let slots = entries.limit;
        let from = entries.cold_hand;
        entries.cold_hand = (from + SEARCHED) % slots.max(1);
        let next = (from..from + SEARCHED.min(slots)).map(|slot| slot % slots);
        let units = next.filter_map(|slot| {
            let unit = entries.unit_in(slot).filter(|_| entries.slots[slot as usize].pins == 0)?;
            let unit = Some(unit).filter(|unit| entries.shares.may_lose(*unit))?;
            Some((slot, frequency(slot, unit)))
        });
        units.min_by(|a, b| a.1.total_cmp(&b.1))
    }

    /// One of the mixed slots that are full, in turn.
    pub(crate) fn sample_mixed(&self) -> Option<MixedSlot> {
        self.entries.borrow_mut().mixed.sample()
    }

    /// The pages that left their places since the last call.
    pub(crate) fn take_left(&self) -> Vec<Left> {
        self.entries.borrow_mut().mixed.take_left()
    }

    /// The slot and the place of each single page among these pages of a unit.
    pub(crate) fn single_places(&self, unit: u32, pages: &Pages) -> Vec<(u32, u32)> {
        self.entries.borrow().mixed.each_place(unit, pages)
    }

    /// The page in each of these places of a slot: pages of its unit, or single pages.
    pub(crate) fn pages_in(&self, slot: u32, places: Pages) -> Vec<Single> {
        let entries = self.entries.borrow();
        match entries.slots[slot as usize] {
            Slot { bits: MIXED, owner, .. } => entries.mixed.pages_in(owner, places).collect(),
            _ => {
                let unit = entries.unit_in(slot).into_iter();
                unit.flat_map(|unit| places.clone().map(move |page| Single { unit, page }))
                    .collect()
            }
        }
    }

    /// What a record of the slot states; `None` if it cannot be logged: it is free, or mixed without a directory
    /// on flash.
    pub(crate) fn logged_as(&self, slot: u32) -> Option<Logged> {
        let entries = self.entries.borrow();
        match *entries.slots.get(slot as usize)? {
            Slot { bits: MIXED, owner, .. } => {
                entries.mixed.is_saved(owner).then_some(Logged::Singles)
            }
            _ => entries.unit_in(slot).map(Logged::Unit),
        }
    }

    /// Closes the open mixed slot: it receives no more pages.
    pub(crate) fn close_mixed(&self) {
        self.entries.borrow_mut().mixed.close_open();
    }

    /// The next mixed slot whose directory must be written to flash, and its places.
    pub(crate) fn unsaved(&self) -> Option<(u32, Vec<Single>)> {
        self.entries.borrow().mixed.unsaved()
    }

    /// The directory of a mixed slot was written to flash.
    pub(crate) fn set_saved(&self, slot: u32) {
        let mut entries = self.entries.borrow_mut();
        if let Slot { bits: MIXED, owner, .. } = entries.slots[slot as usize] {
            entries.mixed.set_saved(owner);
        }
    }

    /// The slots that are mixed.
    pub(crate) fn mixed_slots(&self) -> Vec<u32> {
        let entries = self.entries.borrow();
        let slots = 0..entries.slots.len() as u32;
        slots.filter(|slot| entries.slots[*slot as usize].bits == MIXED).collect()
    }

    /// What is known of a slot, if it is mixed.
    pub(crate) fn mixed_in(&self, slot: u32) -> Option<MixedSlot> {
        let entries = self.entries.borrow();
        match entries.slots[slot as usize] {
            Slot { bits: MIXED, owner, .. } => Some(entries.mixed.known(owner)),
            _ => None,
        }
    }

    /// The valid pages of a slot, each run with its unit: single pages, or pages of the one that it holds.
    pub(crate) fn valid_runs(&self, slot: u32) -> Vec<(u32, Pages)> {
        let runs = self.entries.borrow().valid_runs(slot);
        let present = |(unit, pages): (u32, Pages)| {
            let end = pages.end.min(self.shape.pages_of(unit));
            (pages.start < end).then_some((unit, pages.start..end))
        };
        runs.into_iter().filter_map(present).collect()
    }

    /// The mixed slot to recycle next.
    pub(crate) fn due_mixed(&self) -> Option<MixedSlot> {
        let entries = &mut *self.entries.borrow_mut();
        let (slots, limit) = (&entries.slots, entries.limit);
        entries.mixed.due(|slot| slots[slot as usize].is_pinned() || slot >= limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Placement, ReplacementChoice, SlotSpec};
    use crate::pages::PageSet;
    use crate::shape::Shape;
    use crate::volumes::Volumes;

    /// Four slots of 16 pages, over 32 units.
    fn table() -> Rc<Table> {
        let replacement = Some(ReplacementChoice::Lru);
        let spec = SlotSpec { placement: Placement::Anywhere, replacement };
        let volumes = Volumes::one(32 << 16);
        Table::new(Shape::new(32 << 16, 1 << 16, 1), &volumes, 4, spec)
    }

    fn place(table: &Rc<Table>, unit: u32, pages: Pages) -> Option<SlotPin> {
        let pin = table.places_for(unit, &pages)?;
        pin.make_valid(&pages, &PageSet::default());
        Some(pin)
    }

    #[test]
    fn pages_of_several_units_share_a_slot_and_are_found_there() {
        let table = table();
        assert!(place(&table, 7, 3..5).is_none(), "no slot is mixed");
        assert!(table.open_mixed(0));
        assert_eq!(place(&table, 7, 3..5).unwrap().offset(3 << 12), 0);
        let pin = place(&table, 9, 0..1).unwrap();
        assert_eq!((pin.offset(0), pin.offset(512)), (2 << 12, (2 << 12) + 512));
        let hit = table.hit(7, &(4..5)).unwrap();
        assert_eq!((hit.offset(4 << 12), hit.is_single()), (1 << 12, true));
        assert!(table.hit(7, &(4..6)).is_none() && table.hit(8, &(4..5)).is_none());
        assert!(table.unit_of(hit.slot()).is_none() && table.used() == 1);
    }

    #[test]
    fn a_write_invalidates_single_pages_which_keep_their_places() {
        let table = table();
        table.open_mixed(0);
        place(&table, 7, 3..5);
        let target = table.begin_write(7, &(4..5)).unwrap();
        assert_eq!((target.pin.offset(4 << 12), target.valid.has(4)), (1 << 12, true));
        assert!(table.hit(7, &(4..5)).is_none() && table.hit(7, &(3..4)).is_some());
        target.pin.make_valid(&(4..5), &PageSet::default());
        assert!(table.hit(7, &(3..5)).is_some());
    }

    #[test]
    fn a_unit_with_a_slot_has_no_single_pages_and_an_operation_in_flight_validates_none() {
        let table = table();
        table.open_mixed(0);
        let in_flight = place(&table, 7, 3..4).unwrap();
        let unit = table.insert(7).unwrap();
        in_flight.make_valid(&(3..4), &PageSet::default());
        assert!(!in_flight.all_valid(&(3..4)) && table.hit(7, &(3..4)).is_none());
        drop(unit);
        assert_eq!(table.evict_slot(table.slot_of(7).unwrap()).unwrap().units, [7]);
        assert!(table.hit(7, &(3..4)).is_none(), "the page does not come back");
    }

    #[test]
    fn the_slot_with_the_fewest_recent_hits_is_due_unless_it_is_in_use() {
        let table = table();
        for unit in 0..4 {
            table.open_mixed(u64::from(unit));
            (0..16).for_each(|page| drop(place(&table, unit, page..page + 1)));
        }
        (0..9).for_each(|_| drop(table.hit(0, &(0..1))));
        (0..5).for_each(|_| drop(table.hit(2, &(0..1))));
        let due = table.due_mixed().unwrap();
        assert_eq!((due.slot, due.opened_at, due.hits), (1, 1, 0));
        let in_use = table.hit(1, &(0..1)).unwrap();
        assert_eq!(table.due_mixed().unwrap().slot, 2);
        drop(in_use);
        assert_eq!(table.evict_slot(1).unwrap().units, [1]);
        assert!(table.hit(1, &(0..1)).is_none() && table.free_ratio() > 0.0);
        table.insert(1).unwrap();
        assert_eq!(table.slot_of(1), Some(1));
    }
}
