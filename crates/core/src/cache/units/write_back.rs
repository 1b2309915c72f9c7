// SPDX-License-Identifier: MIT OR Apache-2.0
//! A write-back cache of units: each unit lives on flash or on the origin (PRWC 2.2, 2.8; flashcache and bcache in SCE 4.4).
//!
//! A cached unit is wholly on flash, and every request to it goes to flash alone. Requests to other units go to the
//! origin alone. A unit is admitted and evicted while the gate keeps clients out: by an exchange, or, if each miss admits its
//! unit, with the request that misses (`on_miss.rs`). Meanwhile the syncer copies dirty units to the origin (`syncer.rs`).
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

use super::dirty_flash::DirtyFlash;
use super::dirty_map::DirtyMap;
use super::gate::{Gate, Pass};
use super::sync_task::SyncTask;
use super::table::{SlotPin, Table};
use super::unit_cache::UnitCache;
use super::warm::Contradiction;
use crate::buf::{Buf, PAGE};
use crate::cache::detaching::Step;
use crate::config::{Contents, WriteBackSpec};
use crate::context::Context;
use crate::exec::{IoKind, Nanos, SECOND};
use crate::flash::{Flash, Owner};
use crate::format::FlashPlan;
use crate::journal::layout::Layout;
use crate::journal::recover::Recovered;
use crate::journal::{DirtyJournal, Journal as _, Log, LogFailed};
use crate::mutant;
use crate::origin::Use;
use crate::pages::Pages;
use crate::request::{Errno, Request};
use crate::runs::Tag;
use crate::shape::Place;
use crate::volumes::VolumeSet;

/// How long an admission or eviction waits for clients inside the unit.
pub(super) const PATIENCE: Nanos = SECOND;

/// A write-back cache on one flash device.
pub(crate) struct WriteBack {
    pub(super) me: Weak<WriteBack>,
    pub(crate) units: UnitCache<DirtyJournal>,
    pub(super) dirty: Rc<DirtyMap>,
    /// Its slots.
    pub(crate) slots: Rc<DirtyFlash>,
    pub(super) gate: Gate,
    /// One for each volume.
    pub(super) syncers: Vec<SyncTask>,
    /// Whether misses may admit units: not while everything is evicted.
    pub(crate) admits: Cell<bool>,
    settling: Cell<bool>,
}

impl WriteBack {
    /// Starts to cache on a flash device with the recovered state. What it has of the `stale` volumes is not dirty: it is about
    /// to leave, and must not be copied to their origins.
    ///
    /// # Errors
    /// If that state contradicts itself; the device is not attached.
    pub(crate) fn attach(
        cx: &Rc<Context>,
        spec: &WriteBackSpec,
        plan: FlashPlan,
        (recovered, stale): (Option<&Recovered>, VolumeSet),
        owner: Weak<dyn Owner>,
    ) -> Result<Rc<Self>, Contradiction> {
        let table = Table::new(cx.shape, &cx.origins.volumes, plan.slots, spec.slots);
        let found = Layout::of(&cx.shape, &plan).zip(recovered);
        let dirty = Rc::new(DirtyMap::new(&cx.shape));
        if let Some((layout, found)) = &found {
            table.restore(found.held(layout))?;
            let is_stale = |slot| {
                let volumes = cx.origins.volumes_of(table.unit_of(slot).into_iter());
                volumes.meets(stale)
            };
            let kept = found.held(layout).filter(|held| !is_stale(held.slot));
            kept.for_each(|held| dirty.restore(held.slot, held.dirty));
            cx.population.restore(found.factors(layout));
        }
        cx.population.attached(table.limit(), &cx.shape);
        let flash = Flash::new(plan.dev, cx.device(), &cx.limits, Contents::Dirty, owner);
        let flash = flash.measured(spec.balance.is_some()).under_ram(cx.ram_bytes());
        let sums = cx.sums(&plan, recovered.is_some());
        if let Some(sums) = &sums {
            dirty.each_dirty(|slot, pages| sums.unsure_in(slot, pages));
        }
        let flash = Rc::new(flash.verified_by(sums));
        let slots = Rc::new(DirtyFlash::new(cx, &table, &flash, plan));
        let journal = Layout::of(&cx.shape, &plan).map(|layout| {
            let log = Log::new(&cx.exec, &flash, (layout, plan.volume()), recovered);
            let held = found.iter().flat_map(|(layout, found)| found.held(layout));
            let state = (Rc::clone(&dirty), Rc::clone(&slots));
            DirtyJournal::start(cx, &table, (state, spec.dirty_log), log, held.map(|h| h.slot))
        });
        let units = UnitCache::new(cx, table, flash, journal, (plan, spec.balance.as_ref()));
        let syncers = SyncTask::each(&spec.sync, cx, &units.table, &dirty);
        Ok(Rc::new_cyclic(|me| Self {
            me: Weak::clone(me),
            syncers,
            units,
            dirty,
            slots,
            gate: Gate::default(),
            admits: Cell::new(true),
            settling: Cell::new(false),
        }))
    }

