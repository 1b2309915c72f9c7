// SPDX-License-Identifier: MIT OR Apache-2.0
//! The checkpointer: logs what units hold, once it is safe to say so.
//!
//! Every period it takes units that hold more than is logged, and, when many are touched or
//! nobody wrote for a while, touched ones. It notes their valid pages (the *snapshot*), forgets
//! what was touched before, flushes the origin and then flash, and logs the noted pages except
//! those touched meanwhile. A page of the snapshot was written to both devices before the
//! flushes, so both hold it durably when the record is.
//!
//! A region is not begun while an operation of an earlier try is overdue: it could land on top.
//!
//! When half of the log is used the whole state goes to the other region in the same way; what
//! is enqueued from its snapshot on goes to both logs, and the committer switches. What was taken
//! back before and is not in the old log yet goes to the new one too: if the new payload is ever
//! lost, the old state must not lack it.

use std::rc::Rc;

use super::commit::Switch;
use super::record::{Record, clear_regions};
use super::recover::Header;
use super::{Journal, Touched};
use crate::buf::Buf;
use crate::cache::{Cache, SlotPin};
use crate::exec::IoKind;
use crate::mutant;
use crate::shard::Core;

/// Units logged at a time.
const BATCH: usize = 256;
/// Touched units are logged again when they are more than this share of the used slots ...
const TOUCHED_SHARE: u32 = 16;
/// ... and more than this many.
const TOUCHED_LEAST: u32 = 16;
/// Bytes of a payload written at a time.
const CHUNK: usize = 1 << 20;

/// A unit of a snapshot.
struct Noted {
    pin: SlotPin,
    unit: u32,
    bits: Vec<u8>,
    /// What was touched before.
    before: Option<Touched>,
    was_logged: bool,
}

impl Core {
    /// The checkpointer's life.
    pub(crate) async fn journal_checkpointer(self: Rc<Self>, cache: std::rc::Weak<Cache>) {
        loop {
            let Some(strong) = cache.upgrade() else { return };
            let Some(journal) = strong.journal() else { return };
            if journal.failed.get() || strong.closed() {
                return;
            }
            if journal.region.get().is_none() || journal.is_filling() || journal.save.get() {
                journal.save.set(false);
                journal.logging.set(true);
                let done = self.checkpoint(&strong).await;
                journal.logging.set(false);
                if done.is_err() {
                    // Every write would wait for the next try, and that one might fail too.
                    if journal.room() == 0 && !mutant::is_active("full-log-retries") {
                        journal.fail(&self.exec);
                        self.give_up(
                            &strong.device,
                            "its log is full and no new one begins".to_owned(),
                        );
                    }
                    self.exec.sleep(self.limits.checkpoint).await;
                }
                continue;
            }
            journal.logging.set(true);
            while self.log_batch(&strong).await == Ok(true) {}
            journal.logging.set(false);
            if journal.is_filling() {
                continue;
            }
            // A full log wakes it early; who waits here does not keep the cache.
            let (wait, due) = (self.limits.checkpoint, Rc::clone(&journal.checkpoint_due));
            drop(strong);
            due.wait_for(wait, &self.exec).await;
        }
    }

    /// Flushes both devices: what they were told before is durable on them. Where flash owns what it
    /// holds, what is logged as clean was flushed to the origin before.
    async fn flush_both(&self, cache: &Rc<Cache>) -> Result<(), ()> {
        let owns = cache.journal().is_some_and(|journal| journal.layout.dirty);
        if !owns
            && !mutant::is_active("checkpoint-no-origin-flush")
            && let Err(errno) = self.flush_origin().await
        {
            // A failed flush is final, so nothing can be logged any more, and a log that is full
            // would hold up every write.
            self.give_up(&cache.device, format!("the origin cannot be flushed: {errno}"));
            return Err(());
        }
        if mutant::is_active("checkpoint-no-flash-flush") {
            return Ok(());
        }
        self.flash_meta(cache, IoKind::Flush, 0, None).await
    }

