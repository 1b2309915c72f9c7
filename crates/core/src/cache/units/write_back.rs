// SPDX-License-Identifier: MIT OR Apache-2.0
//! A write-back cache of units: each unit lives on flash or on the origin (PRWC 2.2, 2.8).
//!
//! A cached unit is wholly on flash, and every request to it goes to flash alone. Requests to other units go to the
//! origin alone. Only an exchange moves a unit, while the gate keeps clients out.
//!
//! A hit in clean regions may be read from the origin instead ([`unit_cache`](super::unit_cache)): an exchange or a clean
//! wrote the same bytes to both devices. The read is inside the gate, so no exchange moves the unit meanwhile. A write or
//! trim that begins meanwhile marks its regions as dirty first and goes to flash; the read then returns the bytes from
//! before it, as a read of flash that was executed before it would. Later reads find the regions dirty and go to flash.
//!
//! **Write** to a cached unit: pass the gate; make the log record that marks its region dirty durable; write flash;
//! answer. Without a dirty log (PRWC 2.8.4) there is no such record: the journal has every unit as dirty from its admission
//! on (`journal/dirty.rs`).
//!
//! **Exchange**: shut both units; copy the dirty regions of the old one to the origin and flush the origin; remove the
//! old mapping durably; open the old unit; copy the new unit to flash and flush both devices; log the new mapping; open
//! the new unit.
//!
//! The procedure of PRWC 2.6 and 2.8 has holes, which this one closes:
//! - A mapping is logged only after its data is durable. Recovery rolls no record back, so it loses no write that was
//!   acknowledged after the copy.
//! - The devices are flushed before a record that depends on them.
//! - Log blocks have generation, sequence and checksum, and are never rewritten.
//! - An old unit stays shut until its mapping is durably removed.
//! - A full log starts a new half at any time, not only in an update.
//!
//! Only the flash holds the data. So operations have no time limit, the device stays in use, and what fails is repeated
//! and verified (`dirty_flash.rs`): a request that it cannot serve for too long gets EIO, the others are served.

use std::cell::Cell;
use std::rc::{Rc, Weak};

use larder_policy::admission::Swap;

use super::dirty_flash::DirtyFlash;
use super::dirty_map::DirtyMap;
use super::gate::Gate;
use super::table::{SlotPin, Table};
use super::unit_cache::UnitCache;
use super::warm::Contradiction;
use crate::buf::{Buf, PAGE};
use crate::cache::pass_through;
use crate::config::{Contents, WriteBackSpec};
use crate::context::Context;
use crate::exec::{IoKind, MILLISECOND, Nanos, SECOND};
use crate::flash::{Flash, Owner};
use crate::format::FlashPlan;
use crate::journal::layout::Layout;
use crate::journal::recover::Recovered;
use crate::journal::{DirtyJournal, Journal as _, Log, LogFailed};
use crate::mutant;
use crate::origin::Use;
use crate::pages::{Pages, REGIONS};
use crate::population::step::populate_whole;
use crate::request::{Errno, Request};
use crate::runs::Tag;
use crate::shape::Place;

/// How long an exchange waits for clients inside the unit.
const PATIENCE: Nanos = SECOND;
/// Units that are cleaned with one flush of the origin.
const BATCH: usize = 8;

/// A write-back cache on one flash device.
pub(crate) struct WriteBack {
    pub(crate) units: UnitCache<DirtyJournal>,
    dirty: Rc<DirtyMap>,
    /// Its slots.
    pub(crate) slots: Rc<DirtyFlash>,
    gate: Gate,
    settling: Cell<bool>,
}

