// SPDX-License-Identifier: MIT OR Apache-2.0
//! The table of a unit cache: which unit lies in which slot, and which of its pages are valid.
//!
//! The map is direct, 4 bytes per origin unit (SCE 3.4). A slot takes 12 bytes and the replacement policy's share. Only
//! partly valid units hold a bitmap. A table belongs to one attachment of a flash device; it uses neither the device nor a
//! journal.
//!
//! Some slots hold single pages of many units instead (`mixed.rs`).
//!
//! Invariants: map and slots are inverse to each other; a pinned slot keeps its unit (design rule 5); pages beyond the
//! end of the volume are valid, so that a short last unit can be fully valid.

use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use larder_policy::replacement::Replacement;

use super::mixed::MixedSlots;
pub(crate) use super::shares::Hold;
use super::shares::Shares;
use super::validity::{self, BitmapPool};
use crate::buf::PAGE;
use crate::config::SlotSpec;
use crate::mutant;
use crate::pages::{PageSet, Pages};
use crate::range_rules::RangeRules;
use crate::shape::Shape;
use crate::volumes::Volumes;

/// Values of [`Slot::bits`]: all pages valid, none valid, slot free, slot mixed. Every other value is a bitmap's index.
pub(super) const FULL: u32 = u32::MAX;
pub(super) const EMPTY: u32 = u32::MAX - 1;
pub(super) const FREE: u32 = u32::MAX - 2;
pub(super) const MIXED: u32 = u32::MAX - 3;
/// End of a chain of free slots.
pub(super) const NONE: u32 = u32::MAX;

/// A slot of the flash device.
#[derive(Clone, Copy)]
pub(super) struct Slot {
    /// The unit that it holds (the shard's own number); if it is free, the next free slot of its set; if it is mixed, the
    /// number of its directory.
    pub(super) owner: u32,
    /// Which pages are valid.
    pub(super) bits: u32,
    /// Operations and paths that keep its unit from eviction; and [`KEPT`].
    pub(super) pins: u32,
}

/// The bit of [`Slot::pins`] of a slot whose unit a rule keeps: the replacement policy does not know it (`kept.rs`).
pub(super) const KEPT: u32 = 1 << 31;

/// Bytes of memory of one slot.
pub(crate) const SLOT_BYTES: u64 = size_of::<Slot>() as u64;

/// Bytes of a bitmap of a partly valid unit.
pub(crate) fn bitmap_bytes_each(unit_bytes: u64) -> u64 {
    BitmapPool::bytes_each((unit_bytes / PAGE as u64) as u32)
}

impl Slot {
    pub(super) const UNUSED: Self = Self { owner: NONE, bits: FREE, pins: 0 };

    pub(super) fn is_pinned(&self) -> bool {
        self.pins & !KEPT > 0
    }

    pub(super) fn is_kept(&self) -> bool {
        self.pins & KEPT != 0
    }
}

pub(super) struct Entries {
    /// Slot + 1 of each of the shard's units, or 0.
    pub(super) map: Vec<u32>,
    pub(super) slots: Vec<Slot>,
    /// The first free slot of each set.
    pub(super) free: Vec<u32>,
    pub(super) spec: SlotSpec,
    pub(super) ways: u32,
    pub(super) used: u32,
    /// Slots that may receive content, and how many beyond still hold something (`sizes.rs`).
    pub(super) limit: u32,
    pub(super) beyond: u32,
    /// Slots that the replacement policy was made for.
    pub(super) policy_slots: u32,
    /// Valid pages of all slots.
    pub(super) valid: u64,
    pub(super) unit_pages: u32,
    pub(super) partial: BitmapPool,
    pub(super) replacement: Box<dyn Replacement>,
    pub(super) mixed: MixedSlots,
    /// The next slot that a search for a cold unit passes.
    pub(super) cold_hand: u32,
    /// The slots of each volume.
    pub(super) shares: Shares,
    /// Units that get no slot (`volume_slots.rs`).
    pub(super) closed: Vec<Range<u32>>,
    pub(super) rules: Arc<RangeRules>,
    /// Slots whose unit is kept.
    pub(super) kept: u32,
}

/// The table of one attachment.
pub(crate) struct Table {
    pub(super) shape: Shape,
    pub(super) entries: RefCell<Entries>,
}

/// Keeps the unit of a slot, or the single pages in a mixed slot, from eviction.
pub(crate) struct SlotPin {
    table: Rc<Table>,
    slot: u32,
    /// The unit whose pages it keeps; meaningless if it keeps a mixed slot as a whole.
    unit: u32,
    /// The place in the slot of the unit's page 0, which may wrap; 0 for a slot that holds the unit.
    shift: u32,
}

