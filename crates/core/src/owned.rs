// SPDX-License-Identifier: MIT OR Apache-2.0
//! No-write-back (PRWC 2.2, 2.8): flash owns what it holds, and the origin the rest.
//!
//! A unit is either wholly on flash, and every request to it goes there alone, or not at all, and
//! every request goes to the origin alone. It changes sides only in an exchange, while the gate
//! keeps clients out.
//!
//! One write to a cached unit, step by step: pass the gate; the log durably says that its region
//! is dirty; write flash; answer.
//!
//! One exchange, step by step: shut both units; copy what is dirty of the old one to the origin
//! and flush it; the old mapping is durably gone; open the old unit; copy the new one to flash and
//! flush both; log the new mapping; open the new unit.
//!
//! Where the paper has holes (paper-tables 3.3), and what is done instead:
//! - a mapping is logged only after its data is durable, so recovery never rolls a record back,
//!   and what was acknowledged since cannot be lost with it (hole 1);
//! - devices are flushed before the log says so (hole 2); log blocks carry generation, sequence
//!   and checksum and are never rewritten (3, 4); an old unit stays shut until its mapping is gone
//!   (5); a full log makes a new region at any time, not only in an update (1b).
//!
//! Errors are told as they are: flash is the only one to ask. So it has no time limit either, and
//! it is never given up: whoever asks for what it does not return gets EIO, the rest is served.

use std::rc::Rc;

use larder_policy::admission::Swap;

use crate::buf::{Buf, PAGE};
use crate::cache::{Cache, SlotPin};
use crate::exec::{Ended, IoKind, MILLISECOND, Nanos, SECOND};
use crate::flash::Hold;
use crate::gate::Pass;
use crate::mutant;
use crate::request::{Errno, Request};
use crate::shard::{Core, Place};

/// How long an exchange waits for clients that are inside.
const PATIENCE: Nanos = SECOND;
/// Units that are cleaned under one flush of the origin.
const BATCH: usize = 8;

impl Core {
    /// Lets a client in, where units are exchanged.
    pub(crate) async fn pass(&self, unit: u32) -> Option<Pass> {
        if !self.choices.write.flash_owns() {
            return None;
        }
        Some(self.gate.enter(unit, &self.exec).await)
    }

    /// A write, trim or zeroing where flash owns what it holds.
    pub(crate) async fn change_owned(self: Rc<Self>, tag: u64, request: Request, kind: IoKind) {
        let place = self.place(&request);
        let pass = self.pass(place.unit).await;
        self.admission.borrow_mut().asked(u64::from(place.unit), place.len);
        let cache = self.cache();
        let owner = cache.as_ref().and_then(|c| c.resident(place.unit));
        let hit = owner.is_some();
        let result = match owner {
            Some(pin) => self.change_on_flash(pin, &place, kind, request.buf).await,
            None => self.change_on_origin(cache.as_ref(), &place, kind, request.buf).await,
        };
        drop(pass);
        self.reply(tag, result, None, hit);
    }

    /// Where the log failed before it said that the unit left, flash may still claim to own it: then
    /// nothing may be written to the origin any more.
    async fn change_on_origin(
        &self,
        cache: Option<&Rc<Cache>>,
        place: &Place,
        kind: IoKind,
        buf: Option<Buf>,
    ) -> Result<(), Errno> {
        match cache.and_then(|c| c.journal()) {
            Some(journal) => {
                journal.gone(place.unit, &self.exec).await.map_err(|()| Errno::EIO)?;
            }
            None => self.journal_write_ahead(None, None, place).await,
        }
        self.pace.foreground_began();
        let ended = self.origin_io(kind, place.offset, place.len, buf).await;
        self.pace.foreground_ended(self.exec.now());
        ended.0
    }

    async fn change_on_flash(
        &self,
        pin: SlotPin,
        place: &Place,
        kind: IoKind,
        buf: Option<Buf>,
    ) -> Result<(), Errno> {
        let cache = Rc::clone(&pin.cache);
        let block = u64::from(cache.flash.block_bytes);
        if !place.within.is_multiple_of(block) || !place.len.is_multiple_of(block) {
            return Err(Errno::EINVAL); // whoever attached the flash should have refused it
        }
        if let Some(journal) = cache.journal()
            && !mutant::is_active("dirty-not-logged")
        {
            let logged = journal.touch(pin.slot(), &place.pages, &self.exec).await;
            logged.map_err(|()| Errno::EIO)?;
        }
        self.stats.add(|c| c.flash_write_bytes += place.len);
        self.owned_io(pin, kind, place.within, place.len, buf).await.map(drop)
    }

