// SPDX-License-Identifier: MIT OR Apache-2.0
//! The part that clean and write-back caches of units share: a table of slots on one flash device, and a journal.
//!
//! A hit is read from flash or, if the cache has a [`Balance`], from the origin when that takes less of the time of all
//! clients. Only clean data that is valid is read there, and only while the origin is trusted, before and after the read.
//! If the origin fails or is overdue, flash is read as if the origin had not been asked; the pin keeps the slot meanwhile,
//! as it does for a slow flash. Why both kinds may do so stands in their modules.

use std::cell::RefCell;
use std::future::Future;
use std::rc::Rc;

use larder_policy::admission::Swap;
use larder_policy::balance::{Balance, BalanceSettings, MOST_BYTES};

use super::extended::OpenReads;
use super::mixed::MixedSlot;
use super::table::{Evicted, SlotPin, Table};
use super::warmth::Warmed;
use crate::buf::{Buf, PAGE};
use crate::claims::Claim;
use crate::context::Context;
use crate::exec::IoKind;
use crate::flash::{Bringing, Flash, FlashError, FlashOp, Guards, Role};
use crate::format::FlashPlan;
use crate::journal::{Journal, Log};
use crate::mutant;
use crate::pages::Pages;
use crate::population::singles::Growth;
use crate::request::Errno;
use crate::shape::{Place, Shape};
use crate::write_pool::PoolShare;

/// Bytes to be written to a slot.
pub(crate) struct Bytes {
    /// First byte within the unit.
    pub within: u64,
    pub len: u64,
    pub buf: Buf,
    /// First byte within the buffer.
    pub at: usize,
}

/// Units on one attached flash device.
pub(crate) struct UnitCache<J> {
    pub(crate) cx: Rc<Context>,
    pub(crate) table: Rc<Table>,
    pub(crate) flash: Rc<Flash>,
    pub(crate) journal: Option<Rc<J>>,
    pub(crate) extended: OpenReads,
    plan: FlashPlan,
    /// Decides which device serves a hit.
    balance: Option<RefCell<Balance>>,
    /// Units that are being populated.
    populating: RefCell<Vec<u32>>,
    pub(super) warmed: Warmed,
}

/// Byte `within` of a pinned unit on the volume.
pub(super) fn place_of(shape: &Shape, pin: &SlotPin, within: u64) -> u64 {
    shape.unit_offset(pin.unit()) + within
}

/// Byte `within` of a pinned unit on the device. The slots of all shards are interleaved.
pub(super) fn offset_of(shape: &Shape, plan: &FlashPlan, pin: &SlotPin, within: u64) -> u64 {
    let global = u64::from(pin.slot()) * u64::from(shape.shards) + u64::from(shape.shard);
    plan.base + global * shape.unit_bytes + pin.offset(within)
}

/// Marks a unit as being populated until this is dropped.
pub(crate) struct Populating<'a> {
    populating: &'a RefCell<Vec<u32>>,
    unit: u32,
}

impl Drop for Populating<'_> {
    fn drop(&mut self) {
        self.populating.borrow_mut().retain(|unit| *unit != self.unit);
    }
}

impl<J: Journal> UnitCache<J> {
    pub(crate) fn new(
        cx: &Rc<Context>,
        table: Rc<Table>,
        flash: Rc<Flash>,
        journal: Option<Rc<J>>,
        (plan, balance): (FlashPlan, Option<&BalanceSettings>),
    ) -> Self {
        let populating = RefCell::default();
        let extended = OpenReads::default();
        let balance = balance.map(|settings| RefCell::new(Balance::new(settings)));
        let (cx, warmed) = (Rc::clone(cx), Warmed::default());
        table.follow(&cx.rules.borrow());
        Self { cx, table, flash, journal, extended, plan, balance, populating, warmed }
    }

    /// Whether a unit is being populated.
    pub(crate) fn is_populating(&self, unit: u32) -> bool {
        self.populating.borrow().contains(&unit)
    }

