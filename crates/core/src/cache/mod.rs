// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is cached where: the origin map, the slots, and which of their pages are valid.
//!
//! Purpose: one shard's table over one flash device. The map is direct, 4 bytes per origin unit
//! (SCE 3.4); a slot costs 12 bytes plus the replacement policy's; a bitmap is held only by
//! partly valid units. A `Cache` belongs to one attachment of a flash device: detaching drops
//! the whole table, attaching makes a new one, and what still is in the kernel keeps the old one
//! alive through its pins.
//!
//! Invariants: map and slots are inverse to each other; a pinned slot's unit is never removed
//! (design rule 5); pages beyond the end of the volume count as valid, so that a short last unit
//! can be fully valid.

mod persist;

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use larder_policy::replacement::Replacement;

use crate::attached::Attached;
use crate::buf::PAGE;
use crate::exec::{DevId, Exec, Guard};
use crate::journal::Journal;
use crate::mutant;
use crate::pages::{PageSet, Pages};
use crate::preset::{Choices, Placement};
use crate::shape::Shape;
use crate::validity::{self, BitmapPool};

/// A flash device as the engine sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flash {
    /// The driver's number of it.
    pub dev: DevId,
    /// First byte of slot 0.
    pub base: u64,
    /// Slots on the device, over all shards.
    pub slots: u64,
    /// Offsets and lengths of operations are multiples of this many bytes.
    pub block_bytes: u32,
    /// Where metadata is kept, if it is.
    pub journal: Option<MetadataPlace>,
}

/// Where the metadata of all shards lies on a flash device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetadataPlace {
    /// Its first byte.
    pub base: u64,
    /// The volume that it belongs to; a new one with every formatting.
    pub volume: u64,
    /// Bytes of one shard's log, of which there are two with two copies each.
    pub log_bytes: u64,
    /// What it says besides where what lies.
    pub keeps: Keeps,
}

/// What metadata says besides what is valid where.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Keeps {
    /// Which regions of a unit flash alone has.
    pub dirty: bool,
    /// The reference factor of every origin unit.
    pub factors: bool,
}

impl Keeps {
    /// What these choices need.
    #[must_use]
    pub fn of(choices: &Choices) -> Self {
        Self { dirty: choices.write.flash_keeps(), factors: choices.admission.is_periodic() }
    }
}

/// All pages valid / none valid / not in use; every other value names a bitmap.
const FULL: u32 = u32::MAX;
const EMPTY: u32 = u32::MAX - 1;
const FREE: u32 = u32::MAX - 2;
const NONE: u32 = u32::MAX;

/// A slot of the flash device.
#[derive(Clone, Copy)]
struct Slot {
    /// The unit it holds (the shard's own number) or, when free, the next free slot of its set.
    owner: u32,
    /// Which pages are valid.
    bits: u32,
    /// Operations and paths that need it to stay.
    pins: u32,
}

/// Bytes of memory of one slot.
pub(crate) const SLOT_BYTES: u64 = size_of::<Slot>() as u64;

struct Table {
    /// Slot + 1 of each of the shard's units, or 0.
    map: Vec<u32>,
    slots: Vec<Slot>,
    /// The first free slot of each set.
    free: Vec<u32>,
    placement: Placement,
    ways: u32,
    used: u32,
    partial: BitmapPool,
    replacement: Box<dyn Replacement>,
}

/// One shard's table over one attached flash device, see the module.
pub(crate) struct Cache {
    pub(crate) flash: Flash,
    pub(crate) device: Rc<Attached>,
    shape: Shape,
    table: RefCell<Table>,
    journal: Option<Journal>,
}

/// Keeps a slot's unit where it is.
pub(crate) struct SlotPin {
    pub(crate) cache: Rc<Cache>,
    slot: u32,
}

/// What a write found when it began.
pub(crate) struct WriteTarget {
    pub(crate) pin: SlotPin,
    /// Whether the first and the last of its pages were valid.
    pub(crate) edges_valid: (bool, bool),
}

impl Cache {
    pub(crate) fn new(
        flash: Flash,
        shape: Shape,
        choices: &Choices,
        events: Rc<RefCell<VecDeque<crate::event::Event>>>,
        journal: Option<Journal>,
    ) -> Rc<Self> {
        let (slots, placement) = (shape.slots_of(flash.slots), choices.placement);
        let ways = placement.ways(slots);
        // A last, smaller set is left out.
        let sets = slots.checked_div(ways).unwrap_or(0);
        let slots = sets * ways;
        let chain = |i: u32| if (i + 1).is_multiple_of(ways) { NONE } else { i + 1 };
        let table = Table {
            map: vec![0; shape.units() as usize],
            slots: (0..slots).map(|i| Slot { owner: chain(i), bits: FREE, pins: 0 }).collect(),
            free: (0..sets).map(|set| set * ways).collect(),
            placement,
            ways,
            used: 0,
            partial: BitmapPool::new(shape.pages_per_unit()),
            replacement: choices.replacement.build(slots, ways, shape.unit_bytes),
        };
        let device = Attached::new(flash.dev, events);
        Rc::new(Self { flash, device, shape, table: RefCell::new(table), journal })
    }

