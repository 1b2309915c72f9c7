// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the journal reads from the table and puts back into it.

use std::rc::Rc;

use super::{Cache, EMPTY, FREE, FULL, NONE, SlotPin};
use crate::journal::layout::Layout;
use crate::journal::recover::Recovered;
use crate::validity;

impl Cache {
    /// The slot with its unit, pinned, if it is in use.
    pub(crate) fn pin_used(self: &Rc<Self>, slot: u32) -> Option<(SlotPin, u32)> {
        let unit = self.unit_of(slot)?;
        Some((self.pin(&mut self.table.borrow_mut(), slot), unit))
    }

    /// Whether a unit is in the slot.
    pub(crate) fn is_used(&self, slot: u32) -> bool {
        self.table.borrow().slots[slot as usize].bits != FREE
    }

    /// The slot's unit.
    pub(crate) fn unit_of(&self, slot: u32) -> Option<u32> {
        let table = self.table.borrow();
        let found = table.slots.get(slot as usize)?;
        (found.bits != FREE).then_some(found.owner)
    }

    /// The first unit from this slot on that is not wholly valid, with its slot; or, if there is none
    /// among the next `most`, the slot to go on from.
    pub(crate) fn partial_from(&self, first: u32, most: u32) -> Result<(u32, u32), u32> {
        let table = self.table.borrow();
        let end = first.saturating_add(most).min(self.slots());
        let partial = |slot: &u32| !matches!(table.slots[*slot as usize].bits, FULL | FREE);
        match (first..end).find(partial) {
            Some(slot) => Ok((slot, table.slots[slot as usize].owner)),
            None => Err(end.max(first)),
        }
    }

    /// Units with something that flash alone has.
    pub(crate) fn units_dirty(&self) -> u64 {
        self.journal().filter(|j| j.keeps_dirty()).map_or(0, |j| j.touched_count())
    }

    /// Appends a bit per page of the slot's unit: 1 for valid.
    pub(crate) fn valid_bits(&self, slot: u32, out: &mut Vec<u8>) {
        let table = self.table.borrow();
        let bytes = self.shape.pages_per_unit().div_ceil(8) as usize;
        match table.slots[slot as usize].bits {
            FULL => out.resize(out.len() + bytes, u8::MAX),
            EMPTY | FREE => out.resize(out.len() + bytes, 0),
            bits => {
                let words = table.partial.get(bits).iter().flat_map(|w| w.to_le_bytes());
                out.extend(words.take(bytes));
            }
        }
    }

    /// Fills an empty table with what was recovered; false if that contradicts itself, and the
    /// table is of no use then.
    pub(crate) fn restore(&self, recovered: &Recovered, layout: &Layout) -> bool {
        let (units, unit_pages) = (self.shape.units(), self.shape.pages_per_unit());
        let mut table = self.table.borrow_mut();
        let mut words = vec![0_u64; unit_pages.div_ceil(64) as usize];
        let all_bits = words.len() as u32 * u64::BITS;
        let entries = recovered.payload.chunks_exact(layout.entry_bytes());
        for (slot, entry) in (0..table.slots.len() as u32).zip(entries) {
            let Some(owner) = entry.first_chunk::<4>().map(|b| u32::from_le_bytes(*b)) else {
                return false;
            };
            let Some(unit) = owner.checked_sub(1) else { continue };
            let lawful = u64::from(unit) < units
                && table.slot_of(unit).is_none()
                && table.set_of(unit) == slot / table.ways;
            if !lawful {
                return false;
            }
            table.map[unit as usize] = slot + 1;
            table.slots[slot as usize].owner = unit;
            table.slots[slot as usize].bits = EMPTY;
            table.used += 1;
            table.replacement.inserted(slot, u64::from(unit));
            let bits = entry.get(layout.bits()).unwrap_or_default();
            words.fill(if layout.dirty { u64::MAX } else { 0 });
            for (word, bytes) in words.iter_mut().zip(bits.chunks(8)) {
                *word = bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
            }
            // The last byte may have bits of no page.
            validity::assign(&mut words, unit_pages..all_bits, false);
            table.put_bits(slot, &words, unit_pages);
            if let Some(journal) = self.journal() {
                journal.set_logged(slot, true);
                journal.restore_touched(slot, recovered.dirty(slot, layout));
            }
        }
        table.rebuild_free();
        true
    }
}

impl super::Table {
    /// Makes exactly these pages valid in a slot without any.
    fn put_bits(&mut self, slot: u32, words: &[u64], unit_pages: u32) {
        if validity::all_set(words, 0..unit_pages) {
            self.slots[slot as usize].bits = FULL;
        } else if words.iter().any(|w| *w != 0) {
            let bits = self.partial.take(false);
            self.partial.get_mut(bits).copy_from_slice(words);
            self.slots[slot as usize].bits = bits;
        }
    }

    /// Chains the free slots of every set, lowest first.
    fn rebuild_free(&mut self) {
        self.free.fill(NONE);
        for slot in (0..self.slots.len() as u32).rev() {
            if self.slots[slot as usize].bits == FREE {
                let set = (slot / self.ways) as usize;
                self.slots[slot as usize].owner = self.free[set];
                self.free[set] = slot;
            }
        }
    }
}
