// SPDX-License-Identifier: MIT OR Apache-2.0
//! The state of a table that a journal saves and a warm start restores.

use super::directory::Single;
use super::table::{EMPTY, Entries, FREE, FULL, MIXED, Slot, Table};
use super::validity;
use crate::pages::Pages;

/// The recovered state contradicts itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the metadata on flash contradicts itself")]
pub(crate) struct Contradiction;

/// What a slot holds, as recovered.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Content<'a> {
    /// A unit (the shard's own number).
    Unit(u32),
    /// Single pages, by place; none if the directory of the slot is damaged.
    Singles(&'a [Single]),
}

/// A slot in use, as recovered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Held<'a> {
    pub slot: u32,
    pub content: Content<'a>,
    /// A bit per page: 1 for valid. `None`: all pages are valid.
    pub valid: Option<&'a [u8]>,
    /// A bit per region that is dirty.
    pub dirty: u64,
}

impl Table {
    /// Valid pages of all slots.
    pub(crate) fn valid(&self) -> u64 {
        let entries = self.entries.borrow();
        entries.valid + entries.mixed.valid()
    }

    /// Appends a bit per page of a slot's unit, or per place of a mixed slot: 1 for valid.
    pub(crate) fn valid_bits(&self, slot: u32, out: &mut Vec<u8>) {
        let entries = self.entries.borrow();
        let bytes = self.shape.pages_per_unit().div_ceil(8) as usize;
        let Slot { bits, owner, .. } = entries.slots[slot as usize];
        let words = match bits {
            FULL => return out.resize(out.len() + bytes, u8::MAX),
            EMPTY | FREE => return out.resize(out.len() + bytes, 0),
            MIXED => entries.mixed.valid_words(owner),
            bits => entries.partial.get(bits),
        };
        out.extend(words.iter().flat_map(|word| word.to_le_bytes()).take(bytes));
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
        let mut singles = Vec::new();
        for Held { slot, content, valid, .. } in held {
            // Slots beyond the last whole set are unused.
            if slot as usize >= entries.slots.len() {
                break;
            }
            words.fill(if valid.is_some() { 0 } else { u64::MAX });
            for (word, bytes) in words.iter_mut().zip(valid.unwrap_or_default().chunks(8)) {
                *word = bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
            }
            let unit = match content {
                Content::Unit(unit) => unit,
                Content::Singles(pages) => {
                    let owner = entries.mixed.restore(slot, pages, &words).ok_or(Contradiction)?;
                    entries.slots[slot as usize].owner = owner;
                    entries.slots[slot as usize].bits = MIXED;
                    entries.used += 1;
                    singles.extend(entries.mixed.pages_in(owner, 0..unit_pages));
                    continue;
                }
            };
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
            entries.shares.added(unit);
            entries.replacement.inserted(slot, u64::from(unit));
            // The last byte may have bits beyond the unit's pages.
            validity::assign(&mut words, unit_pages..all_bits, false);
            entries.put_bits(slot, &words, unit_pages);
        }
        let is_unit = |single: &Single| {
            u64::from(single.unit) >= units || entries.slot_of(single.unit).is_some()
        };
        if singles.iter().any(is_unit) {
            return Err(Contradiction);
        }
        entries.rebuild_free();
        Ok(())
    }

    /// The first unit that is not wholly valid among the `most` slots from `first` on: its slot and the unit.
    ///
    /// # Errors
    /// If there is none: the slot to continue from.
    pub(crate) fn partial_from(&self, first: u32, most: u32) -> Result<(u32, u32), u32> {
        let entries = self.entries.borrow();
        let end = first.saturating_add(most).min(entries.limit);
        let partial =
            |slot: &u32| !matches!(entries.slots[*slot as usize].bits, FULL | FREE | MIXED);
        match (first..end).find(partial) {
            Some(slot) => Ok((slot, entries.slots[slot as usize].owner)),
            None => Err(end.max(first)),
        }
    }
}

impl Entries {
    /// Valid pages of a slot with these bits. Those of mixed slots are counted in one sum.
    pub(super) fn valid_of(&self, bits: u32) -> u64 {
        match bits {
            FULL => u64::from(self.unit_pages),
            EMPTY | FREE | MIXED => 0,
            bits => validity::count(self.partial.get(bits), 0..self.unit_pages),
        }
    }

    /// How many of these pages are valid in a slot that holds their unit.
    pub(super) fn valid_in(&self, slot: u32, pages: &Pages) -> u64 {
        match self.slots[slot as usize].bits {
            FULL => pages.len() as u64,
            EMPTY | FREE | MIXED => 0,
            bits => validity::count(self.partial.get(bits), pages.clone()),
        }
    }

    /// The valid pages of a slot, each run with its unit.
    pub(super) fn valid_runs(&self, slot: u32) -> Vec<(u32, Pages)> {
        let Slot { owner, bits, .. } = self.slots[slot as usize];
        let pages: Vec<(u32, u32)> = match bits {
            FREE | EMPTY => return Vec::new(),
            FULL => return vec![(owner, 0..self.unit_pages)],
            MIXED => {
                let singles = self.mixed.pages_in(owner, 0..self.unit_pages).enumerate();
                let valid = singles.filter(|(place, single)| {
                    let place = *place as u32;
                    single.is_there() && self.mixed.all_valid(owner, place..place + 1)
                });
                valid.map(|(_, single)| (single.unit, single.page)).collect()
            }
            bits => {
                let words = self.partial.get(bits);
                let valid = |page: &u32| validity::all_set(words, *page..page + 1);
                (0..self.unit_pages).filter(valid).map(|page| (owner, page)).collect()
            }
        };
        let mut runs: Vec<(u32, Pages)> = Vec::new();
        for (unit, page) in pages {
            match runs.last_mut().filter(|run| run.0 == unit && run.1.end == page) {
                Some(run) => run.1.end += 1,
                None => runs.push((unit, page..page + 1)),
            }
        }
        runs
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
}
