// SPDX-License-Identifier: MIT OR Apache-2.0
//! Dirty data copied to the origin under write-back: by an exchange, by a clear, and by the syncer.
//!
//! A unit becomes clean only after its copy is durable on the origin, and the same bytes on flash: flash may still lose data
//! that is durable on the origin, and would serve the older version. An exchange and a clear keep clients out of the unit.
//! The syncer (`syncer.rs`) does not: what it copied counts only if no client changed the unit since the copy began.

use std::collections::BTreeMap;
use std::ops::Range;

use larder_policy::admission::Swap;

use super::exchanges::Exchanges as _;
use super::gate::Shut;
use super::table::{Hold, SlotPin};
use super::write_back::{PATIENCE, WriteBack};
use crate::buf::{Buf, PAGE};
use crate::cache::detaching::Step;
use crate::exec::{MILLISECOND, each};
use crate::flash::InFlight;
use crate::journal::{Journal as _, Log, LogFailed, Ticket};
use crate::mutant;
use crate::origins::Durable;
use crate::pages::{Pages, REGIONS};
use crate::population::step::populate_whole;
use crate::request::Errno;
use crate::volumes::VolumeSet;

/// Bytes and number of the units that a clear cleans with one flush of the origin, while their clients wait.
const BATCH_BYTES: u64 = 8 << 20;
const BATCH: u64 = 64;
/// Writes of the origin at the same time, where no pace is kept.
pub(super) const TOGETHER: usize = 16;

/// A part of a unit that is dirty.
struct Part {
    /// Which of the units that are copied together.
    of: usize,
    pin: SlotPin,
    /// First byte within the unit.
    within: u64,
    len: u64,
    /// First byte on the origin.
    offset: u64,
}

impl WriteBack {
    /// Exchanges two units. The next update retries an exchange that fails.
    pub(super) async fn swap(&self, swap: Swap) {
        let (table, cx) = (&self.units.table, &self.units.cx);
        let fails = self.units.log().is_some_and(Log::has_failed) || self.units.flash.is_failing();
        if fails || !self.units.may_swap(swap) {
            return;
        }
        let old = swap.outgoing.and_then(|slot| Some((slot, table.unit_of(slot)?)));
        let units = old.map(|(_, unit)| unit).into_iter().chain([swap.incoming]).collect();
        let overdue = &cx.origins.overdue;
        // A client of one volume that waits for its origin inside a unit keeps those of another out of theirs.
        let shut = std::pin::pin!(self.gate.shut(units, PATIENCE, &cx.exec));
        let Some(Some(mut shut)) = overdue.until(self.uses(swap), shut).await else { return };
        // An exchange that an overdue origin delayed may have ended meanwhile.
        let is_same = old.is_none_or(|(slot, unit)| table.unit_of(slot) == Some(unit));
        if !is_same || table.slot_of(swap.incoming).is_some() {
            return;
        }
        if let Some((slot, unit)) = old {
            let volumes = cx.origins.volumes_of([unit].into_iter());
            let mut leaves = std::pin::pin!(self.write_back_and_evict(slot));
            let Some(left) = overdue.until(volumes, leaves.as_mut()).await else {
                // Perhaps a unit of another volume, whose clients do not wait for this origin.
                shut.open(swap.incoming);
                let _ = leaves.await;
                return;
            };
            if left.is_err() {
                return;
            }
            shut.open(unit);
        }
        let Some(pin) = self.units.insert(swap.incoming) else { return };
        let (slot, doubts) = (pin.slot(), self.slots.writes.doubts());
        let copied = populate_whole(&self.units, &pin, swap.incoming).await;
        let volumes = cx.origins.volumes_of([swap.incoming].into_iter());
        let flushed = if copied { self.flush_copy(volumes).await } else { Err(Errno::EIO) };
        let durable = flushed.is_ok_and(|flushed| flushed.failed.is_none());
        // A flush that failed meanwhile may have lost the copy.
        if !durable
            || doubts != self.slots.writes.doubts()
                && !mutant::is_active("exchange-trusts-lost-copy")
        {
            drop(pin);
            self.evict(slot);
            return;
        }
        // No wait: a write of the unit waits for its own record, which follows this one in the log.
        if let Some(journal) = &self.units.journal {
            journal.clean(slot, swap.incoming);
        }
        cx.stats.add(|c| c.populations += 1);
    }