/// What was evicted from a slot: a unit, or single pages of several units.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Evicted {
    pub slot: u32,
    pub units: Vec<u32>,
}

impl Table {
    /// An empty table for one shard of a device that has `total` slots, which these volumes share.
    pub(crate) fn new(shape: Shape, volumes: &Volumes, total: u64, spec: SlotSpec) -> Rc<Self> {
        let slots = shape.slots_of(total);
        let ways = spec.placement.ways(slots);
        let slots = spec.placement.usable(slots);
        let mut entries = Entries {
            map: vec![0; shape.units() as usize],
            slots: vec![Slot::UNUSED; slots as usize],
            free: vec![NONE; slots.checked_div(ways).unwrap_or(0) as usize],
            spec,
            ways,
            used: 0,
            limit: slots,
            beyond: 0,
            policy_slots: slots,
            valid: 0,
            unit_pages: shape.pages_per_unit(),
            partial: BitmapPool::new(shape.pages_per_unit(), slots),
            replacement: spec.build_replacement(slots, ways, shape.unit_bytes),
            mixed: MixedSlots::new(shape.pages_per_unit()),
            cold_hand: 0,
            shares: Shares::new(volumes.clone(), &shape, slots),
            closed: Vec::new(),
            rules: Arc::default(),
            kept: 0,
        };
        entries.rebuild_free();
        Rc::new(Self { shape, entries: RefCell::new(entries) })
    }

    /// Bytes of memory that the bitmaps of partly valid units and the directories of mixed slots take.
    pub(crate) fn bitmap_bytes(&self) -> u64 {
        let entries = self.entries.borrow();
        entries.partial.bytes() + entries.mixed.bytes()
    }

    pub(super) fn pin(self: &Rc<Self>, entries: &mut Entries, slot: u32) -> SlotPin {
        let unit = entries.unit_in(slot).unwrap_or(u32::MAX);
        self.pin_pages(entries, unit, (slot, 0))
    }

    pub(super) fn pin_pages(
        self: &Rc<Self>,
        entries: &mut Entries,
        unit: u32,
        (slot, shift): (u32, u32),
    ) -> SlotPin {
        // Cannot overflow: each pin belongs to an operation or path in memory.
        entries.slots[slot as usize].pins += 1;
        SlotPin { table: Rc::clone(self), slot, unit, shift }
    }

    /// The slot of the unit or of its single pages, pinned, if all of `pages` are valid there. Counts as an access.
    pub(crate) fn hit(self: &Rc<Self>, unit: u32, pages: &Pages) -> Option<SlotPin> {
        let mut entries = self.entries.borrow_mut();
        entries.replacement.requested();
        let Some(slot) = entries.slot_of(unit) else {
            let (slot, shift) = entries.mixed.hit(unit, pages)?;
            return Some(self.pin_pages(&mut entries, unit, (slot, shift)));
        };
        entries.all_valid(slot, pages).then(|| {
            entries.accessed(slot);
            self.pin(&mut entries, slot)
        })
    }

    /// As [`hit`](Self::hit), but counts as no access.
    pub(crate) fn peek(self: &Rc<Self>, unit: u32, pages: &Pages) -> Option<SlotPin> {
        let mut entries = self.entries.borrow_mut();
        let Some(slot) = entries.slot_of(unit) else {
            let place = entries.mixed.peek(unit, pages);
            return place.map(|place| self.pin_pages(&mut entries, unit, place));
        };
        entries.all_valid(slot, pages).then(|| self.pin(&mut entries, slot))
    }

    /// The unit's slot.
    pub(crate) fn slot_of(&self, unit: u32) -> Option<u32> {
        self.entries.borrow().slot_of(unit)
    }

    /// The unit's slot, pinned, if it has one.
    pub(crate) fn resident(self: &Rc<Self>, unit: u32) -> Option<SlotPin> {
        let mut entries = self.entries.borrow_mut();
        let slot = entries.slot_of(unit)?;
        Some(self.pin(&mut entries, slot))
    }

    /// The unit that a slot holds.
    pub(crate) fn unit_of(&self, slot: u32) -> Option<u32> {
        self.entries.borrow().unit_in(slot)
    }

    /// A slot that holds a unit, pinned, and its unit.
    pub(crate) fn pin_used(self: &Rc<Self>, slot: u32) -> Option<(SlotPin, u32)> {
        self.unit_of(slot).map(|unit| (self.pin_slot(slot), unit))
    }

