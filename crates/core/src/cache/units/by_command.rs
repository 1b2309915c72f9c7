// SPDX-License-Identifier: MIT OR Apache-2.0
//! Units that a command warms or evicts (`cache/arrange.rs`), and what slots have (`cache/heat.rs`).
//!
//! A unit that is warmed gets a slot whatever the population prefers: a free one, else that of the replacement policy's victim, else the
//! mixed slot that is due, else that of a unit that is read little; but none that was warmed from the same list. Under write-back a unit
//! comes in as its policy admits units: by an exchange, or as a read that misses, for which the replacement policy alone decides what
//! is evicted.

use std::ops::Range;
use std::rc::Rc;

use larder_policy::admission::Swap;

use super::clean::Clean;
use super::exchanges::Exchanges as _;
use super::singles::SEARCHED;
use super::unit_cache::UnitCache;
use super::warmth::Warmth;
use super::write_back::WriteBack;
use crate::buf::PAGE;
use crate::exec::{MILLISECOND, Nanos, SECOND};
use crate::journal::Journal;
use crate::mutant;
use crate::pages::Pages;
use crate::population::step::{Pacing, populate, populate_pages};
use crate::request::Errno;

/// Single pages that are read from the origin together.
const RUN: u32 = 16;
/// How long an eviction waits for clients that use a unit.
const PATIENCE: Nanos = SECOND;
/// How long a unit that is warmed waits for a slot, and the first and the longest interval at which it looks for one.
const ROOM_PATIENCE: Nanos = 10 * SECOND;
const FIRST_LOOK: Nanos = 10 * MILLISECOND;
const LAST_LOOK: Nanos = SECOND;
/// Attempts to evict units that clients use, each of which takes as long as the gate's patience.
const MOST_TRIES: u32 = 10;

impl Clean {
    /// Copies a unit to flash, or a few of its pages.
    pub(crate) async fn warm(self: Rc<Self>, unit: u32, pages: Pages) {
        let units = &self.units;
        while units.is_populating(unit) && !units.flash.closed() {
            units.cx.exec.sleep(MILLISECOND).await;
        }
        if !units.flash.usable() {
            return;
        }
        let has_slot = units.table.slot_of(unit).is_some();
        let few = 2 * (pages.len() as u32) < units.cx.shape.pages_of(unit);
        if few && !has_slot && units.cx.population.has_singles() {
            return self.warm_pages(unit, pages).await;
        }
        // Single pages, even if they are all, are in mixed slots, which the list does not keep.
        if has_slot && units.is_valid(unit, &pages) {
            return units.was_warmed(unit);
        }
        if units.until_room(unit, || units.makes_room(unit).then_some(())).await.is_some() {
            populate(units, unit, Pacing::Paced).await;
            units.was_warmed(unit);
        }
    }

    /// Copies single pages to mixed slots.
    async fn warm_pages(&self, unit: u32, pages: Pages) {
        let (units, cx) = (&self.units, &self.units.cx);
        let pace = &cx.origins.of_unit(unit).pace;
        for first in pages.clone().step_by(RUN as usize) {
            let run = first..pages.end.min(first + RUN);
            if units.is_valid(unit, &run) || units.is_populating(unit) {
                continue;
            }
            pace.begin_step(&cx.exec).await;
            let began = cx.exec.now();
            let _ = populate_pages(units, unit, run).await;
            pace.end_step(&cx.exec, began, None);
        }
    }

    /// Evicts these units and their single pages.
    ///
    /// # Errors
    /// A record cannot be written, or a client uses one of them for too long (`ETIMEDOUT`).
    pub(crate) async fn remove_units(&self, units: Range<u32>) -> Result<(), Errno> {
        let (cx, deadline) = (&self.units.cx, self.units.cx.exec.now() + PATIENCE);
        let mut left: Vec<u32> = units.collect();
        loop {
            left.retain(|unit| !self.units.remove(*unit));
            self.units.log_left();
            let dropped = self.units.all_dropped().await;
            if left.is_empty() || self.units.flash.closed() {
                return dropped;
            }
            dropped?;
            if cx.exec.now() > deadline {
                return Err(Errno::ETIMEDOUT);
            }
            cx.exec.sleep(MILLISECOND).await;
        }
    }
}

impl WriteBack {
    /// Copies a unit to flash.
    pub(crate) async fn warm(self: Rc<Self>, unit: u32) {
        let (table, population) = (&self.units.table, &self.units.cx.population);
        if self.units.is_valid(unit, &(0..self.units.cx.shape.pages_of(unit))) {
            return self.units.was_warmed(unit);
        }
        if population.admits_misses() {
            self.admit(unit).await;
            return self.units.was_warmed(unit);
        }
        let outgoing = || match table.has_room(unit) {
            true => Some(None),
            false => self.units.victim(unit).or_else(|| self.units.coldest()).map(Some),
        };
        let Some(outgoing) = self.units.until_room(unit, outgoing).await else { return };
        let units = Rc::clone(&self);
        self.exchange(Swap { incoming: unit, outgoing }).await;
        units.units.was_warmed(unit);
    }

