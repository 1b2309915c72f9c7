// SPDX-License-Identifier: MIT OR Apache-2.0
//! The state of a table that a journal saves and a warm start restores.

use super::table::{EMPTY, Entries, FREE, FULL, MIXED, NONE, Table};
use super::validity;

/// The recovered state contradicts itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the metadata on flash contradicts itself")]
pub(crate) struct Contradiction;

/// A slot in use, as recovered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Held<'a> {
    pub slot: u32,
    /// The shard's own number of the unit.
    pub unit: u32,
    /// A bit per page: 1 for valid. `None`: all pages are valid.
    pub valid: Option<&'a [u8]>,
    /// A bit per region that is dirty.
    pub dirty: u64,
}

impl Table {
    /// Valid pages of all slots that hold a unit.
    pub(crate) fn valid(&self) -> u64 {
        self.entries.borrow().valid
    }

    /// Appends a bit per page of a slot's unit: 1 for valid.
    pub(crate) fn valid_bits(&self, slot: u32, out: &mut Vec<u8>) {
        let entries = self.entries.borrow();
        let bytes = self.shape.pages_per_unit().div_ceil(8) as usize;
        match entries.slots[slot as usize].bits {
            FULL => out.resize(out.len() + bytes, u8::MAX),
            EMPTY | FREE => out.resize(out.len() + bytes, 0),
            bits => {
                let words = entries.partial.get(bits).iter().flat_map(|w| w.to_le_bytes());
                out.extend(words.take(bytes));
            }
        }
    }

    /// Fills an empty table with the recovered slots.
    ///
    /// # Errors
    /// If they contradict each other; the caller drops the table.
    pub(crate) fn restore<'a>(
        &self,
        held: impl Iterator<Item = Held<'a>>,
    ) -> Result<(), Contradiction> {
        let (units, unit_pages) = (self.shape.units(), self.shape.pages_per_unit());
        let mut entries = self.entries.borrow_mut();
        let mut words = vec![0_u64; unit_pages.div_ceil(64) as usize];
        let all_bits = words.len() as u32 * u64::BITS;
        for Held { slot, unit, valid, .. } in held {
            // Slots beyond the last whole set are unused.
            if slot as usize >= entries.slots.len() {
                break;
            }
            let consistent = u64::from(unit) < units
                && entries.slot_of(unit).is_none()
                && entries.set_of(unit) == slot / entries.ways;
            if !consistent {
                return Err(Contradiction);
            }
            entries.map[unit as usize] = slot + 1;
            entries.slots[slot as usize].owner = unit;
            entries.slots[slot as usize].bits = EMPTY;
            entries.used += 1;
            entries.replacement.inserted(slot, u64::from(unit));
            words.fill(if valid.is_some() { 0 } else { u64::MAX });
            for (word, bytes) in words.iter_mut().zip(valid.unwrap_or_default().chunks(8)) {
                *word = bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
            }
            // The last byte may have bits beyond the unit's pages.
            validity::assign(&mut words, unit_pages..all_bits, false);
            entries.put_bits(slot, &words, unit_pages);
        }
        entries.rebuild_free();
        Ok(())
    }
}

impl Entries {
    /// Valid pages of a slot with these bits. Pages in a mixed slot do not count: no journal records them.
    pub(super) fn valid_of(&self, bits: u32) -> u64 {
        match bits {
            FULL => u64::from(self.unit_pages),
            EMPTY | FREE | MIXED => 0,
            bits => validity::count(self.partial.get(bits), 0..self.unit_pages),
        }
    }

    /// Makes exactly these pages valid in a slot that has no valid page.
    fn put_bits(&mut self, slot: u32, words: &[u64], unit_pages: u32) {
        if validity::all_set(words, 0..unit_pages) {
            self.slots[slot as usize].bits = FULL;
        } else if words.iter().any(|w| *w != 0) {
            let bits = self.partial.take(false);
            self.partial.get_mut(bits).copy_from_slice(words);
            self.slots[slot as usize].bits = bits;
        }
        self.valid += self.valid_of(self.slots[slot as usize].bits);
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