    /// Whether one of these slots, which the unit may take, is in use.
    pub(crate) fn waits_for(&self, unit: u32, among: &dyn Fn(u32) -> bool) -> bool {
        let (entries, open) = (self.entries.borrow(), !self.is_closed(unit));
        let takes = |owner: u32| {
            entries.set_of(owner) == entries.set_of(unit)
                && entries.shares.may_displace(unit, owner)
        };
        let mut used = (0..entries.limit).filter(|slot| entries.slots[*slot as usize].is_pinned());
        open && used.any(|slot| among(slot) && entries.unit_in(slot).is_some_and(takes))
    }

    /// A slot that is in use, pinned.
    pub(crate) fn pin_slot(self: &Rc<Self>, slot: u32) -> SlotPin {
        self.pin(&mut self.entries.borrow_mut(), slot)
    }

    /// Gives the unit a free slot, with no page valid, unless it is closed, or others need the slot (`shares.rs`).
    pub(crate) fn insert(self: &Rc<Self>, unit: u32) -> Option<SlotPin> {
        if self.is_closed(unit) || !self.may_take(unit, None) {
            return None;
        }
        let mut entries = self.entries.borrow_mut();
        debug_assert!(entries.slot_of(unit).is_none(), "unit {unit} has a slot already");
        let set = entries.set_of(unit);
        let slot = entries.take_free(set)?;
        entries.shares.added(unit);
        entries.slots[slot as usize].owner = unit;
        entries.slots[slot as usize].bits = EMPTY;
        entries.map[unit as usize] = slot + 1;
        entries.entered(slot, self.shape.unit_offset(unit));
        let (pages, present) = (self.shape.pages_per_unit(), self.shape.pages_of(unit));
        entries.mixed.remove_all(unit, 0..present);
        entries.assign(slot, &(present..pages), true, pages);
        Some(self.pin(&mut entries, slot))
    }

    /// Whether the replacement policy may search for a victim.
    pub(crate) fn may_displace(&self) -> bool {
        self.entries.borrow().replacement.may_search()
    }

    /// Frees a slot, unless it is free or pinned.
    pub(crate) fn evict_slot(&self, slot: u32) -> Option<Evicted> {
        let mut entries = self.entries.borrow_mut();
        let found = entries.slots[slot as usize];
        if found.bits == FREE
            || (found.is_pinned()
                && !mutant::is_active("evict-pinned")
                && !mutant::is_active("mixed-recycled-in-use"))
        {
            return None;
        }
        Some(Evicted { slot, units: entries.remove(slot) })
    }

    /// How many units the replacement policy evicts at a time.
    pub(crate) fn evicts_together(&self) -> u32 {
        self.entries.borrow().replacement.evicted_together()
    }

    /// Removes the unit that the replacement policy evicts for `incoming`, if there is one among those that `incoming` is
    /// preferred to.
    pub(crate) fn evict_for(
        &self,
        incoming: u32,
        prefers: &dyn Fn(u32) -> bool,
    ) -> Option<Evicted> {
        let slot = self.victim_for(incoming, &|_, owner| prefers(owner))?;
        Some(Evicted { slot, units: self.entries.borrow_mut().remove(slot) })
    }

    /// The slot whose unit the replacement policy would evict for `incoming`, if there is one without a pin for which
    /// `may_evict` holds, given the slot and its unit.
    pub(crate) fn victim_for(
        &self,
        incoming: u32,
        may_evict: &dyn Fn(u32, u32) -> bool,
    ) -> Option<u32> {
        let mut entries = self.entries.borrow_mut();
        let set = entries.set_of(incoming);
        let Entries { slots, replacement, shares, limit, .. } = &mut *entries;
        let limit = *limit;
        let may_evict = |slot: u32| {
            let found = &slots[slot as usize];
            !matches!(found.bits, FREE | MIXED)
                && slot < limit
                && shares.may_displace(incoming, found.owner)
                && may_evict(slot, found.owner)
                && (found.pins == 0
                    || mutant::is_active("evict-pinned")
                    || mutant::is_active("benefit-evicts-pinned"))
        };
        replacement.victim(u64::from(incoming), set, &may_evict).or_else(|| {
            let any = mutant::is_active("displace-anything");
            any.then(|| (0..slots.len() as u32).find(|s| may_evict(*s))).flatten()
        })
    }
}

/// Pages moved by a shift that may wrap.
fn shifted(pages: &Pages, shift: u32) -> Pages {
    let start = pages.start.wrapping_add(shift);
    start..start + pages.len() as u32
}