    /// An operation on what flash owns: as long as it takes, and with its own error.
    async fn owned_io(
        &self,
        pin: SlotPin,
        kind: IoKind,
        within: u64,
        len: u64,
        buf: Option<Buf>,
    ) -> Result<Option<Buf>, Errno> {
        let cache = Rc::clone(&pin.cache);
        let (dev, offset) = (cache.flash.dev, pin.flash_offset(within));
        let hold = Hold::of_pin(pin);
        match self.exec.io(dev, kind, offset, len, buf, 0, Some(hold), None).await {
            Ended::Done(Ok(()), buf) => Ok(buf),
            Ended::Done(Err(errno), _) => {
                self.flash_failed(&cache.device, errno, kind);
                Err(errno)
            }
            Ended::TimedOut => Err(Errno::ETIMEDOUT), // has no bound
        }
    }

    /// Whether the origin has what a cached unit says: a failed read of flash may be answered from
    /// there.
    pub(crate) fn origin_has(&self, cache: &Cache, place: &Place) -> bool {
        let slot = cache.slot_of(place.unit).filter(|_| self.choices.write.flash_owns());
        let owned = cache.journal().zip(slot);
        owned.is_none_or(|(journal, slot)| !journal.is_touched(slot, &place.pages))
    }

    /// Exchanges two units, see the module. What does not work out is tried at the next update.
    pub(crate) async fn exchange(&self, cache: &Rc<Cache>, swap: Swap) {
        let Some(journal) = cache.journal().filter(|j| !j.has_failed()) else { return };
        let old = swap.outgoing.and_then(|slot| Some((slot, cache.unit_of(slot)?)));
        let units = old.map(|(_, unit)| unit).into_iter().chain([swap.incoming]).collect();
        let Some(mut shut) = self.gate.shut(units, PATIENCE, &self.exec).await else { return };
        if let Some((slot, unit)) = old {
            if self.let_go(cache, slot).await.is_err() {
                return;
            }
            shut.open(unit);
        }
        let Some(pin) = cache.insert(swap.incoming) else { return };
        let slot = pin.slot();
        let copied = self.copy_in(&pin, swap.incoming).await;
        if !copied || self.flush_copy(cache).await.is_err() {
            drop(pin);
            cache.evict_slot(slot, &self.exec);
            return;
        }
        // A write of the unit waits for its own record, which follows this one in the log.
        journal.clean(slot, swap.incoming, &self.exec);
        self.stats.add(|c| c.populations += 1);
    }

    /// What flash and origin have in common is durable on both: it counts as clean, and a unit that is
    /// clean leaves without being copied back.
    async fn flush_copy(&self, cache: &Rc<Cache>) -> Result<(), Errno> {
        if !mutant::is_active("own-before-origin-flush") {
            self.flush_origin().await?;
        }
        if mutant::is_active("own-before-flush") { Ok(()) } else { self.flush_flash(cache).await }
    }

    /// The slot's unit goes back to the origin, durably.
    async fn let_go(&self, cache: &Rc<Cache>, slot: u32) -> Result<(), Errno> {
        if !mutant::is_active("leave-without-write-back") {
            self.write_back(cache, slot).await?;
        }
        if !mutant::is_active("leave-without-origin-flush") {
            self.flush_origin().await?;
        }
        if !cache.evict_slot(slot, &self.exec) {
            return Err(Errno::EIO); // pinned: nobody should be inside
        }
        self.stats.add(|c| c.evictions += 1);
        match cache.journal() {
            Some(journal) => journal.settled(slot, &self.exec).await.map_err(|()| Errno::EIO),
            None => Ok(()),
        }
    }

