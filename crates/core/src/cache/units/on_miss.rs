// SPDX-License-Identifier: MIT OR Apache-2.0
//! Units that a miss admits under write-back (flashcache and bcache in SCE 4.4): units of a page.
//!
//! **A write that covers a unit**: shut the unit; take a slot; write flash; answer. It waits for no record of the unit itself. The next FLUSH
//! flushes flash and then logs the unit as dirty, so recovery finds no slot whose data is not durable. A crash before that
//! leaves the origin's older bytes, as the loss of a disk's write cache does.
//!
//! **A read**: claim the page, read the origin, answer; then, unless another claim conflicts, shut the unit, take a slot and
//! write flash. It is logged as clean with the next FLUSH, or within the period of the journal.
//!
//! **A slot** is free, or that of a clean unit, whose drop is durable before the slot is written. No client waits for a
//! write-back: a miss that finds dirty victims only is served by the origin, and the syncer learns what eviction wants.

use std::rc::Rc;

use larder_policy::admission::Sequence;

use super::gate::Pass;
use super::table::SlotPin;
use super::write_back::{PATIENCE, WriteBack};
use crate::buf::Buf;
use crate::cache::pass_through;
use crate::claims::Claim;
use crate::exec::{IoKind, MILLISECOND};
use crate::journal::{Journal as _, Log, LogFailed};
use crate::mutant;
use crate::origin::Use;
use crate::pages::PageSet;
use crate::population::demand::Inline;
use crate::request::Errno;
use crate::runs::Tag;
use crate::shape::Place;

/// Dirty victims that a search for a slot passes.
const PASSED: usize = 8;

impl WriteBack {
    /// A read of what is not on flash.
    pub(super) async fn miss(
        &self,
        tag: Tag,
        (place, passive): (&Place, bool),
        buf: Option<Buf>,
        pass: Pass,
    ) {
        let cx = &self.units.cx;
        let inline = match passive {
            true => None,
            false => {
                let missed = (place.unit, Sequence::None);
                cx.population.missed(missed, self.units.free_ratio(), &cx.exec)
            }
        };
        // Of several reads of a page at the same time the first admits it. None does if it is on flash, but could not be read there:
        // changes of a cached unit make no claim, and it may be evicted before the admission.
        let is_first = || !cx.claims.any(u64::from(place.unit), &place.pages);
        let is_missing = || {
            self.units.table.slot_of(place.unit).is_none() || mutant::is_active("admitted-again")
        };
        let inline = inline
            .filter(|_| cx.may_admit() && self.may_admit(place) && is_first() && is_missing());
        let Some(Inline { client_waits }) = inline else {
            return pass_through::read_origin(cx, tag, place, buf).await;
        };
        let claim = cx.claims.claim(u64::from(place.unit), place.pages.clone());
        let buf = buf.unwrap_or_else(|| Buf::with_len(place.len as usize));
        let read = cx.origins.read(Use::Client, place.offset, place.len, buf).await;
        drop(pass);
        let data = match read {
            Ok(data) => data,
            Err(errno) => return cx.reply(tag, Err(errno), None, false),
        };
        let copy = Buf::copy_of(&data);
        if client_waits {
            self.admit_read(place, copy, claim).await;
            cx.reply(tag, Ok(()), Some(data), false);
        } else {
            cx.reply(tag, Ok(()), Some(data), false);
            self.admit_read(place, copy, claim).await;
        }
    }

    /// Whether a request may admit its unit: it covers the whole unit, and flash works.
    fn may_admit(&self, place: &Place) -> bool {
        let (units, block) = (&self.units, self.units.block_bytes());
        let whole = place.within == 0 && place.len == units.cx.shape.unit_bytes;
        let works = units.flash.usable()
            && !units.flash.is_failing()
            && !units.log().is_some_and(Log::has_failed);
        whole && place.len.is_multiple_of(block) && self.admits.get() && works
    }

    /// Whether a change of a unit that is not cached admits it.
    pub(super) fn admits_write(&self, place: &Place, kind: IoKind) -> bool {
        let writes = matches!(kind, IoKind::Write { .. });
        writes
            && self.units.cx.population.admits_write()
            && self.units.cx.may_admit()
            && self.syncer_of(place.unit).admits(&self.units.table)
            && self.may_admit(place)
    }

    /// Writes a unit to a slot; to where it is if it was admitted meanwhile, or there is no slot.
    pub(super) async fn admit_write(
        &self,
        place: &Place,
        kind: IoKind,
        buf: Option<Buf>,
    ) -> Result<(), Errno> {
        let cx = &self.units.cx;
        let shut = self.gate.shut(vec![place.unit], PATIENCE, &cx.exec).await;
        // A change of the page that began before may still arrive on the origin, and must not follow the syncer's copy.
        let is_alone = !cx.claims.any(u64::from(place.unit), &place.pages);
        if shut.is_some()
            && is_alone
            && self.admits.get()
            && self.units.table.slot_of(place.unit).is_none()
            && let Some(pin) = self.new_slot(place.unit)
        {
            // A read of the origin that began before must not be admitted.
            let _claim = cx.claims.claim(u64::from(place.unit), place.pages.clone());
            self.mark((pin.slot(), place.unit), &place.pages);
            return self.write_slot(pin, place, buf).await;
        }
        drop(shut);
        let pass = self.gate.enter(place.unit, &cx.exec).await;
        self.change_inside(pass, place, kind, buf).await
    }