    /// Logs some units; whether there are more.
    async fn log_batch(&self, cache: &Rc<Cache>) -> Result<bool, ()> {
        let Some(journal) = cache.journal() else { return Err(()) };
        let slots = journal.candidates(cache.used(), self.exec.now(), self.limits.checkpoint);
        if slots.is_empty() {
            return Ok(false);
        }
        let more = slots.len() == BATCH;
        let noted: Vec<Noted> = slots.iter().filter_map(|s| cache.note(*s)).collect();
        let flushed = self.flush_both(cache).await;
        let mut ticket = 0;
        for note in noted {
            let slot = note.pin.slot();
            if flushed.is_err() {
                journal.forget(slot, &note);
                continue;
            }
            let mut bits = note.bits;
            let now = journal.touched.borrow().get(&slot).map_or(0, |t| t.mask);
            if !mutant::is_active("checkpoint-over-write") {
                clear_regions(&mut bits, now, &journal.layout);
            }
            let record = Record::State { slot, unit: note.unit, bits: bits.into() };
            ticket = journal.enqueue(record, &self.exec);
        }
        flushed?;
        // Nobody waits here until that is durable: when the log is full, the room for it is made
        // by this very task, with a checkpoint.
        if mutant::is_active("full-log-waits") {
            journal.durable(ticket, &self.exec).await?;
        }
        Ok(more)
    }

    /// Writes the whole state to the other region and goes on there.
    async fn checkpoint(&self, cache: &Rc<Cache>) -> Result<(), ()> {
        let Some(journal) = cache.journal() else { return Err(()) };
        if journal.is_making() {
            return Err(());
        }
        let in_place = mutant::is_active("region-in-place");
        let region = journal.region.get().map_or(0, |r| if in_place { r } else { 1 - r });
        let generation = journal.newest.get() + 1;
        journal.newest.set(generation);
        let follows = journal.tail.get().generation;
        let header = Header { volume: journal.volume, generation, follows, payload_crc: None };
        self.journal_header(cache, region, &header).await?;
        journal.queue.borrow_mut().note_snapshot(journal.layout.dirty);
        let before = cache.log_all();
        let written = self.write_payload(cache, region).await;
        let flushed = match written {
            Ok(crc) => self.flush_both(cache).await.map(|()| crc),
            Err(()) => Err(()),
        };
        let Ok(payload_crc) = flushed else {
            journal.queue.borrow_mut().since = None;
            journal.put_back(before);
            return Err(());
        };
        *journal.switch.borrow_mut() = Some(Switch { region, generation, payload_crc });
        journal.work.set(&self.exec);
        journal.switched.wait(&self.exec).await;
        if journal.failed.get() { Err(()) } else { Ok(()) }
    }

    async fn write_payload(&self, cache: &Rc<Cache>, region: u8) -> Result<u32, ()> {
        let Some(journal) = cache.journal() else { return Err(()) };
        let (layout, start) = (journal.layout, journal.layout.payload(region));
        let entry = layout.entry_bytes();
        let mut digest = crate::checksum::Digest::default();
        let (mut slot, mut at, mut pending) = (0, 0, Vec::with_capacity(CHUNK + entry));
        while at < layout.payload_bytes {
            while pending.len() < CHUNK && slot < layout.slots {
                cache.entry(slot, &mut pending);
                slot += 1;
            }
            if slot == layout.slots {
                slot += 1;
                self.factors(layout.factors, &mut pending);
                pending.resize((layout.payload_bytes - at) as usize, 0);
            }
            let len = pending.len().min(CHUNK);
            let rest = pending.split_off(len);
            digest.update(&pending);
            let (kind, buf) = (IoKind::Write { fua: false }, Buf::copy_of(&pending));
            self.flash_meta(cache, kind, start + at, Some(buf)).await?;
            at += len as u64;
            pending = rest;
        }
        Ok(digest.finish())
    }

    /// Appends the reference factors of so many units.
    fn factors(&self, units: u32, out: &mut Vec<u8>) {
        let mut admission = self.admission.borrow_mut();
        let Some(periodic) = admission.periodic().filter(|_| units > 0) else { return };
        out.extend(periodic.factors().iter().flat_map(|rf| rf.to_le_bytes()));
    }
}