impl WriteBack {
    /// Starts to cache on a flash device with the recovered state.
    ///
    /// # Errors
    /// If that state contradicts itself; the device is not attached.
    pub(crate) fn attach(
        cx: &Rc<Context>,
        spec: &WriteBackSpec,
        plan: FlashPlan,
        recovered: Option<&Recovered>,
        owner: Weak<dyn Owner>,
    ) -> Result<Rc<Self>, Contradiction> {
        let table = Table::new(cx.shape, plan.slots, spec.slots);
        let found = Layout::of(&cx.shape, &plan).zip(recovered);
        let dirty = Rc::new(DirtyMap::new(&cx.shape));
        if let Some((layout, found)) = &found {
            table.restore(found.held(layout))?;
            found.held(layout).for_each(|held| dirty.restore(held.slot, held.dirty));
            cx.population.restore(found.factors(layout));
        }
        cx.population.attached(table.slots(), &cx.shape);
        let flash = Flash::new(plan.dev, cx.device(), &cx.limits, Contents::Dirty, owner);
        let flash = flash.patient(cx.limits.flash_dead_after);
        let flash = Rc::new(flash.measured(spec.balance.is_some()));
        let slots = Rc::new(DirtyFlash::new(cx, &table, &flash, plan));
        let journal = Layout::of(&cx.shape, &plan).map(|layout| {
            let log = Log::new(&cx.exec, &flash, (layout, plan.volume()), recovered);
            let held = found.iter().flat_map(|(layout, found)| found.held(layout));
            let state = (Rc::clone(&dirty), Rc::clone(&slots));
            DirtyJournal::start(cx, &table, (state, spec.dirty_log), log, held.map(|h| h.slot))
        });
        let units = UnitCache::new(cx, table, flash, journal, (plan, spec.balance.as_ref()));
        let settling = Cell::new(false);
        Ok(Rc::new(Self { units, dirty, slots, gate: Gate::default(), settling }))
    }

    /// Units with dirty data.
    pub(crate) fn units_dirty(&self) -> u64 {
        self.dirty.count()
    }

    pub(crate) async fn read(self: Rc<Self>, tag: Tag, request: Request) {
        let (units, cx) = (&self.units, &self.units.cx);
        let place = cx.shape.place(&request);
        let mut buf = request.buf;
        let _pass = self.gate.enter(place.unit, &cx.exec).await;
        let find = if request.passive { Table::peek } else { Table::hit };
        if !request.passive {
            cx.population.requested(place.unit, place.len);
        }
        let usable = units.flash.usable();
        let pin = usable.then(|| find(&units.table, place.unit, &place.pages)).flatten();
        if let Some(pin) = pin {
            let slot = pin.slot();
            let watch = self.slots.writes.watch(slot, (place.within, place.len));
            let dirty = |any| self.is_dirty(&place) && !mutant::is_active(any);
            match units.read_hit(pin, &place, buf, || !dirty("balance-reads-dirty")).await {
                Ok(data) if self.slots.writes.matches(watch, slot, place.within, &data) => {
                    return cx.reply(tag, Ok(()), Some(data), true);
                }
                _ if self.is_dirty(&place) => {
                    let read = Box::pin(self.read_dirty(&place)).await;
                    let (result, data) =
                        read.map_or_else(|e| (Err(e), None), |d| (Ok(()), Some(d)));
                    return cx.reply(tag, result, data, true);
                }
                Ok(data) => buf = Some(data),
                Err(back) => buf = back,
            }
        }
        pass_through::read_origin(cx, tag, &place, buf).await;
    }

    /// Reads what only flash has, after an attempt failed.
    async fn read_dirty(&self, place: &Place) -> Result<Buf, Errno> {
        let pin = self.units.table.resident(place.unit).ok_or(Errno::EIO)?;
        let block = self.units.block_bytes();
        let start = place.within / block * block;
        let end = (place.within + place.len).next_multiple_of(block);
        let blocks = self.slots.read(&pin, (start, end - start)).await?;
        let skip = (place.within - start) as usize;
        Ok(Buf::copy_of(&blocks[skip..skip + place.len as usize]))
    }

    /// Whether flash holds dirty data of these pages.
    fn is_dirty(&self, place: &Place) -> bool {
        let slot = self.units.table.slot_of(place.unit);
        slot.is_some_and(|slot| self.dirty.is_dirty(slot, &place.pages))
    }

    /// A write, trim or zeroing: on flash if the unit is cached, else on the origin.
    pub(crate) async fn change(self: Rc<Self>, tag: Tag, request: Request, kind: IoKind) {
        let cx = &self.units.cx;
        let place = cx.shape.place(&request);
        let pass = self.gate.enter(place.unit, &cx.exec).await;
        cx.population.requested(place.unit, place.len);
        let owner = self.units.table.resident(place.unit);
        let hit = owner.is_some();
        let result = match owner {
            Some(pin) => self.change_on_flash(pin, &place, kind, request.buf).await,
            None => self.change_on_origin(&place, kind, request.buf).await,
        };
        drop(pass);
        cx.reply(tag, result, None, hit);
    }

