// SPDX-License-Identifier: MIT OR Apache-2.0
//! How many slots a table has, and how that changes while it is in use.
//!
//! No unit gets a slot from the *limit* on, and no slot there becomes mixed. What such slots held when the limit was lowered is *beyond*
//! it until it leaves, each slot when nothing pins it (`shrink.rs`); until then it is used as any other. The memory of a slot
//! stays until the end of the attachment, so a limit that rises again finds it.
//!
//! Invariant: a slot beyond the limit is never on a list of free slots, and no unit is exchanged for its unit.
//!
//! When the limit has another value, or another policy is chosen, replacement begins again, with all units in the order of their slots, as
//! after a restart; after a shrink, once nothing is beyond. Why not a policy that grows and shrinks: each has bounds that depend on the number of slots,
//! of its queues and of what it remembers of evicted units.

use super::table::{Entries, FREE, MIXED, NONE, Slot, Table};
use crate::config::ReplacementChoice;

impl Table {
    /// The share of slots that are free; 1 without slots.
    pub(crate) fn free_ratio(&self) -> f64 {
        let entries = self.entries.borrow();
        match entries.limit {
            0 => 1.0,
            slots => f64::from(entries.free_slots()) / f64::from(slots),
        }
    }

    /// Whether a slot is free.
    pub(crate) fn has_free(&self) -> bool {
        self.entries.borrow().free_slots() > 0
    }

    /// Slots in use.
    pub(crate) fn used(&self) -> u32 {
        self.entries.borrow().used
    }

    /// Slots that may hold something: those up to the limit, and those beyond.
    pub(crate) fn slots(&self) -> u32 {
        self.entries.borrow().slots.len() as u32
    }

    /// Slots that may receive content.
    pub(crate) fn limit(&self) -> u32 {
        self.entries.borrow().limit
    }

    /// Slots beyond the limit that still hold something.
    pub(crate) fn beyond(&self) -> u32 {
        self.entries.borrow().beyond
    }

    /// Whether the number of slots may change.
    pub(crate) fn may_resize(&self) -> bool {
        self.entries.borrow().spec.placement.may_grow()
    }

    /// Sets the limit.
    pub(crate) fn resize(&self, limit: u32) {
        let entries = &mut *self.entries.borrow_mut();
        let limit = entries.spec.placement.usable(limit);
        if limit as usize > entries.slots.len() {
            entries.slots.resize(limit as usize, Slot::UNUSED);
            entries.ways = entries.spec.placement.ways(limit);
            entries.free.resize(limit.checked_div(entries.ways).unwrap_or(0) as usize, NONE);
            entries.partial.has_slots(limit);
        }
        entries.limit = limit;
        entries.shares.resize(limit);
        entries.rebuild_free();
        if entries.mixed.open_slot().is_some_and(|slot| slot >= limit) {
            entries.mixed.close_open();
        }
        if entries.beyond == 0 || entries.policy_slots < limit {
            entries.renew_replacement(self.shape.unit_bytes);
        }
    }

    /// All that was beyond the limit has left.
    pub(crate) fn resized(&self) {
        self.entries.borrow_mut().renew_replacement(self.shape.unit_bytes);
    }

    /// Evicts by another policy.
    pub(crate) fn replace_by(&self, replacement: Option<ReplacementChoice>) {
        let entries = &mut *self.entries.borrow_mut();
        if entries.spec.replacement != replacement {
            entries.spec.replacement = replacement;
            entries.begin_replacement(self.shape.unit_bytes);
        }
    }

    /// At most so many slots in use, from `slot` on.
    pub(crate) fn used_from(&self, slot: u32, most: usize) -> Vec<u32> {
        let entries = self.entries.borrow();
        let in_use = |slot: &u32| entries.slots[*slot as usize].bits != FREE;
        (slot..entries.slots.len() as u32).filter(in_use).take(most).collect()
    }
}

impl Entries {
    /// Slots that are free and may receive content.
    pub(super) fn free_slots(&self) -> u32 {
        (self.limit + self.beyond).saturating_sub(self.used)
    }

    /// Chains the free slots of every set, lowest first.
    pub(super) fn rebuild_free(&mut self) {
        self.free.fill(NONE);
        for slot in (0..self.limit).rev() {
            if self.slots[slot as usize].bits == FREE {
                let set = (slot / self.ways) as usize;
                self.slots[slot as usize].owner = self.free[set];
                self.free[set] = slot;
            }
        }
        let beyond = self.slots.iter().skip(self.limit as usize);
        self.beyond = beyond.filter(|slot| slot.bits != FREE).count() as u32;
    }

