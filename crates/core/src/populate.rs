// SPDX-License-Identifier: MIT OR Apache-2.0
//! Population: background workers copy hot units from the origin to flash (SCE 3.2, 3.6).
//!
//! One unit, step by step: give it a slot (evicting the coldest if need be), then for each part
//! of it that has invalid pages: wait for the pace, claim the part, read it from the origin,
//! write the runs that were invalid to flash, and make those pages valid that nobody else
//! claimed meanwhile (design rule 4). Reads hit each part as soon as it is there. A unit that is
//! cached but lost some pages is repaired the same way.
//!
//! After a restart, units that were found in part only come first (they were worth a slot, and lack
//! what was being written when everything stopped), whether or not a client misses them again.

use std::rc::Rc;

use crate::buf::{Buf, PAGE};
use crate::cache::{Cache, SlotPin};
use crate::exec::IoKind;
use crate::mutant;
use crate::pages::{MOST_PAGES, PageSet, Pages};
use crate::shard::Core;

/// Slots looked at in one go for units to be completed.
const MEND_LOOK: u32 = 1 << 16;

/// Whether a population keeps the pace.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Haste {
    /// It yields to clients.
    Yields,
    /// A client waits for it.
    Inline,
}

impl Core {
    /// A worker's life: wait for its turn, take the hottest candidate, populate it.
    pub(crate) async fn population_worker(self: Rc<Self>, worker: u32) {
        loop {
            self.mend().await;
            let free_ratio = self.cache().map_or(0.0, |c| c.free_ratio());
            let turn = self.admission.borrow_mut().turn(worker, free_ratio, self.exec.now());
            let Some(period) = turn else {
                self.workers[worker as usize].wait(&self.exec).await;
                continue;
            };
            if period > 0 {
                self.exec.sleep(period).await;
            }
            let anything = mutant::is_active("displace-anything");
            let room = free_ratio > 0.0 || anything;
            if !room && !self.cache().is_some_and(|c| c.may_displace()) {
                // The next miss asks again.
                self.workers[worker as usize].wait(&self.exec).await;
                continue;
            }
            let candidate = self.admission.borrow_mut().next(worker, room);
            let Some(candidate) = candidate else {
                self.workers[worker as usize].wait(&self.exec).await;
                continue;
            };
            let Some(cache) = self.cache() else { continue };
            self.populate(&cache, candidate.unit as u32, Haste::Yields).await;
        }
    }

    /// Completes units that a restart found in part only, until there are none.
    pub(crate) async fn mend(&self) {
        while let Some(cache) = self.cache() {
            match cache.partial_from(self.mending.get(), MEND_LOOK) {
                Ok((slot, unit)) => {
                    self.mending.set(slot + 1);
                    self.populate(&cache, unit, Haste::Yields).await;
                }
                Err(next) if next < cache.slots() => {
                    self.mending.set(next);
                    self.exec.sleep(1).await; // clients' turn
                }
                Err(_) => return self.mending.set(u32::MAX),
            }
        }
    }

    /// Brings one unit, unless that is under way, or everything resident is hotter.
    pub(crate) async fn populate(&self, cache: &Rc<Cache>, unit: u32, haste: Haste) {
        if self.populating.borrow().contains(&unit) || !cache.device.health.usable() {
            return;
        }
        let Some(pin) = self.slot_for(cache, unit) else { return };
        self.populating.borrow_mut().push(unit);
        let all = 0..self.shape.pages_of(unit);
        let mut start = 0;
        while start < all.end && !cache.closed() && cache.device.health.usable() {
            if haste == Haste::Yields {
                self.pace.begin_step(&self.exec).await;
            }
            let began = self.exec.now();
            let bytes = match haste {
                Haste::Yields => self.pace.step_bytes(began),
                Haste::Inline => self.limits.population_io_bytes,
            };
            let part = self.part(start, all.end, bytes);
            start = part.end;
            let copied = pin.all_valid(&part) || self.populate_part(&pin, unit, part).await;
            if haste == Haste::Yields {
                self.pace.end_step(&self.exec, began);
            }
            if !copied {
                break;
            }
        }
        if start >= all.end {
            self.stats.add(|c| c.populations += 1);
        }
        self.populating.borrow_mut().retain(|u| *u != unit);
    }

    /// The next part to copy: up to so many bytes, and cut where larger ones would be.
    pub(crate) fn part(&self, start: u32, end: u32, bytes: u64) -> Pages {
        let most = ((bytes / PAGE as u64) as u32).clamp(1, MOST_PAGES);
        start..end.min(start / most * most + most)
    }

    /// The unit's slot, or a new one unless everything resident is worth more.
    pub(crate) fn slot_for(&self, cache: &Rc<Cache>, unit: u32) -> Option<SlotPin> {
        if let Some(pin) = cache.resident(unit) {
            return Some(pin);
        }
        if let Some(pin) = cache.insert(unit) {
            return Some(pin);
        }
        let evicted = cache.evict_for(unit, &self.exec);
        self.stats.add(|c| c.evictions += u64::from(evicted));
        cache.insert(unit)
    }

    /// Copies the invalid pages of `part`; false when there is no point in going on.
    pub(crate) async fn populate_part(&self, pin: &SlotPin, unit: u32, part: Pages) -> bool {
        self.try_part(pin, unit, part).await.is_some()
    }

    async fn try_part(&self, pin: &SlotPin, unit: u32, part: Pages) -> Option<()> {
        let page = PAGE as u64;
        let late = mutant::is_active("population-late-claim");
        let claim = (!late).then(|| self.claims.claim(u64::from(unit), part.clone()));
        let skip = pin.valid_pages(&part);
        let first = part.clone().find(|p| !skip.has(*p))?;
        let last = part.clone().rev().find(|p| !skip.has(*p))?;
        let within = u64::from(first) * page;
        let from = self.shape.unit_offset(unit) + within;
        let len = (u64::from(last + 1 - first) * page).min(self.shape.origin_bytes - from);
        let mut buf = Buf::with_len((u64::from(last + 1 - first) * page) as usize);
        // The last page of the volume may be short; its rest is zero on flash.
        buf[len as usize..].fill(0);
        self.stats.add(|c| c.population_bytes += len);
        let began = self.exec.now();
        let (result, back) = self.origin_io(IoKind::Read, from, len, Some(buf)).await;
        let now = self.exec.now();
        self.pace.stepped(len, now - began, now);
        result.ok()?;
        let mut buf = back?;
        let claim = claim.unwrap_or_else(|| self.claims.claim(u64::from(unit), part.clone()));
        for run in PageSet::runs(first..last + 1, |p| !skip.has(p) && !claim.tainted().has(p)) {
            let (start, len) = (u64::from(run.start) * page, run.len() as u64 * page);
            let at = (start - within) as usize;
            let written =
                self.flash_write(pin.clone(), start, len, buf, at, Rc::clone(&claim), None).await;
            buf = written.ok()?;
            let over_write = mutant::is_active("population-over-write");
            let except = if over_write { PageSet::default() } else { claim.tainted() };
            pin.make_valid(&run, &except);
        }
        Some(())
    }
}