    /// Whether the flash device is no longer to be used.
    pub(crate) fn closed(&self) -> bool {
        self.device.closed()
    }

    /// It was never in use.
    pub(crate) fn forget(&self) {
        self.device.forget();
    }

    /// The journal, where metadata is kept.
    pub(crate) fn journal(&self) -> Option<&Journal> {
        self.journal.as_ref()
    }

    pub(crate) fn close(&self) {
        self.device.close();
    }

    /// First byte of a slot on the device. A shard's slots are interleaved with the others'.
    fn slot_offset(&self, slot: u32) -> u64 {
        let global = u64::from(slot) * u64::from(self.shape.shards) + u64::from(self.shape.shard);
        self.flash.base + global * self.shape.unit_bytes
    }

    /// The share of slots that are free.
    pub(crate) fn free_ratio(&self) -> f64 {
        let table = self.table.borrow();
        let slots = table.slots.len().max(1);
        (slots - table.used as usize) as f64 / slots as f64
    }

    pub(crate) fn used(&self) -> u32 {
        self.table.borrow().used
    }

    pub(crate) fn slots(&self) -> u32 {
        self.table.borrow().slots.len() as u32
    }

    /// Bytes of memory that the bitmaps of partly valid units take.
    pub(crate) fn bitmap_bytes(&self) -> u64 {
        self.table.borrow().partial.bytes()
    }

    fn pin(self: &Rc<Self>, table: &mut Table, slot: u32) -> SlotPin {
        // Each pin belongs to an operation or path in memory, of which there never are 2^32.
        table.slots[slot as usize].pins += 1;
        SlotPin { cache: Rc::clone(self), slot }
    }

    /// The unit's slot, pinned, if all of `pages` are valid there.
    pub(crate) fn hit(self: &Rc<Self>, unit: u32, pages: &Pages) -> Option<SlotPin> {
        let mut table = self.table.borrow_mut();
        table.replacement.requested();
        let slot = table.slot_of(unit)?;
        if !table.all_valid(slot, pages) {
            return None;
        }
        table.replacement.accessed(slot);
        Some(self.pin(&mut table, slot))
    }

    /// The unit's slot.
    pub(crate) fn slot_of(&self, unit: u32) -> Option<u32> {
        self.table.borrow().slot_of(unit)
    }

    /// The unit's slot, pinned, if it has one.
    pub(crate) fn resident(self: &Rc<Self>, unit: u32) -> Option<SlotPin> {
        let mut table = self.table.borrow_mut();
        let slot = table.slot_of(unit)?;
        Some(self.pin(&mut table, slot))
    }

    /// A write begins: its pages are no longer valid. The slot is pinned for the write's sake.
    pub(crate) fn begin_write(self: &Rc<Self>, unit: u32, pages: &Pages) -> Option<WriteTarget> {
        let mut table = self.table.borrow_mut();
        table.replacement.requested();
        let slot = table.slot_of(unit)?;
        let valid = |p: u32| table.all_valid(slot, &(p..p + 1));
        let edges_valid = (valid(pages.start), valid(pages.end - 1));
        if !mutant::is_active("write-keeps-valid") {
            table.assign(slot, pages, false, self.shape.pages_per_unit());
        }
        table.replacement.accessed(slot);
        let pin = self.pin(&mut table, slot);
        Some(WriteTarget { pin, edges_valid })
    }

    /// The pages' flash copy can not be trusted any more.
    pub(crate) fn invalidate(&self, unit: u32, pages: &Pages) {
        let mut table = self.table.borrow_mut();
        if let Some(slot) = table.slot_of(unit) {
            table.assign(slot, pages, false, self.shape.pages_per_unit());
        }
    }

    /// Gives the unit a free slot, with no page valid.
    pub(crate) fn insert(self: &Rc<Self>, unit: u32) -> Option<SlotPin> {
        let mut table = self.table.borrow_mut();
        debug_assert!(table.slot_of(unit).is_none(), "unit {unit} has a slot already");
        let set = table.set_of(unit);
        let slot = *table.free.get(set as usize)?;
        if slot == NONE {
            return None;
        }
        table.free[set as usize] = table.slots[slot as usize].owner;
        table.slots[slot as usize].owner = unit;
        table.slots[slot as usize].bits = EMPTY;
        table.map[unit as usize] = slot + 1;
        table.used += 1;
        table.replacement.inserted(slot, u64::from(unit));
        let (pages, present) = (self.shape.pages_per_unit(), self.shape.pages_of(unit));
        table.assign(slot, &(present..pages), true, pages);
        Some(self.pin(&mut table, slot))
    }

    /// Whether a unit could be displaced now.
    pub(crate) fn may_displace(&self) -> bool {
        self.table.borrow().replacement.may_search()
    }