    /// Copies what flash alone has of a slot's unit to the origin.
    async fn write_back(&self, cache: &Rc<Cache>, slot: u32) -> Result<(), Errno> {
        let Some(journal) = cache.journal() else { return Ok(()) };
        let Some((pin, unit)) = cache.pin_used(slot) else { return Ok(()) };
        let mask = journal.touched_regions(slot);
        let page = PAGE as u64;
        let region_bytes = journal.region_pages(0).len() as u64 * page;
        let most = (self.limits.population_io_bytes / region_bytes).clamp(1, 64) as u32;
        let mut region = 0;
        while region < u64::BITS {
            let run = (mask >> region).trailing_ones().min(most);
            if run == 0 {
                region += 1;
                continue;
            }
            let within = u64::from(journal.region_pages(region).start) * page;
            let end = u64::from(journal.region_pages(region + run - 1).end) * page;
            let start = self.shape.unit_offset(unit) + within;
            let len = end.saturating_sub(within).min(self.shape.origin_bytes.saturating_sub(start));
            region += run;
            // The unit may be short, and have fewer pages than regions.
            let len = len.min(self.shape.unit_bytes.saturating_sub(within));
            if len == 0 {
                break;
            }
            self.stats.add(|c| c.flash_read_bytes += len);
            let whole = len.next_multiple_of(u64::from(cache.flash.block_bytes));
            let buf = Some(Buf::with_len(whole as usize));
            let buf = self.owned_io(pin.clone(), IoKind::Read, within, whole, buf).await?;
            let kind = IoKind::Write { fua: false };
            self.origin_io(kind, start, len, buf).await.0?;
            self.stats.add(|c| c.write_back_bytes += len);
        }
        Ok(())
    }

    /// Copies a whole unit to its slot; nobody else changes it meanwhile.
    async fn copy_in(&self, pin: &SlotPin, unit: u32) -> bool {
        let pages = self.shape.pages_of(unit);
        let mut start = 0;
        while start < pages {
            let part = self.part(start, pages, self.limits.population_io_bytes);
            start = part.end;
            if !self.populate_part(pin, unit, part).await {
                return false;
            }
        }
        pin.all_valid(&(0..self.shape.pages_per_unit()))
    }

    /// Flushes the flash device.
    pub(crate) async fn flush_flash(&self, cache: &Rc<Cache>) -> Result<(), Errno> {
        let (dev, hold) = (cache.flash.dev, self.hold(cache, None));
        let io = self.exec.io(dev, IoKind::Flush, 0, 0, None, 0, Some(hold), None);
        match io.await {
            Ended::Done(result, _) => result,
            Ended::TimedOut => Err(Errno::ETIMEDOUT),
        }
    }

    /// Copies all that flash alone has to the origin; with `leave`, nothing stays cached. Ends when
    /// that is so, or cannot be, for all that was asked meanwhile too.
    pub(crate) async fn clear(self: Rc<Self>) {
        while self.updating.get() {
            self.exec.sleep(MILLISECOND).await;
        }
        let mut result = Ok(());
        while let (Ok(()), Some(leave)) = (result, self.clear_asked.take()) {
            if let Some(cache) = self.cache() {
                result = self.clear_cache(&cache, leave).await;
            }
            match self.logged().await {
                Ok(Some(logged)) => result = self.clear_log(&logged, leave).await,
                Ok(None) => {}
                Err(errno) => result = Err(errno),
            }
            // Until another device comes: whoever asked to leave has yet to take this one away.
            if leave {
                self.leaving.set(result.is_ok());
            }
        }
        self.clear_asked.set(None);
        self.cleared.set(result);
        self.clearing.set(false);
    }

    async fn clear_cache(&self, cache: &Rc<Cache>, leave: bool) -> Result<(), Errno> {
        let Some(journal) = cache.journal() else { return Ok(()) };
        let mut next = 0;
        while next < cache.slots() {
            let slots: Vec<u32> = if leave {
                (next..cache.slots()).filter(|s| cache.is_used(*s)).take(BATCH).collect()
            } else {
                journal.touched_from(next, BATCH)
            };
            let Some(last) = slots.last() else { break };
            let units = slots.iter().filter_map(|s| cache.unit_of(*s)).collect();
            let shut = self.gate.shut(units, PATIENCE, &self.exec).await;
            // A client that is inside for so long: others have their turn, and it is tried again.
            let Some(_shut) = shut else {
                self.exec.sleep(MILLISECOND).await;
                continue;
            };
            next = last + 1;
            if leave {
                for slot in slots {
                    self.let_go(cache, slot).await?;
                }
                continue;
            }
            for slot in &slots {
                self.write_back(cache, *slot).await?;
            }
            // What was written to flash just now is durable on the origin, and flash may still lose it.
            if mutant::is_active("clean-before-flush") {
                self.flush_origin().await?;
            } else {
                self.flush_copy(cache).await?;
            }
            let clean = |slot: u32| Some(journal.clean(slot, cache.unit_of(slot)?, &self.exec));
            if let Some(ticket) = slots.into_iter().filter_map(clean).max() {
                journal.durable(ticket, &self.exec).await.map_err(|()| Errno::EIO)?;
            }
        }
        Ok(())
    }
}
