// SPDX-License-Identifier: MIT OR Apache-2.0
//! Units that a rule keeps (`range_rules.rs`): no other unit takes their slots.
//!
//! The replacement policy does not know a slot while its unit is kept, so a search for a victim does not pass it again and
//! again. What an administrator asks for still removes the unit: a detach, a volume that leaves, an eviction by command.
//!
//! Invariants: the policy knows exactly the slots that hold a unit and are not kept; a slot that became kept stays so until the unit
//! leaves or the rules change.

use std::sync::Arc;

use super::table::{Entries, KEPT, Table};
use crate::range_rules::{RangeRules, most_kept};

impl Table {
    /// From now on these rules are in force.
    pub(crate) fn follow(&self, rules: &Arc<RangeRules>) {
        let shape = self.shape;
        let mut entries = self.entries.borrow_mut();
        let old = std::mem::replace(&mut entries.rules, Arc::clone(rules));
        let units = |of: &RangeRules| -> Vec<u32> {
            of.pinned().iter().flat_map(|range| shape.units_touching(range)).collect()
        };
        for unit in units(&old) {
            let Some(slot) = entries.slot_of(unit) else { continue };
            if entries.slots[slot as usize].is_kept() && !rules.keeps(shape.unit_offset(unit)) {
                entries.left(slot);
                entries.enters_replacement(slot);
            }
        }
        for unit in units(rules) {
            let Some(slot) = entries.slot_of(unit) else { continue };
            if !entries.slots[slot as usize].is_kept() {
                entries.left(slot);
                entries.entered(slot, shape.unit_offset(unit));
            }
        }
    }

    /// Whether a slot's unit is kept.
    pub(crate) fn is_kept(&self, slot: u32) -> bool {
        self.entries.borrow().slots[slot as usize].is_kept()
    }

    /// Slots whose unit is kept.
    pub(crate) fn kept(&self) -> u32 {
        self.entries.borrow().kept
    }
}

impl Entries {
    /// A slot received a unit, which lies at this place.
    pub(super) fn entered(&mut self, slot: u32, at: u64) {
        if self.rules.keeps(at) && self.kept < most_kept(self.limit) {
            self.slots[slot as usize].pins |= KEPT;
            self.kept += 1;
        } else {
            self.enters_replacement(slot);
        }
    }

    /// The replacement policy decides about a slot's unit.
    pub(super) fn enters_replacement(&mut self, slot: u32) {
        let unit = self.slots[slot as usize].owner;
        self.replacement.inserted(slot, u64::from(unit));
    }

    /// A slot's unit was read or written.
    #[inline]
    pub(super) fn accessed(&mut self, slot: u32) {
        if !self.slots[slot as usize].is_kept() {
            self.replacement.accessed(slot);
        }
    }

    /// The unit of a slot leaves it, or is about to enter again.
    pub(super) fn left(&mut self, slot: u32) {
        let found = &mut self.slots[slot as usize];
        if found.is_kept() {
            found.pins &= !KEPT;
            self.kept -= 1;
        } else {
            self.replacement.removed(slot);
        }
    }
}