    /// Fails if the log failed before it recorded the unit's eviction: after a crash, recovery would find the unit on
    /// flash. The pages are claimed because the gate belongs to one attachment: a population of the next one may run
    /// before this change ends.
    async fn change_on_origin(
        &self,
        place: &Place,
        kind: IoKind,
        buf: Option<Buf>,
    ) -> Result<(), Errno> {
        let cx = &self.units.cx;
        let _claim = cx.claims.claim(u64::from(place.unit), place.pages.clone());
        if let Some(journal) = &self.units.journal {
            journal
                .base()
                .mapping
                .unit_dropped(place.unit)
                .await
                .map_err(|LogFailed| Errno::EIO)?;
        }
        cx.origin.change(Use::Client, kind, place.range(), buf).await
    }

    async fn change_on_flash(
        &self,
        pin: SlotPin,
        place: &Place,
        kind: IoKind,
        buf: Option<Buf>,
    ) -> Result<(), Errno> {
        let block = self.units.block_bytes();
        if !place.within.is_multiple_of(block) || !place.len.is_multiple_of(block) {
            return Err(Errno::EINVAL); // an attach refuses flash with larger blocks than the origin's
        }
        let slot = pin.slot();
        let new = self.dirty.mark(slot, &place.pages);
        if let Some(journal) = &self.units.journal
            && !mutant::is_active("dirty-not-logged")
        {
            journal.dirtied(slot, new).await.map_err(|LogFailed| Errno::EIO)?;
        }
        self.slots.change(pin, kind, (place.within, place.len), buf).await
    }

    /// Flushes both devices: either may hold acknowledged writes (design rule 7).
    pub(crate) async fn flush(&self, tag: Tag) {
        let cx = &self.units.cx;
        if mutant::is_active("flush-skips-origin") {
            return cx.reply(tag, Ok(()), None, false);
        }
        let mut result = cx.origin.make_durable().await;
        // A detach has copied all dirty data to the origin, durably.
        if !self.units.flash.closed() && !mutant::is_active("flush-skips-flash") {
            result = result.and(self.slots.flush().await).and(self.evictions_end().await);
        }
        cx.reply(tag, result, None, false);
    }

    /// Waits until the drops of evicted units are durable. A FLUSH does not cover their old slots any more, so recovery must
    /// not use them.
    async fn evictions_end(&self) -> Result<(), Errno> {
        match &self.units.journal {
            Some(journal) if !mutant::is_active("flush-before-drop") => {
                journal.base().mapping.all_dropped().await.map_err(|LogFailed| Errno::EIO)
            }
            _ => Ok(()),
        }
    }

    /// Makes all state durable without delay: the volume stops.
    pub(crate) fn settle(self: &Rc<Self>) {
        self.units.hurry();
        if self.slots.writes.is_durable() || self.settling.replace(true) {
            return;
        }
        let me = Rc::clone(self);
        self.units.cx.exec.spawn(async move {
            // An attempt that fails is repeated: the stop asks again.
            let _ = me.slots.make_durable().await;
            me.settling.set(false);
        });
    }

    /// Whether all state that a restart uses is durable.
    pub(crate) fn is_settled(&self) -> bool {
        self.units.is_settled() && self.slots.writes.is_durable()
    }