    /// Flushes the origins of these volumes, and flash, before units become clean: a clean unit is evicted without a copy to
    /// the origin. Only units of the volumes that it returns as durable may become clean.
    ///
    /// # Errors
    /// If flash cannot be flushed, or none of the origins.
    pub(super) async fn flush_copy(&self, volumes: VolumeSet) -> Result<Durable, Errno> {
        let flushed = if mutant::is_active("own-before-origin-flush") {
            Durable::all(volumes)
        } else {
            self.units.cx.origins.make_durable(volumes).await
        };
        if let (true, Some(errno)) = (flushed.volumes.is_empty(), flushed.failed) {
            return Err(errno);
        }
        if !mutant::is_active("own-before-flush") {
            self.slots.make_durable().await?;
        }
        Ok(flushed)
    }

    /// Frees a slot whose unit needs no copy, unless it is free or pinned; returns whether it did.
    pub(super) fn evict(&self, slot: u32) -> bool {
        let Some(unit) = self.units.table.unit_of(slot) else { return false };
        let evicted = self.units.evict(slot);
        if evicted {
            self.cleaned(slot, unit);
            self.slots.writes.forget(slot);
        }
        evicted
    }

    /// Copies a slot's dirty data to the origin, flushes the origin, and evicts the unit durably.
    async fn write_back_and_evict(&self, slot: u32) -> Result<(), Errno> {
        if !mutant::is_active("leave-without-write-back") {
            self.write_back(slot).await?;
        }
        if let Some(unit) = self.units.table.unit_of(slot)
            && !mutant::is_active("leave-without-origin-flush")
        {
            self.units.cx.origins.of_unit(unit).make_durable().await?;
        }
        self.slots.writes.unheld(slot).await;
        match self.units.table.is_kept(slot) {
            true => Err(Errno::ECANCELED), // since the exchange began
            false => self.evict_durably(slot).await,
        }
    }

    /// The slot has no dirty data any more.
    pub(super) fn cleaned(&self, slot: u32, unit: u32) {
        self.dirty.clear(slot);
        self.syncer_of(unit).policy.borrow_mut().cleaned(unit);
    }

    pub(super) async fn evict_durably(&self, slot: u32) -> Result<(), Errno> {
        self.slots.writes.unheld(slot).await;
        if !self.evict(slot) {
            return Err(Errno::EIO); // pinned, although the gate keeps clients out
        }
        self.units.cx.stats.add(|c| c.evictions += 1);
        match &self.units.journal {
            Some(journal) => {
                journal.base().mapping.slot_dropped(slot).await.map_err(|LogFailed| Errno::EIO)
            }
            None => Ok(()),
        }
    }

    /// Copies the dirty regions of a slot to the origin.
    async fn write_back(&self, slot: u32) -> Result<(), Errno> {
        let Some((pin, unit)) = self.units.table.pin_used(slot) else { return Ok(()) };
        // One write at a time, as every copy at the pace of population.
        self.copy(&[(pin, unit)], 1).await.first().map_or(Ok(()), |(_, errno)| Err(*errno))
    }

    /// Copies the dirty regions of some units of a volume, in the order of their place, to its origin; neighbours with one write, and so
    /// many writes `together`. Returns which units could not be copied.
    pub(super) async fn copy(
        &self,
        units: &[(SlotPin, u32)],
        together: usize,
    ) -> Vec<(usize, Errno)> {
        let (mut failed, mut parts) = (Vec::new(), Vec::new());
        for at in units.iter().enumerate() {
            // Recovery must not find an older version of what the origin gets.
            match self.unit_dropped(at.1.1).await {
                Ok(()) => parts.extend(self.parts(at)),
                Err(errno) => failed.push((at.0, errno)),
            }
        }
        let most = self.units.cx.limits.get().population_io_bytes;
        let adjoins = |run: &[Part], next: &Part| {
            let (first, last) = (&run[0], &run[run.len() - 1]);
            let ends = last.offset + last.len == next.offset;
            ends && next.offset + next.len - first.offset <= most
        };
        let mut runs: Vec<Vec<Part>> = Vec::new();
        for part in parts {
            match runs.last_mut().filter(|run| adjoins(run, &part)) {
                Some(run) => run.push(part),
                None => runs.push(vec![part]),
            }
        }
        for runs in runs.chunks(together) {
            let copied = each(runs.iter().map(|run| self.copy_run(run)).collect()).await;
            let refused = runs.iter().zip(copied).filter(|(_, copied)| copied.is_err());
            // What one part fails for is no reason against its neighbours.
            for part in refused.flat_map(|(run, _)| run.chunks(1)) {
                if let Err(errno) = self.copy_run(part).await {
                    failed.push((part[0].of, errno));
                }
            }
        }
        self.hold_refused(units, &failed);
        failed
    }