    /// A slot is free again.
    pub(super) fn freed(&mut self, slot: u32) {
        self.used -= 1;
        self.slots[slot as usize].bits = FREE;
        if slot >= self.limit {
            self.beyond -= 1;
            return;
        }
        let set = (slot / self.ways) as usize;
        self.slots[slot as usize].owner = self.free[set];
        self.free[set] = slot;
    }

    /// Slots that the replacement policy must know.
    fn slots_of_policy(&self) -> u32 {
        if self.beyond > 0 { self.slots.len() as u32 } else { self.limit }
    }

    /// The replacement policy begins again, if it knows another number of slots.
    fn renew_replacement(&mut self, unit_bytes: u64) {
        if self.slots_of_policy() != self.policy_slots {
            self.begin_replacement(unit_bytes);
        }
    }

    /// The replacement policy begins again, for all slots.
    fn begin_replacement(&mut self, unit_bytes: u64) {
        let slots = self.slots_of_policy();
        self.policy_slots = slots;
        let ways = self.spec.placement.ways(slots);
        self.replacement = self.spec.build_replacement(slots, ways, unit_bytes);
        for slot in 0..slots {
            let found = &self.slots[slot as usize];
            if !matches!(found.bits, FREE | MIXED) && !found.is_kept() {
                self.enters_replacement(slot);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a test stops at the first failure

    use std::rc::Rc;

    use super::*;
    use crate::config::{Placement, ReplacementChoice, SlotSpec};
    use crate::shape::Shape;
    use crate::volumes::Volumes;

    fn table(slots: u64) -> Rc<Table> {
        let replacement = Some(ReplacementChoice::Lru);
        let spec = SlotSpec { placement: Placement::Anywhere, replacement };
        let volumes = Volumes::one(32 << 16);
        Table::new(Shape::new(32 << 16, 1 << 16, 1), &volumes, slots, spec)
    }

    #[test]
    fn slots_beyond_the_limit_receive_nothing_and_leave_when_nothing_pins_them() {
        let table = table(4);
        let pins: Vec<_> = (0..4).map(|unit| table.insert(unit).unwrap()).collect();
        let last = table.slot_of(3).unwrap();
        table.resize(2);
        assert_eq!((table.limit(), table.beyond(), table.used()), (2, 2, 4));
        assert!(!table.has_free() && table.evict_slot(last).is_none(), "it is pinned");
        drop(pins);
        assert!(table.victim_for(9, &|_, _| true).is_some_and(|slot| slot < 2));
        assert_eq!(table.used_from(2, 9), [2, 3]);
        assert!(table.evict_slot(2).is_some() && table.evict_slot(3).is_some());
        assert_eq!((table.beyond(), table.used(), table.free_ratio()), (0, 2, 0.0));
        assert!(table.insert(9).is_none(), "the freed slots are beyond the limit");
        table.evict_slot(0).unwrap();
        assert!(table.insert(9).is_some() && table.insert(10).is_none());
    }

    #[test]
    fn more_slots_than_before_are_used_and_the_policy_knows_all_units() {
        let table = table(2);
        (0..2).for_each(|unit| drop(table.insert(unit).unwrap()));
        assert!(table.insert(2).is_none());
        table.resize(3);
        assert!(table.has_free() && table.insert(2).is_some() && table.insert(3).is_none());
        let mut evicted: Vec<u32> = (0..3)
            .map(|_| table.evict_for(9, &|_| true).map(|evicted| evicted.units[0]).unwrap())
            .collect();
        evicted.sort_unstable();
        assert_eq!(evicted, [0, 1, 2]);
        table.resize(1);
        table.resize(3);
        assert_eq!((table.free_ratio(), table.slots()), (1.0, 3));
    }

    #[test]
    fn another_policy_knows_all_units_and_no_others() {
        let table = table(6);
        (0..5).for_each(|unit| drop(table.insert(unit).unwrap()));
        table.resize(4);
        [3, 4]
            .into_iter()
            .filter_map(|unit| table.slot_of(unit))
            .for_each(|slot| drop(table.evict_slot(slot)));
        table.resized();
        table.replace_by(Some(ReplacementChoice::Sieve));
        let evict = || table.evict_for(9, &|_| true).map(|evicted| evicted.units[0]);
        let mut evicted: Vec<u32> = (0..3).map(|_| evict().unwrap()).collect();
        evicted.sort_unstable();
        assert_eq!((evicted, evict()), (vec![0, 1, 2], None));
    }

    #[test]
    fn a_table_without_slots_may_get_some() {
        let table = table(0);
        assert!(table.insert(0).is_none());
        table.resize(1);
        assert!(table.insert(0).is_some());
    }
}