    /// Exchanges two units. The next update retries an exchange that fails.
    pub(super) async fn swap(&self, swap: Swap) {
        let (table, cx) = (&self.units.table, &self.units.cx);
        if self.units.log().is_some_and(Log::has_failed) || self.units.flash.is_failing() {
            return;
        }
        let old = swap.outgoing.and_then(|slot| Some((slot, table.unit_of(slot)?)));
        let units = old.map(|(_, unit)| unit).into_iter().chain([swap.incoming]).collect();
        let Some(mut shut) = self.gate.shut(units, PATIENCE, &cx.exec).await else { return };
        if let Some((slot, unit)) = old {
            if self.write_back_and_evict(slot).await.is_err() {
                return;
            }
            shut.open(unit);
        }
        let Some(pin) = self.units.insert(swap.incoming) else { return };
        let (slot, doubts) = (pin.slot(), self.slots.writes.doubts());
        let copied = populate_whole(&self.units, &pin, swap.incoming).await;
        let durable = copied && self.flush_copy().await.is_ok();
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

    /// Flushes both devices before a unit becomes clean: a clean unit is evicted without a copy to the origin.
    async fn flush_copy(&self) -> Result<(), Errno> {
        if !mutant::is_active("own-before-origin-flush") {
            self.units.cx.origin.make_durable().await?;
        }
        if mutant::is_active("own-before-flush") { Ok(()) } else { self.slots.make_durable().await }
    }

    fn evict(&self, slot: u32) -> bool {
        let evicted = self.units.evict(slot);
        if evicted {
            self.dirty.clear(slot);
            self.slots.writes.forget(slot);
        }
        evicted
    }

    /// Copies a slot's dirty data to the origin, flushes the origin, and evicts the unit durably.
    async fn write_back_and_evict(&self, slot: u32) -> Result<(), Errno> {
        if !mutant::is_active("leave-without-write-back") {
            self.write_back(slot).await?;
        }
        if !mutant::is_active("leave-without-origin-flush") {
            self.units.cx.origin.make_durable().await?;
        }
        self.evict_durably(slot).await
    }

    async fn evict_durably(&self, slot: u32) -> Result<(), Errno> {
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
        let cx = &self.units.cx;
        let Some((pin, unit)) = self.units.table.pin_used(slot) else { return Ok(()) };
        let mask = self.dirty.mask(slot);
        let regions = self.dirty.regions();
        let region_bytes = u64::from(regions.pages_each) * PAGE as u64;
        let most = (cx.limits.population_io_bytes / region_bytes).clamp(1, 64) as u32;
        let mut region = 0;
        while region < REGIONS {
            let run = (mask >> region).trailing_ones().min(most);
            if run == 0 {
                region += 1;
                continue;
            }
            let pages = regions.pages(region..region + run);
            region += run;
            let Some((within, len)) = self.bytes_of(unit, &pages) else { break };
            let whole = len.next_multiple_of(self.units.block_bytes());
            let buf = self.slots.read(&pin, (within, whole)).await?;
            let start = cx.shape.unit_offset(unit) + within;
            cx.origin.write(Use::WriteBack, (start, len), false, Some(buf)).await.0?;
            cx.stats.add(|c| c.write_back_bytes += len);
        }
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

    /// Copies all dirty data to the origin; with `evict`, also evicts every unit.
    pub(crate) async fn clear(&self, evict: bool) -> Result<(), Errno> {
        let (table, cx) = (&self.units.table, &self.units.cx);
        let (mut next, mut result) = (0, Ok(()));
        while next < table.slots() {
            let slots: Vec<u32> = if evict {
                let used = |slot: &u32| table.unit_of(*slot).is_some();
                (next..table.slots()).filter(used).take(BATCH).collect()
            } else {
                self.dirty.slots_from(next, BATCH)
            };
            let Some(last) = slots.last() else { break };
            let units = slots.iter().filter_map(|slot| table.unit_of(*slot)).collect();
            // A client is inside for longer: the other clients continue, then this batch is retried.
            let Some(_shut) = self.gate.shut(units, PATIENCE, &cx.exec).await else {
                cx.exec.sleep(MILLISECOND).await;
                continue;
            };
            next = last + 1;
            let done = if evict { self.empty(slots).await } else { self.clean(slots).await };
            // What is lost on flash concerns no other unit.
            match done {
                Err(errno) if !self.slots.writes.has_any_lost() => return Err(errno),
                done => result = result.and(done),
            }
        }
        result
    }

    /// Copies the dirty regions of some slots to the origin, and evicts their units.
    async fn empty(&self, slots: Vec<u32>) -> Result<(), Errno> {
        let mut result = Ok(());
        for slot in slots {
            result = result.and(self.write_back_and_evict(slot).await);
        }
        result
    }

    /// Copies the dirty regions of some slots to the origin; their units stay cached.
    async fn clean(&self, slots: Vec<u32>) -> Result<(), Errno> {
        let (mut copied, mut result) = (Vec::new(), Ok(()));
        for slot in slots {
            match self.write_back(slot).await {
                Ok(()) => copied.push(slot),
                Err(errno) => result = Err(errno),
            }
        }
        // Flash is flushed too: it may still lose data that is durable on the origin, and would serve the older version.
        if mutant::is_active("clean-before-flush") {
            self.units.cx.origin.make_durable().await?;
        } else {
            self.flush_copy().await?;
        }
        let mut ticket = None;
        for slot in copied {
            let Some(unit) = self.units.table.unit_of(slot) else { continue };
            // A flush that failed lost it on flash after it was copied to the origin.
            if self.slots.writes.has_lost(slot) {
                self.evict_durably(slot).await?;
                continue;
            }
            self.dirty.clear(slot);
            ticket = ticket.max(self.units.journal.as_ref().map(|j| j.clean(slot, unit)));
        }
        match (&self.units.journal, ticket) {
            (Some(journal), Some(ticket)) => {
                let durable = journal.base().log().durable(ticket).await;
                result.and(durable.map_err(|LogFailed| Errno::EIO))
            }
            _ => result,
        }
    }
}