    /// Holds the volumes of units that could not be copied at the slots that they have, and no longer those of the others.
    fn hold_refused(&self, units: &[(SlotPin, u32)], failed: &[(usize, Errno)]) {
        let origins = &self.units.cx.origins;
        let refused = origins.volumes_of(failed.iter().map(|(of, _)| units[*of].1));
        let asked = origins.volumes_of(units.iter().map(|(_, unit)| *unit));
        for origin in origins.iter().filter(|origin| asked.has(origin.volume())) {
            let refuses = refused.has(origin.volume()) || origin.flush_failed().is_some();
            let grows = mutant::is_active("refusing-origin-grows");
            self.units.table.hold(origin.volume(), Hold::Refused, refuses && !grows);
        }
    }

    /// The dirty regions of a unit, each run of them as a part of at most the size of a copy.
    fn parts(&self, (of, (pin, unit)): (usize, &(SlotPin, u32))) -> Vec<Part> {
        let (mask, regions) = (self.dirty.mask(pin.slot()), self.dirty.regions());
        let region_bytes = u64::from(regions.pages_each) * PAGE as u64;
        let most =
            (self.units.cx.limits.get().population_io_bytes / region_bytes).clamp(1, 64) as u32;
        let (mut region, mut parts) = (0, Vec::new());
        while region < REGIONS {
            let run = (mask >> region).trailing_ones().min(most);
            if run == 0 {
                region += 1;
                continue;
            }
            let pages = regions.pages(region..region + run);
            region += run;
            let Some((within, len)) = self.bytes_of(*unit, &pages) else { break };
            let offset = self.units.cx.shape.unit_offset(*unit) + within;
            parts.push(Part { of, pin: pin.clone(), within, len, offset });
        }
        parts
    }

    /// Reads adjoining parts from flash and writes them to the origin at once.
    async fn copy_run(&self, run: &[Part]) -> Result<(), Errno> {
        let (cx, block) = (&self.units.cx, self.units.block_bytes());
        let len: u64 = run.iter().map(|part| part.len).sum();
        let read = run.iter().map(|part| {
            self.slots.read(&part.pin, (part.within, part.len.next_multiple_of(block)))
        });
        let mut read: Vec<Buf> =
            each(read.collect()).await.into_iter().collect::<Result<_, _>>()?;
        if let [_, _, ..] = read[..] {
            let mut joined = Buf::with_len(len as usize);
            let mut at = 0;
            for (part, bytes) in run.iter().zip(&read) {
                let len = part.len as usize;
                joined[at..at + len].copy_from_slice(&bytes[..len]);
                at += len;
            }
            read = vec![joined];
        }
        cx.origins.write_back((run[0].offset, len), read.pop()).await?;
        cx.stats.add(|c| c.write_back_bytes += len);
        Ok(())
    }

    /// First byte within the unit, and bytes, of those pages that exist: a short unit may end before them.
    fn bytes_of(&self, unit: u32, pages: &Pages) -> Option<(u64, u64)> {
        let (shape, page) = (&self.units.cx.shape, PAGE as u64);
        let within = u64::from(pages.start) * page;
        let left = shape.origin_bytes.saturating_sub(shape.unit_offset(unit)).min(shape.unit_bytes);
        let end = (u64::from(pages.end) * page).min(left);
        (end > within).then(|| (within, end - within))
    }