    /// The syncer of a unit's volume.
    pub(super) fn syncer_of(&self, unit: u32) -> &SyncTask {
        &self.syncers[self.units.cx.origins.of_unit(unit).volume() as usize]
    }

    /// Units with dirty data.
    pub(crate) fn units_dirty(&self) -> u64 {
        self.dirty.count()
    }

    /// Units of a volume with dirty data.
    pub(crate) fn units_dirty_of(&self, volume: u32) -> u64 {
        u64::from(self.syncers[volume as usize].policy.borrow().dirty())
    }

    pub(crate) async fn read(self: Rc<Self>, tag: Tag, request: Request) {
        let (units, cx) = (&self.units, &self.units.cx);
        let place = cx.shape.place(&request);
        let mut buf = request.buf;
        let pass = self.gate.enter(place.unit, &cx.exec).await;
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
                    return cx.reply_read(tag, read, true);
                }
                Err(_) if units.flash.sums().is_some() => {
                    let read = Box::pin(self.read_damaged(&place)).await;
                    return cx.reply_read(tag, read, false);
                }
                Ok(data) => buf = Some(data),
                Err(back) => buf = back,
            }
        }
        // Boxed, so that the task of a hit does not have the size of a miss.
        Box::pin(self.miss(tag, (&place, request.passive), buf, pass)).await;
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

    /// Reads clean pages from the origin that flash could not return as they were, and writes them to flash again. The caller is
    /// inside the unit.
    async fn read_damaged(&self, place: &Place) -> Result<Buf, Errno> {
        let pin = self.units.table.resident(place.unit).ok_or(Errno::EIO)?;
        let skip = (place.within % PAGE as u64) as usize;
        match self.restore(pin, place.unit, &place.pages).await {
            Some(read) => read.map(|bytes| Buf::copy_of(&bytes[skip..][..place.len as usize])),
            None => self.read_dirty(place).await,
        }
    }

    /// Writes pages of a unit to flash again with what the origin has of them, and returns that; `None` if one of them is dirty.
    pub(super) async fn restore(
        &self,
        pin: SlotPin,
        unit: u32,
        pages: &Pages,
    ) -> Option<Result<Buf, Errno>> {
        let (cx, page) = (&self.units.cx, PAGE as u64);
        let offset = cx.shape.unit_offset(unit) + u64::from(pages.start) * page;
        let room = pages.len() as u64 * page;
        let len = room.min(cx.shape.origin_bytes - offset);
        let read = async {
            let mut bytes = Buf::with_len(room as usize);
            bytes[len as usize..].fill(0);
            cx.origins.read(Use::Client, offset, len, bytes).await
        };
        let slot = pin.slot();
        self.slots.repair(pin, pages, || !self.dirty.is_dirty(slot, pages), read).await
    }

    /// Whether flash holds dirty data of these pages.
    fn is_dirty(&self, place: &Place) -> bool {
        let slot = self.units.table.slot_of(place.unit);
        slot.is_some_and(|slot| self.dirty.is_dirty(slot, &place.pages))
    }

    /// A write, trim or zeroing: on flash if the unit is cached, or the write admits it; else on the origin.
    pub(crate) async fn change(self: Rc<Self>, tag: Tag, request: Request, kind: IoKind) {
        let cx = &self.units.cx;
        let place = cx.shape.place(&request);
        let pass = self.gate.enter(place.unit, &cx.exec).await;
        cx.population.requested(place.unit, place.len);
        let hit = self.units.table.slot_of(place.unit).is_some();
        let mut result = match hit {
            false if self.admits_write(&place, kind) => {
                drop(pass); // it shuts the unit
                Box::pin(self.admit_write(&place, kind, request.buf)).await
            }
            _ => self.change_inside(pass, &place, kind, request.buf).await,
        };
        if kind.is_fua() {
            result = result.and(Box::pin(self.keep(place.unit)).await);
        }
        cx.reply(tag, result, None, hit);
    }

    /// Changes a unit where it is. The caller is inside the unit.
    pub(super) async fn change_inside(
        &self,
        _pass: Pass,
        place: &Place,
        kind: IoKind,
        buf: Option<Buf>,
    ) -> Result<(), Errno> {
        match self.units.table.hit(place.unit, &place.pages) {
            Some(pin) => self.change_on_flash(pin, place, kind, buf).await,
            None => self.change_on_origin(place, kind, buf).await,
        }
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
        self.unit_dropped(place.unit).await?;
        cx.origins.change(Use::Client, kind, place.range(), buf).await
    }

    /// Waits until recovery does not find the unit in a slot that it left.
    pub(super) async fn unit_dropped(&self, unit: u32) -> Result<(), Errno> {
        match &self.units.journal {
            Some(journal) => {
                journal.base().mapping.unit_dropped(unit).await.map_err(|LogFailed| Errno::EIO)
            }
            None => Ok(()),
        }
    }

    async fn change_on_flash(
        &self,
        pin: SlotPin,
        place: &Place,
        kind: IoKind,
        buf: Option<Buf>,
    ) -> Result<(), Errno> {
        let block = self.units.device_block_bytes();
        if !place.within.is_multiple_of(block) || !place.len.is_multiple_of(block) {
            return Err(Errno::EINVAL); // an attach refuses flash with larger blocks than the origin's
        }
        let page = PAGE as u64;
        let in_part = !place.within.is_multiple_of(page) || !place.len.is_multiple_of(page);
        if in_part && self.units.flash.sums().is_some() {
            // Boxed, so that the task of a write of whole pages does not grow.
            Box::pin(self.mend_edges(&pin, place)).await?;
        }
        let slot = pin.slot();
        let new = self.mark((slot, place.unit), &place.pages);
        if let Some(journal) = &self.units.journal
            && !mutant::is_active("dirty-not-logged")
        {
            journal.dirtied(slot, new).await.map_err(|LogFailed| Errno::EIO)?;
        }
        self.slots.change(pin, kind, (place.within, place.len), buf).await
    }

    /// Restores clean pages that a change overwrites in part, while the origin still counts as having them.
    async fn mend_edges(&self, pin: &SlotPin, place: &Place) -> Result<(), Errno> {
        let page = PAGE as u64;
        let (start, end) = (place.within, place.within + place.len);
        let edges = [(start, place.pages.start), (end, place.pages.end - 1)];
        for (_, edge) in edges.into_iter().filter(|(at, _)| !at.is_multiple_of(page)) {
            let edge = edge..edge + 1;
            let clean = !self.dirty.is_dirty(pin.slot(), &edge);
            if clean && !self.slots.damaged(pin, &edge).await?.is_empty() {
                self.restore(pin.clone(), place.unit, &edge).await.transpose()?;
            }
        }
        Ok(())
    }

    /// Marks pages of a unit as dirty: a change begins. Returns the regions that were clean.
    pub(super) fn mark(&self, (slot, unit): (u32, u32), pages: &Pages) -> u64 {
        let new = self.dirty.mark(slot, pages);
        self.syncer_of(unit).dirtied(unit, &self.units.table, &self.units.cx.exec);
        new
    }

    pub(crate) async fn flush(&self, tag: Tag, offset: u64) {
        let result = self.persist(offset).await;
        self.units.cx.reply(tag, result, None, false);
    }

    /// Makes all changes durable that were answered in the volume of this offset: flushes its origin and flash, since either
    /// may hold them (design rule 7), and logs the units that were admitted. Without a journal a restart finds nothing on
    /// flash, so all is written back.
    async fn persist(&self, offset: u64) -> Result<(), Errno> {
        let (cx, origin) = (&self.units.cx, self.units.cx.origins.at(offset));
        if mutant::is_active("flush-skips-origin") {
            return Ok(());
        }
        let not_logged = || self.units.journal.as_ref().map(|journal| journal.admitted());
        let before = not_logged().unwrap_or_default();
        let result = match mutant::is_active("flush-of-first-volume") {
            true => cx.origins.of(0).make_durable().await,
            false => origin.make_durable().await,
        };
        // A detach has copied all dirty data to the origin, durably.
        if self.units.flash.closed() || mutant::is_active("flush-skips-flash") {
            return result;
        }
        let admitted = not_logged();
        let mut flushed = self.slots.flush().await;
        if flushed.is_err() && self.drop_clean_losses().await {
            flushed = self.slots.flush().await;
        }
        if flushed.is_err() && self.units.flash.closed() {
            return origin.make_durable().await; // it was detached meanwhile
        }
        let kept = match self.units.journal.as_ref().zip(admitted) {
            Some((journal, mut admitted)) if flushed.is_ok() => {
                // A clean unit is logged only if its origin has it durably.
                let is_flushed = |slot| {
                    let unit = self.units.table.unit_of(slot);
                    unit.is_some_and(|unit| cx.origins.of_unit(unit).volume() == origin.volume())
                };
                let settled = |one: &(u32, u64)| {
                    self.dirty.mask(one.0) != 0
                        || result.is_ok() && before.binary_search(one).is_ok() && is_flushed(one.0)
                };
                admitted.retain(settled);
                journal.keep(&admitted).await
            }
            Some(_) => Ok(()),
            None if mutant::is_active("flush-waits-for-syncer") => Ok(()),
            None => self.clear(origin.volume(), Step::Copy, &|| false).await,
        };
        result.and(flushed).and(kept).and(self.evictions_end().await)
    }

    /// Waits until a restart finds the unit if it is cached; its data is durable.
    async fn keep(&self, unit: u32) -> Result<(), Errno> {
        let Some(slot) = self.units.table.slot_of(unit) else { return Ok(()) };
        match &self.units.journal {
            Some(journal) if !journal.is_admitted(slot) => journal.keep(&[]).await,
            _ => self.persist(self.units.cx.shape.unit_offset(unit)).await,
        }
    }

    /// Waits until the drops of evicted units are durable. A FLUSH does not cover their old slots any more, so recovery must
    /// not use them.
    pub(crate) async fn evictions_end(&self) -> Result<(), Errno> {
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
        self.syncers.iter().for_each(|syncer| syncer.stop(&self.units.cx.exec));
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
        let rests = self.syncers.iter().all(SyncTask::is_at_rest);
        self.units.is_settled() && self.slots.writes.is_durable() && rests
    }
}