    /// Begins the population of a unit, unless one is in progress.
    pub(crate) fn begin_population(&self, unit: u32) -> Option<Populating<'_>> {
        let mut populating = self.populating.borrow_mut();
        if populating.contains(&unit) {
            return None;
        }
        populating.push(unit);
        Some(Populating { populating: &self.populating, unit })
    }

    /// The log of the journal.
    pub(crate) fn log(&self) -> Option<&Log> {
        self.journal.as_ref().map(|journal| journal.base().log())
    }

    /// Requests that the journal make all of its state durable without its usual delay.
    pub(crate) fn hurry(&self) {
        self.journal.iter().for_each(|journal| journal.base().hurry());
    }

    /// Requests a checkpoint of the whole state.
    pub(crate) fn save(&self) {
        self.journal.iter().for_each(|journal| journal.base().save());
    }

    /// Whether all state that a restart uses is durable.
    pub(crate) fn is_settled(&self) -> bool {
        self.journal.as_ref().is_none_or(|journal| journal.is_settled())
    }

    /// Offsets and lengths of operations on cached data are multiples of this many bytes: blocks of the device, or whole pages
    /// if they are verified.
    pub(crate) fn block_bytes(&self) -> u64 {
        let verified = if self.flash.sums().is_some() { PAGE as u64 } else { 0 };
        self.device_block_bytes().max(verified)
    }

    /// Bytes of a block of the device.
    pub(super) fn device_block_bytes(&self) -> u64 {
        u64::from(self.plan.block_bytes)
    }

    fn offset(&self, pin: &SlotPin, within: u64) -> u64 {
        offset_of(&self.cx.shape, &self.plan, pin, within)
    }

    /// The share of slots that are free; `None` without slots.
    pub(crate) fn free_ratio(&self) -> Option<f64> {
        (self.table.limit() > 0).then(|| self.table.free_ratio())
    }

    /// The unit's slot, or a new one, for which the replacement policy may evict units; `None` if it evicts none.
    pub(crate) fn slot_for(&self, unit: u32) -> Option<SlotPin> {
        if let Some(pin) = self.table.resident(unit) {
            return Some(pin);
        }
        if self.table.is_closed(unit) {
            return None; // evicts nothing for it
        }
        if let Some(pin) = self.insert(unit) {
            return Some(pin);
        }
        let population = &self.cx.population;
        if population.displaces_singles(unit) && self.recycle(self.table.due_mixed()) {
            return self.insert(unit);
        }
        for _ in 0..self.table.evicts_together() {
            let victim = self.table.evict_for(unit, &|owner| population.prefers(unit, owner));
            if !self.evicted(victim) {
                break;
            }
        }
        self.insert(unit)
    }

    /// Whether the volumes' shares allow an exchange.
    pub(super) fn may_swap(&self, swap: Swap) -> bool {
        let victim = swap.outgoing.and_then(|slot| self.table.unit_of(slot));
        !self.table.is_closed(swap.incoming) && self.table.may_take(swap.incoming, victim)
    }

    /// Gives a unit a free slot.
    pub(crate) fn insert(&self, unit: u32) -> Option<SlotPin> {
        let pin = self.table.insert(unit);
        self.log_left();
        pin
    }

    /// Logs that pages have left their places in mixed slots. It comes before any other task runs.
    pub(super) fn log_left(&self) {
        let left = self.table.take_left();
        if let Some(journal) = &self.journal {
            left.into_iter().for_each(|left| journal.left(left));
        }
    }

    /// Places for single pages of a unit that has no slot. When the open mixed slot is full, another slot becomes mixed: a
    /// free one, that of a unit that is read less than what mixed slots earn, or the mixed slot that is due.
    pub(crate) fn places_for(&self, unit: u32, pages: &Pages) -> Option<SlotPin> {
        let (table, population) = (&self.table, &self.cx.population);
        // Into larger blocks of the device an operation would reach beyond the place.
        if self.block_bytes() > PAGE as u64 || table.is_closed(unit) {
            return None;
        }
        let place = || {
            let pin = table.places_for(unit, pages);
            self.log_left();
            pin
        };
        if let Some(pin) = place() {
            return Some(pin);
        }
        let (due, free) = (table.due_mixed(), table.has_free());
        let has_room = match population.mixes(due, table.sample_mixed(), free) {
            Growth::Free => true,
            Growth::Displaces => {
                let coldest = table.coldest(|_, owner| population.frequency(owner));
                let victim = coldest.filter(|(_, read)| population.single_displaces(*read));
                self.evicted(victim.and_then(|(slot, _)| table.evict_slot(slot)))
                    || self.recycle(due)
            }
            Growth::None => self.recycle(due),
        };
        if has_room && table.open_mixed(population.reads()) {
            population.mixed(true);
        }
        place()
    }

    /// Frees a mixed slot; returns whether it did.
    pub(super) fn recycle(&self, due: Option<MixedSlot>) -> bool {
        let recycled = self.evicted(due.and_then(|due| self.table.evict_slot(due.slot)));
        if recycled {
            self.cx.population.mixed(false);
        }
        recycled
    }

    /// Records an eviction; returns whether there was one.
    pub(super) fn evicted(&self, gone: Option<Evicted>) -> bool {
        let Some(gone) = gone else { return false };
        if let Some(journal) = &self.journal {
            journal.removed(gone);
        }
        self.cx.stats.add(|c| c.evictions += 1);
        true
    }

    /// Frees a slot, unless it is free or pinned; returns whether it did.
    pub(crate) fn evict(&self, slot: u32) -> bool {
        let Some(gone) = self.table.evict_slot(slot) else { return false };
        if let Some(journal) = &self.journal {
            journal.removed(gone);
        }
        true
    }

    /// After a start: the policy learns of the mixed slots. Without a policy for single pages they are evicted.
    pub(crate) fn mixed_recovered(&self) {
        for slot in self.table.mixed_slots() {
            if self.cx.population.has_singles() {
                self.cx.population.mixed(true);
            } else {
                self.evict(slot);
            }
        }
    }

    /// Reads `len` bytes of a slot.
    #[inline(always)] // see `Flash::io`
    fn read(
        &self,
        pin: SlotPin,
        within: u64,
        len: u64,
        buf: Buf,
    ) -> impl Future<Output = Result<Buf, FlashError>> {
        let (kind, offset) = (IoKind::Read, self.offset(&pin, within));
        let role = if mutant::is_active("hit-unverified") { Role::Metadata } else { Role::Data };
        let of = place_of(&self.cx.shape, &pin, within);
        let op = FlashOp { role, kind, offset, len, buf: Some(buf), at: 0, of };
        self.io(op, Guards { pin: Some(pin), ..Guards::default() })
    }

    /// Reads whole pages of a unit.
    pub(super) async fn read_pages(&self, pin: SlotPin, pages: &Pages) -> Result<Buf, FlashError> {
        let (within, len) = (u64::from(pages.start) * PAGE as u64, pages.len() * PAGE);
        self.read(pin, within, len as u64, Buf::with_len(len)).await
    }

    /// Reads a hit; `clean` returns whether the origin has the same data. A request that does not cover whole blocks
    /// of the device is read through a second buffer.
    ///
    /// # Errors
    /// If the read fails: the request's buffer, unless it is still in the kernel.
    pub(crate) async fn read_hit(
        &self,
        pin: SlotPin,
        place: &Place,
        buf: Option<Buf>,
        clean: impl FnOnce() -> bool,
    ) -> Result<Buf, Option<Buf>> {
        let mut out = buf.unwrap_or_else(|| Buf::with_len(place.len as usize));
        if self.read_ram(&pin, place, &mut out) {
            return Ok(out);
        }
        if self.balances(place) && clean() {
            // Boxed, so that the task of a hit does not grow.
            match Box::pin(self.read_origin(place, out)).await {
                Ok(data) => return Ok(data),
                Err(back) => out = back,
            }
        }
        let block = self.block_bytes();
        if place.within.is_multiple_of(block) && place.len.is_multiple_of(block) {
            let bringing = self.bringing(&pin, place);
            let read = self.read(pin, place.within, place.len, out).await;
            if let (Some(ram), Some((read_at, offset))) = (self.flash.ram(), bringing) {
                ram.end(read_at, offset, read.as_ref().ok().map(|data| &data[..]));
            }
            return read.map_err(FlashError::into_buf);
        }
        let start = place.within / block * block;
        let end = (place.within + place.len).next_multiple_of(block);
        let aside = Buf::with_len((end - start) as usize);
        let skip = (place.within - start) as usize;
        match self.read(pin, start, end - start, aside).await {
            Ok(aside) => {
                out.copy_from_slice(&aside[skip..skip + place.len as usize]);
                Ok(out)
            }
            Err(_) => Err(Some(out)),
        }
    }

    /// Reads a hit from the tier of RAM, if there is one and it has all of it.
    #[inline]
    fn read_ram(&self, pin: &SlotPin, place: &Place, out: &mut Buf) -> bool {
        let Some(ram) = self.flash.ram() else { return false };
        let out = &mut out[..place.len as usize];
        let found = ram.read(self.offset(pin, place.within), out);
        self.cx.stats.add(|c| c.ram_reads += u64::from(found));
        found
    }

    /// A read of flash that may bring pages into the tier of RAM, and its offset on the device.
    #[inline]
    fn bringing(&self, pin: &SlotPin, place: &Place) -> Option<(Bringing, u64)> {
        let ram = self.flash.ram()?;
        let offset = self.offset(pin, place.within);
        Some((ram.begin(offset, place.len), offset))
    }

    /// Whether the origin serves this hit, if its data is clean.
    #[inline]
    fn balances(&self, place: &Place) -> bool {
        let (Some(balance), Some(flash)) = (&self.balance, self.flash.load()) else { return false };
        let (mut balance, origin) = (balance.borrow_mut(), self.cx.origins.at(place.offset));
        balance.concerns(&flash)
            && place.len <= MOST_BYTES
            && origin.is_trusted()
            && balance.serves(&flash, &origin.load(), self.cx.exec.now())
    }

    /// Reads a hit from the origin.
    ///
    /// # Errors
    /// If the origin failed, is overdue, or is no longer trusted: a buffer.
    async fn read_origin(&self, place: &Place, buf: Buf) -> Result<Buf, Buf> {
        let (cx, limit) = (&self.cx, self.cx.limits.get().flash_timeout);
        let origin = cx.origins.at(place.offset);
        let read = origin.read_within(limit, place.range(), buf).await;
        let (Some(balance), Some(flash)) = (&self.balance, self.flash.load()) else {
            return read.map_err(|_| Buf::with_len(place.len as usize));
        };
        let now = cx.exec.now();
        match read {
            Ok(data) if origin.is_trusted() => {
                balance.borrow_mut().answered(&flash, &origin.load(), now);
                cx.stats.add(|c| c.balanced_reads += 1);
                Ok(data)
            }
            Ok(data) => Err(data),
            Err(_) => {
                balance.borrow_mut().failed(now);
                Err(Buf::with_len(place.len as usize))
            }
        }
    }

    /// Writes to a slot, after its old mapping is durably removed.
    pub(crate) async fn write(
        &self,
        pin: SlotPin,
        bytes: Bytes,
        claim: Rc<Claim>,
        share: Option<PoolShare>,
    ) -> Result<Buf, FlashError> {
        let Bytes { within, len, buf, at } = bytes;
        if let Some(journal) = &self.journal
            && journal.base().mapping.slot_dropped(pin.slot()).await.is_err()
        {
            return Err(FlashError::Failed(Errno::EIO, Some(buf)));
        }
        let (kind, offset) = (IoKind::Write { fua: false }, self.offset(&pin, within));
        let of = place_of(&self.cx.shape, &pin, within);
        let op = FlashOp { role: Role::Data, kind, offset, len, buf: Some(buf), at, of };
        let guards = Guards { pin: Some(pin), claim: Some(claim), share, ..Guards::default() };
        self.io(op, guards).await
    }

    #[inline(always)] // see `Flash::io`
    fn io(&self, op: FlashOp, guards: Guards) -> impl Future<Output = Result<Buf, FlashError>> {
        let asked = match self.flash.closed() {
            false => Ok(self.flash.io(op, guards)),
            true => Err(FlashError::Failed(Errno::ESHUTDOWN, op.buf)),
        };
        async move { asked?.await?.ok_or(FlashError::Failed(Errno::EIO, None)) }
    }
}