    /// Admits a unit that no client reads.
    pub(super) async fn admit(&self, unit: u32) {
        let cx = &self.units.cx;
        let (offset, pages) = (cx.shape.unit_offset(unit), 0..cx.shape.pages_of(unit));
        let len = cx.shape.unit_bytes.min(cx.shape.origin_bytes - offset);
        let place = Place { unit, within: 0, offset, len, pages };
        let in_use = cx.claims.any(u64::from(unit), &place.pages);
        if in_use || !self.may_admit(&place) || self.units.table.slot_of(unit).is_some() {
            return;
        }
        let claim = cx.claims.claim(u64::from(unit), place.pages.clone());
        let buf = Buf::with_len(len as usize);
        if let Ok(data) = cx.origins.read(Use::Population, offset, len, buf).await {
            self.admit_read(&place, data, claim).await;
        }
    }

    /// Admits what a read returned.
    async fn admit_read(&self, place: &Place, data: Buf, claim: Rc<Claim>) {
        let cx = &self.units.cx;
        let shut = self.gate.shut(vec![place.unit], PATIENCE, &cx.exec).await;
        let is_newest = claim.conflicts().is_empty() || mutant::is_active("admitted-over-write");
        let may = shut.is_some() && is_newest && self.may_admit(place);
        if !may || self.units.table.slot_of(place.unit).is_some() {
            return;
        }
        let Some(pin) = self.new_slot(place.unit) else { return };
        cx.stats.add(|c| {
            c.populations += 1;
            c.population_bytes += place.len;
        });
        let _ = self.write_slot(pin, place, Some(data)).await;
    }

    /// Writes a new unit to its slot, while its gate is shut.
    async fn write_slot(&self, pin: SlotPin, place: &Place, buf: Option<Buf>) -> Result<(), Errno> {
        let (slot, kind) = (pin.slot(), IoKind::Write { fua: false });
        let written = match self.old_unit_dropped(slot).await {
            Ok(()) => self.slots.change(pin.clone(), kind, (place.within, place.len), buf).await,
            Err(LogFailed) => Err(Errno::EIO),
        };
        if written.is_err() {
            drop(pin);
            // A verification may hold the page.
            while self.units.table.slot_of(place.unit) == Some(slot) {
                self.slots.writes.unheld(slot).await;
                if !self.evict(slot) {
                    self.units.cx.exec.sleep(MILLISECOND).await;
                }
            }
            return written;
        }
        pin.make_valid(&place.pages, &PageSet::default());
        if let Some(journal) = &self.units.journal {
            journal.admit(slot);
        }
        Ok(())
    }

    async fn old_unit_dropped(&self, slot: u32) -> Result<(), LogFailed> {
        match &self.units.journal {
            Some(journal) => journal.base().mapping.slot_dropped(slot).await,
            None => Ok(()),
        }
    }

    /// A slot for a unit: a free one, or that of a clean unit.
    fn new_slot(&self, unit: u32) -> Option<SlotPin> {
        if let Some(pin) = self.units.insert(unit) {
            return Some(pin);
        }
        if self.units.table.is_closed(unit) {
            return None; // evicts nothing for it
        }
        let mut passed = Vec::new();
        for _ in 0..self.units.table.evicts_together() {
            let Some(slot) = self.clean_victim(unit, &mut passed) else { break };
            if self.evict(slot) {
                self.units.cx.stats.add(|c| c.evictions += 1);
            }
        }
        self.units.insert(unit)
    }

    /// The slot of a clean unit to evict for another. The syncer learns which dirty ones come before it.
    fn clean_victim(&self, unit: u32, passed: &mut Vec<u32>) -> Option<u32> {
        let (table, exec) = (&self.units.table, &self.units.cx.exec);
        while passed.len() < PASSED {
            let may_evict = |slot: u32, owner: u32| {
                let is_used = self.gate.is_busy(owner) || self.slots.writes.is_held(slot);
                !is_used && !passed.contains(&slot)
            };
            let slot = table.victim_for(unit, &may_evict)?;
            if self.dirty.mask(slot) == 0 || mutant::is_active("evicts-dirty") {
                return Some(slot);
            }
            passed.push(slot);
            let owner = table.unit_of(slot)?;
            self.syncer_of(owner).wants(owner, exec);
            if table.is_held(owner) {
                table.renew(slot); // the next search begins with others
            }
        }
        None
    }
}
