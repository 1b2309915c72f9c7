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
//! answer.
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
//! Flash errors are returned to the client, since only the flash holds the data. For the same reason operations have no
//! time limit and the device stays in use: a request that it cannot serve gets EIO, the others are served.

use std::rc::{Rc, Weak};

use larder_policy::admission::Swap;

use super::dirty_map::DirtyMap;
use super::gate::Gate;
use super::table::{SlotPin, Table};
use super::unit_cache::UnitCache;
use super::warm::Contradiction;
use crate::buf::{Buf, PAGE};
use crate::cache::pass_through;
use crate::config::{Contents, WriteBackSpec};
use crate::context::Context;
use crate::event::Event;
use crate::exec::{IoKind, MILLISECOND, Nanos, SECOND};
use crate::flash::{Flash, FlashOp, Guards, Owner, Role};
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
    gate: Gate,
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
        let flash = Flash::new(plan.dev, cx.device(), &cx.limits, Contents::Dirty, owner);
        let flash = Rc::new(flash.measured(spec.balance.is_some()));
        let journal = Layout::of(&cx.shape, &plan).map(|layout| {
            let log = Log::new(&cx.exec, &flash, (layout, plan.volume()), recovered);
            let held = found.iter().flat_map(|(layout, found)| found.held(layout));
            DirtyJournal::start(cx, &table, &dirty, log, held.map(|held| held.slot))
        });
        let units = UnitCache::new(cx, table, flash, journal, (plan, spec.balance.as_ref()));
        Ok(Rc::new(Self { units, dirty, gate: Gate::default() }))
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
            let dirty = |any| self.is_dirty(&place) && !mutant::is_active(any);
            match units.read_hit(pin, &place, buf, || !dirty("balance-reads-dirty")).await {
                Ok(data) => return cx.reply(tag, Ok(()), Some(data), true),
                Err(_) if self.is_dirty(&place) => {
                    return cx.reply(tag, Err(Errno::EIO), None, true);
                }
                Err(back) => buf = back,
            }
        }
        pass_through::read_origin(cx, tag, &place, buf).await;
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
        self.slot_io(pin, kind, (place.within, place.len), buf).await.map(drop)
    }

    /// An operation on a slot; its error goes to the client.
    async fn slot_io(
        &self,
        pin: SlotPin,
        kind: IoKind,
        (within, len): (u64, u64),
        buf: Option<Buf>,
    ) -> Result<Option<Buf>, Errno> {
        let offset = self.units.offset(&pin, within);
        let op = FlashOp { role: Role::Data, kind, offset, len, buf, at: 0 };
        let guards = Guards { pin: Some(pin), ..Guards::default() };
        self.units.flash.io(op, guards).await.map_err(|error| error.errno())
    }

    /// Flushes both devices: either may hold acknowledged writes (design rule 7).
    pub(crate) async fn flush(&self, tag: Tag) {
        let cx = &self.units.cx;
        if mutant::is_active("flush-skips-origin") {
            return cx.reply(tag, Ok(()), None, false);
        }
        let mut result = cx.origin.flush().await;
        // A detach has copied all dirty data to the origin, durably.
        if !self.units.flash.closed() && !mutant::is_active("flush-skips-flash") {
            result = result.and(self.flush_flash().await);
        }
        cx.reply(tag, result, None, false);
    }

    /// Flushes flash for clients. A failure is final, as for the origin.
    async fn flush_flash(&self) -> Result<(), Errno> {
        let device = self.units.flash.device();
        if let Some(errno) = device.health.flush_failed() {
            return Err(errno);
        }
        self.units.flash.flush().await?;
        // One of another shard may have failed meanwhile.
        device.health.flush_failed().map_or(Ok(()), Err)
    }

    /// A flush of the device failed, for this shard or another: it may have lost writes, and later flushes do not report
    /// it.
    pub(crate) fn flush_has_failed(&self, errno: Errno) {
        let device = self.units.flash.device();
        if device.health.flush_failed().is_none() {
            device.health.flush_has_failed(errno);
            let why = format!("a flush failed: {errno}; every later flush will fail");
            device.emit(Event::FlashErrors { dev: device.dev, why });
        }
    }

    /// Exchanges two units. The next update retries an exchange that fails.
    pub(super) async fn swap(&self, swap: Swap) {
        let (table, cx) = (&self.units.table, &self.units.cx);
        if self.units.log().is_some_and(Log::has_failed) {
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
        let slot = pin.slot();
        let copied = populate_whole(&self.units, &pin, swap.incoming).await;
        if !copied || self.flush_copy().await.is_err() {
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
        if mutant::is_active("own-before-flush") { Ok(()) } else { self.units.flash.flush().await }
    }

    fn evict(&self, slot: u32) -> bool {
        let evicted = self.units.evict(slot);
        if evicted {
            self.dirty.clear(slot);
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
            let buf = Some(Buf::with_len(whole as usize));
            let buf = self.slot_io(pin.clone(), IoKind::Read, (within, whole), buf).await?;
            let start = cx.shape.unit_offset(unit) + within;
            cx.origin.write(Use::WriteBack, (start, len), false, buf).await.0?;
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
        let mut next = 0;
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
            if evict {
                for slot in slots {
                    self.write_back_and_evict(slot).await?;
                }
            } else {
                self.clean(slots).await?;
            }
        }
        Ok(())
    }

    /// Copies the dirty regions of some slots to the origin; their units stay cached.
    async fn clean(&self, slots: Vec<u32>) -> Result<(), Errno> {
        for slot in &slots {
            self.write_back(*slot).await?;
        }
        // Flash is flushed too: it may still lose data that is durable on the origin, and would serve the older version.
        if mutant::is_active("clean-before-flush") {
            self.units.cx.origin.make_durable().await?;
        } else {
            self.flush_copy().await?;
        }
        let mut ticket = None;
        for slot in slots {
            let Some(unit) = self.units.table.unit_of(slot) else { continue };
            self.dirty.clear(slot);
            ticket = ticket.max(self.units.journal.as_ref().map(|j| j.clean(slot, unit)));
        }
        match (&self.units.journal, ticket) {
            (Some(journal), Some(ticket)) => {
                journal.base().log().durable(ticket).await.map_err(|LogFailed| Errno::EIO)
            }
            _ => Ok(()),
        }
    }
}