    /// Copies the dirty data of some units to the origin, and evicts them.
    ///
    /// # Errors
    /// Of a device, or clients use one of the units for too long (`ETIMEDOUT`).
    pub(crate) async fn remove_units(&self, units: Range<u32>) -> Result<(), Errno> {
        let (mut next, mut result, mut tries) = (units.start, Ok(()), 0);
        let batch = self.batch() as u32;
        while next < units.end {
            let some = next..units.end.min(next.saturating_add(batch));
            let slots = some.clone().filter_map(|unit| self.units.table.slot_of(unit)).collect();
            match self.clear_slots(units.start, slots, true).await {
                Some(done) => (next, tries, result) = (some.end, 0, result.and(done?)),
                None if tries == MOST_TRIES => return Err(Errno::ETIMEDOUT),
                None => tries += 1,
            }
        }
        result.and(self.evictions_end().await)
    }
}

impl<J: Journal> UnitCache<J> {
    /// Whether flash has all of these pages of a unit.
    fn is_valid(&self, unit: u32, pages: &Pages) -> bool {
        self.table.valid_in(unit, pages) == pages.len() as u64
    }

    /// Tries to find a slot for a unit, again while it waits for one that is in use: the journal uses all whose states it logs
    /// together.
    async fn until_room<T>(&self, unit: u32, attempt: impl Fn() -> Option<T>) -> Option<T> {
        let exec = &self.cx.exec;
        let deadline = exec.now() + ROOM_PATIENCE;
        let mut interval = FIRST_LOOK;
        loop {
            let found = attempt();
            let waits = || self.table.waits_for(unit, &|slot| !self.warmed.has(slot));
            if found.is_some() || self.flash.closed() || exec.now() > deadline || !waits() {
                return found;
            }
            exec.sleep(interval).await;
            // A look passes all slots.
            interval = (2 * interval).min(LAST_LOOK);
        }
    }

    /// Frees a slot for a unit, if it has none and none is free; returns whether there is one.
    fn makes_room(&self, unit: u32) -> bool {
        let table = &self.table;
        if table.is_closed(unit) {
            return false;
        }
        if table.slot_of(unit).is_some() || table.has_room(unit) {
            return true;
        }
        let may_take = |slot: &u32| table.may_take(unit, table.unit_of(*slot));
        let coldest = || self.coldest().filter(may_take).and_then(|slot| table.evict_slot(slot));
        let freed = self.evicted(self.victim(unit).and_then(|slot| table.evict_slot(slot)))
            || (table.would_take_another(unit) && self.recycle(table.due_mixed()))
            || self.evicted(coldest());
        freed && table.has_room(unit)
    }

    /// The slot of a unit that is read little, where no replacement policy chooses one.
    fn coldest(&self) -> Option<u32> {
        let frequency = |slot: u32, unit: u32| match self.warmed.has(slot) {
            true => f64::INFINITY,
            false => self.cx.population.frequency(unit),
        };
        let searches = 0..self.table.slots().div_ceil(SEARCHED);
        let mut found = searches.filter_map(|_| self.table.coldest(frequency));
        found.find_map(|(slot, frequency)| frequency.is_finite().then_some(slot))
    }

    /// The slot that the replacement policy evicts for a unit that is warmed.
    fn victim(&self, unit: u32) -> Option<u32> {
        self.table.victim_for(unit, &|slot, _| !self.warmed.has(slot))
    }

    fn was_warmed(&self, unit: u32) {
        if let Some(slot) = self.table.slot_of(unit) {
            self.warmed.set(slot, self.table.slots());
        }
    }

    /// Begins a list of ranges: what was warmed before may be evicted for it.
    pub(crate) fn begin_list(&self) {
        self.warmed.clear();
    }

    /// Evicts a unit and its single pages; returns whether flash has nothing of it.
    fn remove(&self, unit: u32) -> bool {
        self.table.remove_pages(unit);
        match self.table.slot_of(unit) {
            Some(slot) if mutant::is_active("evicted-not-logged") => {
                self.table.evict_slot(slot).is_some()
            }
            Some(slot) => self.evicted(self.table.evict_slot(slot)),
            None => true,
        }
    }

    /// What these slots have.
    pub(crate) fn heat(&self, slots: Range<u32>) -> Vec<Warmth> {
        let (shape, page) = (&self.cx.shape, PAGE as u64);
        let mut parts = Vec::new();
        for slot in slots.start..slots.end.min(self.table.slots()) {
            let mixed = self.table.mixed_in(slot);
            for (unit, pages) in self.table.valid_runs(slot) {
                let reads = match mixed {
                    Some(mixed) => self.cx.population.frequency_of_mixed(mixed),
                    None => self.cx.population.frequency(unit),
                };
                let offset = shape.unit_offset(unit) + u64::from(pages.start) * page;
                let len = (pages.len() as u64 * page).min(shape.origin_bytes - offset);
                parts.push(Warmth { offset, len, reads: reads as u32 });
            }
        }
        parts
    }
}