impl Journal {
    /// Slots whose units are to be logged now.
    fn candidates(&self, used: u32, now: u64, period: u64) -> Vec<u32> {
        let touched = self.touched.borrow();
        let quiet = now.saturating_sub(self.last_write.get()) > period || self.hurry.get();
        let many = touched.len() as u32 > (used / TOUCHED_SHARE).max(TOUCHED_LEAST);
        let mut changed = self.changed.borrow_mut();
        let mut slots: Vec<u32> =
            changed.iter().filter(|s| !touched.contains_key(s)).copied().take(BATCH).collect();
        // What flash alone has is not logged as clean by waiting.
        if !self.layout.dirty && (quiet || many) {
            slots.extend(touched.keys().copied().take(BATCH - slots.len()));
        }
        for slot in &slots {
            changed.remove(slot);
        }
        slots
    }

    /// A noted unit is not going to be logged.
    fn forget(&self, slot: u32, note: &Noted) {
        self.changed.borrow_mut().insert(slot);
        self.set_logged(slot, note.was_logged);
        if let Some(before) = note.before {
            let mut touched = self.touched.borrow_mut();
            touched.entry(slot).and_modify(|t| t.mask |= before.mask).or_insert(before);
        }
    }

    fn put_back(&self, before: Vec<(u32, Option<Touched>, bool)>) {
        for (slot, was_touched, was_logged) in before {
            if !self.is_logged(slot) {
                continue; // it left meanwhile
            }
            self.set_logged(slot, was_logged);
            self.changed.borrow_mut().insert(slot);
            if let Some(before) = was_touched {
                let mut touched = self.touched.borrow_mut();
                touched.entry(slot).and_modify(|t| t.mask |= before.mask).or_insert(before);
            }
        }
    }
}

impl Cache {
    /// Notes what a slot holds; from now on it counts as logged and untouched.
    fn note(self: &Rc<Self>, slot: u32) -> Option<Noted> {
        let journal = self.journal()?;
        let (pin, unit) = self.pin_used(slot)?;
        let mut bits = Vec::with_capacity(journal.layout.entry_bytes());
        self.valid_bits(slot, &mut bits);
        let (before, was_logged) =
            (journal.touched.borrow_mut().remove(&slot), journal.is_logged(slot));
        journal.set_logged(slot, true);
        Some(Noted { pin, unit, bits, before, was_logged })
    }

    /// Every unit counts as logged and untouched from now on; what they were before. But those whose
    /// slot is still to be dropped: the new log may begin with that, and would drop them too.
    fn log_all(&self) -> Vec<(u32, Option<Touched>, bool)> {
        let Some(journal) = self.journal() else { return Vec::new() };
        if journal.layout.dirty {
            return Vec::new(); // what is dirty stays so, and what is not whole stays unlogged
        }
        let mut touched = journal.touched.take();
        journal.changed.borrow_mut().clear();
        let dropped = journal.dropped.borrow();
        let settled = |slot: &u32| self.is_used(*slot) && !dropped.contains_key(slot);
        let before = (0..self.slots()).filter(settled).map(|slot| {
            let was_logged = journal.is_logged(slot);
            journal.set_logged(slot, true);
            (slot, touched.remove(&slot), was_logged)
        });
        before.collect()
    }

    /// The slot's entry of a payload: what it holds, without what was touched since the snapshot.
    fn entry(&self, slot: u32, out: &mut Vec<u8>) {
        let Some(journal) = self.journal() else { return };
        let at = out.len();
        let unit = self.unit_of(slot).filter(|_| journal.is_logged(slot));
        let Some(unit) = unit else {
            return out.resize(at + journal.layout.entry_bytes(), 0);
        };
        out.extend((unit + 1).to_le_bytes());
        let mask = journal.touched_regions(slot);
        if journal.layout.dirty {
            let forgotten = mutant::is_active("checkpoint-forgets-dirty");
            return out.extend((if forgotten { 0 } else { mask }).to_le_bytes());
        }
        self.valid_bits(slot, out);
        if let Some(bits) = out.get_mut(at + 4..) {
            clear_regions(bits, mask, &journal.layout);
        }
    }
}