impl Entries {
    /// The unit that a slot holds.
    pub(super) fn unit_in(&self, slot: u32) -> Option<u32> {
        let found = self.slots.get(slot as usize)?;
        (!matches!(found.bits, FREE | MIXED)).then_some(found.owner)
    }

    pub(super) fn slot_of(&self, unit: u32) -> Option<u32> {
        self.map[unit as usize].checked_sub(1)
    }

    pub(super) fn set_of(&self, unit: u32) -> u32 {
        self.spec.placement.set_of(unit, self.free.len() as u32)
    }

    /// Takes a free slot of a set, with no content.
    pub(super) fn take_free(&mut self, set: u32) -> Option<u32> {
        let slot = *self.free.get(set as usize)?;
        if slot == NONE {
            return None;
        }
        self.free[set as usize] = self.slots[slot as usize].owner;
        self.used += 1;
        Some(slot)
    }

    /// Whether all of these pages are valid in a slot where page 0 of their unit has the place `shift`.
    pub(super) fn places_valid(&self, slot: u32, shift: u32, pages: &Pages) -> bool {
        match self.slots[slot as usize] {
            Slot { bits: MIXED, owner, .. } => self.mixed.all_valid(owner, shifted(pages, shift)),
            _ => self.all_valid(slot, pages),
        }
    }

    pub(super) fn all_valid(&self, slot: u32, pages: &Pages) -> bool {
        match self.slots[slot as usize].bits {
            FULL => true,
            EMPTY | FREE => pages.is_empty(),
            bits => validity::all_set(self.partial.get(bits), pages.clone()),
        }
    }

    /// Makes pages valid or invalid, and takes or returns the slot's bitmap as needed.
    pub(super) fn assign(&mut self, slot: u32, pages: &Pages, valid: bool, unit_pages: u32) {
        if pages.is_empty() {
            return;
        }
        let bits = match self.slots[slot as usize].bits {
            FULL if valid => return,
            EMPTY if !valid => return,
            FREE => return,
            FULL => self.partial.take(true),
            EMPTY => self.partial.take(false),
            bits => bits,
        };
        let words = self.partial.get_mut(bits);
        let before = validity::count(words, pages.clone());
        validity::assign(words, pages.clone(), valid);
        self.valid = self.valid + if valid { pages.len() as u64 } else { 0 } - before;
        let settled = if valid {
            validity::all_set(words, 0..unit_pages).then_some(FULL)
        } else {
            words.iter().all(|w| *w == 0).then_some(EMPTY)
        };
        if settled.is_some() {
            self.partial.give_back(bits);
        }
        self.slots[slot as usize].bits = settled.unwrap_or(bits);
    }

    /// Frees a slot that is in use; returns the units of what it held.
    fn remove(&mut self, slot: u32) -> Vec<u32> {
        let Slot { owner, bits, .. } = self.slots[slot as usize];
        self.valid -= self.valid_of(bits);
        let units = match bits {
            MIXED => self.mixed.close(owner),
            FREE => return Vec::new(),
            bits => {
                if !matches!(bits, FULL | EMPTY) {
                    self.partial.give_back(bits);
                }
                self.map[owner as usize] = 0;
                self.shares.removed(owner);
                vec![owner]
            }
        };
        self.freed(slot);
        if bits != MIXED {
            self.left(slot);
        }
        units
    }
}

impl SlotPin {
    /// Whether it keeps single pages in a mixed slot.
    pub(crate) fn is_single(&self) -> bool {
        self.table.entries.borrow().slots[self.slot as usize].bits == MIXED
    }

    /// Whether it is a slot of this table.
    pub(crate) fn is_of(&self, table: &Rc<Table>) -> bool {
        Rc::ptr_eq(&self.table, table)
    }

    /// The slot.
    pub(crate) fn slot(&self) -> u32 {
        self.slot
    }

    /// The unit whose pages it keeps.
    pub(super) fn unit(&self) -> u32 {
        self.unit
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
        PageSet::of(pages, |p| entries.places_valid(self.slot, self.shift, &(p..p + 1)))
    }
}

impl Clone for SlotPin {
    fn clone(&self) -> Self {
        let Self { table, slot, unit, shift } = self;
        table.pin_pages(&mut table.entries.borrow_mut(), *unit, (*slot, *shift))
    }
}

impl Drop for SlotPin {
    fn drop(&mut self) {
        self.table.entries.borrow_mut().slots[self.slot as usize].pins -= 1;
    }
}