    /// Admits no unit: the flash is about to be detached.
    pub(crate) fn admit_no_more(&self) {
        if !mutant::is_active("admitted-while-leaving") {
            self.admits.set(false);
        }
    }

    /// Copies the dirty data of a volume to its origin, and evicts its units if asked. A volume that cannot leave is admitted
    /// again; a detach that fails is canceled by its caller, and only then units are admitted.
    ///
    /// # Errors
    /// Of a device. A leave ends when the volume has joined again (`ECANCELED`).
    pub(crate) async fn clear(
        &self,
        volume: u32,
        step: Step,
        has_joined: &dyn Fn() -> bool,
    ) -> Result<(), Errno> {
        let (table, cx) = (&self.units.table, &self.units.cx);
        let units = cx.shape.units_in(&cx.origins.volumes.range(volume));
        if step == Step::Leave && !mutant::is_active("left-volume-admitted") {
            table.close(volume, units.clone());
        }
        let ends = || step == Step::Leave && has_joined();
        let mut result = self.clear_units(&units, step != Step::Copy, &ends).await;
        if step == Step::Leave && !mutant::is_active("left-before-durable") {
            // Also of those that a miss evicted.
            result = result.and(self.evictions_end().await);
        }
        if result.is_err() && step == Step::Leave && !has_joined() {
            table.reopen(volume, &units);
        }
        result
    }

    /// Units that are cleared together.
    pub(super) fn batch(&self) -> usize {
        let cx = &self.units.cx;
        let batch_bytes = BATCH_BYTES / u64::from(cx.origins.volumes.count());
        (batch_bytes / cx.shape.unit_bytes).clamp(1, BATCH) as usize
    }

    async fn clear_units(
        &self,
        units: &Range<u32>,
        evict: bool,
        ends: &dyn Fn() -> bool,
    ) -> Result<(), Errno> {
        let (table, batch) = (&self.units.table, self.batch());
        let (mut next, mut result) = (0, Ok(()));
        while next < table.slots() {
            if ends() {
                return Err(Errno::ECANCELED);
            }
            let slots = match evict {
                true => table.slots_of(units, next, batch),
                false => self.dirty_slots_of(units, next, batch),
            };
            let Some(last) = slots.last().copied() else { break };
            if let Some(done) = self.clear_slots(units.start, slots, evict).await {
                next = last + 1;
                result = result.and(done?);
            }
        }
        result
    }

    /// Clears some slots of a volume, whose unit this is; `None` while a client is inside one of them for long: others continue,
    /// then the caller tries again. What is lost on flash concerns no other unit: it is the inner error.
    pub(super) async fn clear_slots(
        &self,
        unit: u32,
        slots: Vec<u32>,
        evict: bool,
    ) -> Option<Result<Result<(), Errno>, Errno>> {
        let (table, cx) = (&self.units.table, &self.units.cx);
        if cx.origins.of_unit(unit).is_overdue() {
            return Some(Err(Errno::ETIMEDOUT));
        }
        let held: BTreeMap<u32, u32> =
            slots.into_iter().filter_map(|slot| Some((slot, table.unit_of(slot)?))).collect();
        let shut = self.gate.shut(held.values().copied().collect(), PATIENCE, &cx.exec).await;
        if shut.is_none() {
            cx.exec.sleep(MILLISECOND).await;
            return None;
        }
        // Before they were shut, a miss may have exchanged some.
        let is_same = |(slot, unit): &(u32, u32)| table.unit_of(*slot) == Some(*unit);
        let slots: Vec<u32> = held.into_iter().filter(is_same).map(|(slot, _)| slot).collect();
        match self.clear_batch(unit, (slots, shut), evict).await {
            Err(errno) if !self.slots.writes.has_any_lost() => Some(Err(errno)),
            done => Some(Ok(done)),
        }
    }

