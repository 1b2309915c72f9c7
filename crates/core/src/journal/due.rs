// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which slots the journal of a clean cache logs next, and whether that needs a flush of the origin.
//!
//! Invariant: a record states a page as valid only if a crash cannot undo the origin's last change of it. Either the origin is
//! flushed between snapshot and record, or every region of the slot with a change since the last flush is touched, and the
//! record excludes it. A write to a slot that counts as logged touches its region; what was changed before is touched when the
//! slot begins to count as logged, whether its pages are valid or not: a fill may make them valid later.

use larder_policy::touched::Now;

use super::clean::{BATCH, CleanJournal};
use super::entry::clear_regions;
use crate::buf::PAGE;
use crate::cache::units::directory::Single;
use crate::mutant;

impl CleanJournal {
    /// Whether the journal omits the flush of the origin.
    pub(super) fn rests(&self) -> bool {
        let (cx, hurry) = (&self.base.cx, self.base.progress.hurry.get());
        cx.exec.now() < self.rests_until.get() && !hurry
    }

    /// The next slots to log, each with the regions to clean. At rest none is cleaned.
    pub(super) fn candidates(&self, rests: bool) -> Vec<(u32, u64)> {
        let absent = self.absent(rests);
        let is_absent = |slot: u32| self.is_of(slot, absent);
        let mut touched = self.touched.borrow_mut();
        let mut changed = self.changed.borrow_mut();
        if !rests {
            changed.append(&mut self.waiting.borrow_mut());
        }
        let table = &self.base.table;
        let logged = changed
            .iter()
            .filter(|slot| !touched.defers(**slot) && table.logged_as(**slot).is_some())
            .filter(|slot| !is_absent(**slot));
        let mut slots: Vec<(u32, u64)> = logged.take(BATCH).map(|slot| (*slot, 0)).collect();
        let only_changed = slots.len();
        let cleaned = match rests {
            true => Vec::new(),
            false => touched.choose(
                self.now(),
                BATCH - only_changed,
                (is_absent, |slot, mask| self.is_written(slot, mask)),
            ),
        };
        for (slot, mask) in cleaned {
            match slots[..only_changed].binary_search_by_key(&slot, |(slot, _)| *slot) {
                Ok(found) => slots[found].1 = mask,
                Err(_) => slots.push((slot, mask)),
            }
        }
        for (slot, _) in &slots {
            changed.remove(slot);
        }
        slots
    }

    fn now(&self) -> Now {
        let (cx, hurry) = (&self.base.cx, self.base.progress.hurry.get());
        let (now, period) = (cx.exec.now(), cx.limits.get().checkpoint.max(1));
        Now {
            period: (now / period) as u32,
            quiet: now.saturating_sub(self.last_write.get()) > cx.limits.get().checkpoint || hurry,
            hurry,
            used: self.base.table.used(),
            valid_regions: self.valid_regions(),
        }
    }

    /// Whether a claim covers a page of these regions.
    fn is_written(&self, slot: u32, mask: u64) -> bool {
        if mutant::is_active("region-cleaned-early") {
            return false;
        }
        let claims = &self.base.cx.claims;
        self.pages_of(slot, mask).any(|at| claims.any(u64::from(at.unit), &(at.page..at.page + 1)))
    }

    /// Whether a crash may undo the origin's last change of a page of these regions.
    fn is_unflushed(&self, slot: u32, mask: u64) -> bool {
        let (shape, origins) = (&self.base.cx.shape, &self.base.cx.origins);
        self.pages_of(slot, mask).any(|at| {
            let within = u64::from(at.page) * PAGE as u64;
            let offset = shape.unit_offset(at.unit) + within;
            origins.at(offset).is_unflushed(offset, PAGE as u64)
        })
    }

    fn pages_of(&self, slot: u32, mask: u64) -> impl Iterator<Item = Single> {
        let regions = (0..u64::BITS).filter(move |region| mask >> region & 1 == 1);
        let places = regions.map(|region| self.regions.pages(region..region + 1));
        places.flat_map(move |places| self.base.table.pages_in(slot, places))
    }

    /// The regions that must be touched when the slot begins to count as logged: those of writes in flight, which began
    /// without a record; and without a flush of the origin (`rests`) those with changes that no flush covers.
    fn unsettled(&self, slot: u32, rests: bool) -> u64 {
        if !self.touched.borrow().may_rest() || self.base.mapping.is_logged(slot) {
            return 0;
        }
        let is_unsettled = |region: &u32| {
            let written = self.is_written(slot, 1 << region);
            written && !mutant::is_active("logged-under-write")
                || rests && self.is_unflushed(slot, 1 << region)
        };
        let regions = self.log().layout.pages.div_ceil(self.regions.pages_each);
        (0..regions).filter(is_unsettled).fold(0, |mask, region| mask | 1 << region)
    }

    /// Touches what must be touched when the slot begins to count as logged. No record of it is needed: recovery finds
    /// nothing of the slot, and the coming record excludes touched regions.
    ///
    /// Returns false, and the slot waits for a flush of the origin, if the record would exclude most of its valid pages:
    /// from then on each first write to a region would wait for a record of its own, for little.
    pub(super) fn settle(&self, slot: u32, rests: bool) -> bool {
        let mask = self.unsettled(slot, rests);
        if mask == 0 {
            return true;
        }
        if rests && self.excludes_most(slot, mask) {
            self.waiting.borrow_mut().insert(slot);
            return false;
        }
        self.touched.borrow_mut().put_back(slot, mask);
        self.recorded.borrow_mut().entry(slot).or_default().durable |= mask;
        true
    }

    /// Whether fewer than half of the slot's valid pages are outside of these regions.
    fn excludes_most(&self, slot: u32, mask: u64) -> bool {
        let count = |bits: &[u8]| bits.iter().map(|byte| byte.count_ones()).sum::<u32>();
        let mut bits = Vec::with_capacity(self.log().layout.entry_bytes());
        self.base.table.valid_bits(slot, &mut bits);
        let valid = count(&bits);
        clear_regions(&mut bits, mask, self.regions, self.log().layout.pages);
        count(&bits) < valid.div_ceil(2)
    }
}