    /// Removes what is in a slot, unless it is free or an operation is under way on it.
    pub(crate) fn evict_slot<G: Guard>(&self, slot: u32, exec: &Exec<G>) -> bool {
        let mut table = self.table.borrow_mut();
        let Slot { owner, bits, pins } = table.slots[slot as usize];
        if bits == FREE || (pins > 0 && !mutant::is_active("evict-pinned")) {
            return false;
        }
        table.remove(slot);
        drop(table);
        if let Some(journal) = &self.journal {
            journal.removed(slot, owner, exec);
        }
        true
    }

    /// Removes what the replacement policy gives up so that `unit` can enter; how many left.
    pub(crate) fn evict_for<G: Guard>(&self, unit: u32, exec: &Exec<G>) -> u32 {
        let together = self.table.borrow().replacement.leaves_together();
        let mut left = 0;
        while left < together
            && let Some((slot, old)) = self.evict_one(unit)
        {
            left += 1;
            if let Some(journal) = &self.journal {
                journal.removed(slot, old, exec);
            }
        }
        left
    }

    fn evict_one(&self, incoming: u32) -> Option<(u32, u32)> {
        let mut table = self.table.borrow_mut();
        let set = table.set_of(incoming);
        let Table { slots, replacement, .. } = &mut *table;
        let may_leave = |slot: u32| {
            let slot = &slots[slot as usize];
            slot.bits != FREE && (slot.pins == 0 || mutant::is_active("evict-pinned"))
        };
        let victim = replacement.victim(u64::from(incoming), set, &may_leave).or_else(|| {
            let any = mutant::is_active("displace-anything");
            any.then(|| (0..slots.len() as u32).find(|s| may_leave(*s))).flatten()
        });
        let slot = victim?;
        let old = table.slots[slot as usize].owner;
        table.remove(slot);
        Some((slot, old))
    }
}

impl Table {
    fn slot_of(&self, unit: u32) -> Option<u32> {
        self.map[unit as usize].checked_sub(1)
    }

    fn set_of(&self, unit: u32) -> u32 {
        self.placement.set_of(unit, self.free.len() as u32)
    }

    fn all_valid(&self, slot: u32, pages: &Pages) -> bool {
        match self.slots[slot as usize].bits {
            FULL => true,
            EMPTY | FREE => pages.is_empty(),
            bits => validity::all_set(self.partial.get(bits), pages.clone()),
        }
    }

    /// Makes pages valid or invalid, taking or giving back the slot's bitmap as needed.
    fn assign(&mut self, slot: u32, pages: &Pages, valid: bool, unit_pages: u32) {
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
        validity::assign(words, pages.clone(), valid);
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

    fn remove(&mut self, slot: u32) {
        let Slot { owner, bits, .. } = self.slots[slot as usize];
        if !matches!(bits, FULL | EMPTY | FREE) {
            self.partial.give_back(bits);
        }
        self.map[owner as usize] = 0;
        let set = (slot / self.ways) as usize;
        self.slots[slot as usize].owner = self.free[set];
        self.slots[slot as usize].bits = FREE;
        self.free[set] = slot;
        self.used -= 1;
        self.replacement.removed(slot);
    }
}

impl SlotPin {
    /// The slot.
    pub(crate) fn slot(&self) -> u32 {
        self.slot
    }

    /// Where on the flash device `within` bytes into the unit are.
    pub(crate) fn flash_offset(&self, within: u64) -> u64 {
        self.cache.slot_offset(self.slot) + within
    }

    /// Makes those pages valid that are not in `except`.
    pub(crate) fn make_valid(&self, pages: &Pages, except: &PageSet) {
        if let Some(journal) = &self.cache.journal {
            journal.changed(self.slot);
        }
        let unit_pages = self.cache.shape.pages_per_unit();
        let mut table = self.cache.table.borrow_mut();
        for run in PageSet::runs(pages.clone(), |p| !except.has(p)) {
            table.assign(self.slot, &run, true, unit_pages);
        }
    }

    /// Whether all of these pages are valid.
    pub(crate) fn all_valid(&self, pages: &Pages) -> bool {
        self.cache.table.borrow().all_valid(self.slot, pages)
    }

    /// The pages of the range that are valid.
    pub(crate) fn valid_pages(&self, pages: &Pages) -> PageSet {
        let table = self.cache.table.borrow();
        let mut set = PageSet::at(pages.start);
        pages.clone().filter(|p| table.all_valid(self.slot, &(*p..p + 1))).for_each(|p| {
            set.add(&(p..p + 1));
        });
        set
    }
}

impl Clone for SlotPin {
    fn clone(&self) -> Self {
        self.cache.pin(&mut self.cache.table.borrow_mut(), self.slot)
    }
}

impl Drop for SlotPin {
    fn drop(&mut self) {
        self.cache.table.borrow_mut().slots[self.slot as usize].pins -= 1;
    }
}

/// Bytes of a bitmap of a partly valid unit.
pub(crate) fn bitmap_bytes_each(unit_bytes: u64) -> u64 {
    BitmapPool::bytes_each((unit_bytes / PAGE as u64) as u32)
}