    /// Clears slots of a volume, whose unit this is, while their units are shut. If its origin is overdue they stay shut, and are
    /// cleared when it answers.
    async fn clear_batch(
        &self,
        unit: u32,
        (slots, shut): (Vec<u32>, Option<Shut<InFlight>>),
        evict: bool,
    ) -> Result<(), Errno> {
        let (Some(me), origins) = (self.me.upgrade(), &self.units.cx.origins) else {
            return Err(Errno::ESHUTDOWN);
        };
        let work = async move {
            let _shut = shut;
            if evict { me.empty(slots).await } else { me.clean(slots).await }
        };
        let volumes = origins.volumes_of([unit].into_iter());
        let done = origins.overdue.in_time("clear-waits-for-hung", volumes, work).await;
        done.unwrap_or(Err(Errno::ETIMEDOUT))
    }

    /// At most so many slots with dirty data of these units, from `slot` on.
    fn dirty_slots_of(&self, units: &Range<u32>, mut slot: u32, most: usize) -> Vec<u32> {
        let (table, mut found) = (&self.units.table, Vec::new());
        while found.len() < most {
            let dirty = self.dirty.slots_from(slot, most);
            let Some(last) = dirty.last().copied() else { break };
            let is_of = |slot: &u32| table.unit_of(*slot).is_some_and(|unit| units.contains(&unit));
            found.extend(dirty.into_iter().filter(is_of).take(most - found.len()));
            slot = last + 1;
        }
        found
    }

    /// Copies the dirty regions of some slots to the origin, and evicts their units.
    async fn empty(&self, slots: Vec<u32>) -> Result<(), Errno> {
        let mut result = Ok(());
        if !mutant::is_active("leave-without-write-back") {
            result = self.clean(slots.clone()).await;
        }
        for slot in slots {
            self.slots.writes.unheld(slot).await;
            let is_clean =
                self.dirty.mask(slot) == 0 || mutant::is_active("leave-without-write-back");
            if self.units.table.unit_of(slot).is_none() || !is_clean {
                continue; // evicted since flash lost it, or not copied
            }
            if self.evict(slot) {
                self.units.cx.stats.add(|c| c.evictions += 1);
            } else {
                result = Err(Errno::EIO); // pinned, although the gate keeps clients out
            }
        }
        result.and(self.evictions_end().await)
    }

    /// Copies the dirty regions of some slots to the origin; their units stay cached.
    async fn clean(&self, slots: Vec<u32>) -> Result<(), Errno> {
        let mut units: Vec<(SlotPin, u32)> =
            slots.into_iter().filter_map(|slot| self.units.table.pin_used(slot)).collect();
        units.sort_unstable_by_key(|(_, unit)| *unit);
        let failed = self.copy(&units, TOGETHER).await;
        let mut result = failed.first().map_or(Ok(()), |(_, errno)| Err(*errno));
        let is_copied = |of: &usize| failed.iter().all(|(failed, _)| failed != of);
        let copied: Vec<u32> =
            (0..units.len()).filter(is_copied).map(|of| units[of].0.slot()).collect();
        let (origins, units) = (&self.units.cx.origins, units.into_iter().map(|(_, unit)| unit));
        let volumes = origins.volumes_of(units);
        let flushed = if mutant::is_active("clean-before-flush") {
            origins.make_durable(volumes).await
        } else {
            self.flush_copy(volumes).await?
        };
        result = result.and(flushed.failed.map_or(Ok(()), Err));
        let mut ticket = None;
        for slot in copied {
            let Some(unit) = self.units.table.unit_of(slot) else { continue };
            if !flushed.volumes.has(origins.of_unit(unit).volume()) {
                continue;
            }
            // A flush that failed lost it on flash after it was copied to the origin.
            if self.slots.writes.has_lost(slot) {
                result = result.and(self.evict_durably(slot).await);
                continue;
            }
            ticket = ticket.max(self.made_clean(slot, unit));
        }
        match (&self.units.journal, ticket) {
            (Some(journal), Some(ticket)) => {
                let durable = journal.base().log().durable(ticket).await;
                result.and(durable.map_err(|LogFailed| Errno::EIO))
            }
            _ => result,
        }
    }

    /// A unit is clean, and durable on both devices.
    pub(super) fn made_clean(&self, slot: u32, unit: u32) -> Option<Ticket> {
        self.cleaned(slot, unit);
        self.units.journal.as_ref().map(|journal| journal.clean(slot, unit))
    }
}
