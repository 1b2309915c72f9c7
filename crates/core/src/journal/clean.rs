// SPDX-License-Identifier: MIT OR Apache-2.0
//! The journal of a clean cache: which pages of which units equal the origin.
//!
//! Every period the checkpointer takes units with valid pages that are not logged. If many units are touched, or no client
//! wrote for a period, it takes touched units too. It copies their valid bits (the *snapshot*), clears their touched
//! masks, flushes the origin and then flash, and logs the valid bits except those of regions touched meanwhile. A page of
//! the snapshot was written to both devices before the flushes, so it is durable on both when the record is.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use super::base::{Base, Journal};
use super::checkpoint::{self, Checkpointed};
use super::entry::clear_regions;
use super::log::{Log, LogFailed, Ticket};
use super::record::Record;
use crate::cache::units::table::{Evicted, SlotPin, Table};
use crate::context::Context;
use crate::exec::Nanos;
use crate::mutant;
use crate::pages::{Pages, Regions};

/// Units logged at a time.
const BATCH: usize = 256;
/// Touched units are logged again when they are more than this share of the used slots ...
const TOUCHED_SHARE: u32 = 16;
/// ... and more than this many.
const TOUCHED_LEAST: u32 = 16;

/// Regions of a unit that were written since it was logged, and the ticket of the last touched record.
#[derive(Clone, Copy)]
struct Touched {
    mask: u64,
    ticket: Ticket,
}

/// The journal of a clean cache.
pub(crate) struct CleanJournal {
    base: Base,
    regions: Regions,
    touched: RefCell<BTreeMap<u32, Touched>>,
    /// Slots with valid pages that are not logged.
    changed: RefCell<BTreeSet<u32>>,
    last_write: Cell<Nanos>,
}

/// The snapshot of a unit.
struct Snapshot {
    pin: SlotPin,
    unit: u32,
    bits: Vec<u8>,
    before: Before,
}

/// The state of a slot before a snapshot.
pub(crate) struct Before {
    slot: u32,
    touched: Option<Touched>,
    was_logged: bool,
}

impl CleanJournal {
    /// Starts the journal's tasks. `restored`: slots whose units were recovered.
    pub(crate) fn start(
        cx: &Rc<Context>,
        table: &Rc<Table>,
        log: Rc<Log>,
        restored: impl Iterator<Item = u32>,
    ) -> Rc<Self> {
        cx.exec.spawn(Log::commit(Rc::downgrade(&log)));
        let journal = Rc::new(Self {
            base: Base::new(cx, table, log, restored),
            regions: Regions::of(cx.shape.pages_per_unit()),
            touched: RefCell::default(),
            changed: RefCell::default(),
            last_write: Cell::new(0),
        });
        cx.exec.spawn(checkpoint::run(Rc::downgrade(&journal)));
        journal
    }

    fn log(&self) -> &Log {
        self.base.log()
    }

    /// Logs a write to these pages of a slot durably, before it reaches a device: recovery finds their regions invalid.
    pub(crate) async fn touch(&self, slot: u32, pages: &Pages) -> Result<(), LogFailed> {
        self.last_write.set(self.base.cx.exec.now());
        if !self.base.mapping.is_logged(slot) {
            return Ok(());
        }
        let mask = self.regions.mask_of(pages);
        let known = self.touched.borrow().get(&slot).copied();
        let ticket = match known {
            Some(known) if known.mask & mask == mask => known.ticket,
            known => {
                let ticket = self.log().enqueue(Record::Touch { slot, mask });
                let mask = mask | known.map_or(0, |k| k.mask);
                self.touched.borrow_mut().insert(slot, Touched { mask, ticket });
                ticket
            }
        };
        if mutant::is_active("write-before-touched") {
            return Ok(());
        }
        self.log().durable(ticket).await
    }

    fn touched_mask(&self, slot: u32) -> u64 {
        self.touched.borrow().get(&slot).map_or(0, |t| t.mask)
    }

    /// The next slots to log.
    fn candidates(&self) -> Vec<u32> {
        let touched = self.touched.borrow();
        let idle = self.base.cx.exec.now().saturating_sub(self.last_write.get());
        let quiet = idle > self.base.cx.limits.checkpoint || self.base.progress.hurry.get();
        let most = (self.base.table.used() / TOUCHED_SHARE).max(TOUCHED_LEAST);
        let many = touched.len() as u32 > most;
        let mut changed = self.changed.borrow_mut();
        let mut slots: Vec<u32> =
            changed.iter().filter(|s| !touched.contains_key(s)).copied().take(BATCH).collect();
        if quiet || many {
            slots.extend(touched.keys().copied().take(BATCH - slots.len()));
        }
        for slot in &slots {
            changed.remove(slot);
        }
        slots
    }

    /// Takes a slot's snapshot: it counts as logged and untouched.
    fn snapshot(&self, slot: u32) -> Option<Snapshot> {
        let (pin, unit) = self.base.table.pin_used(slot)?;
        let mut bits = Vec::with_capacity(self.log().layout.entry_bytes());
        self.base.table.valid_bits(slot, &mut bits);
        let touched = self.touched.borrow_mut().remove(&slot);
        let before = Before { slot, touched, was_logged: self.base.mapping.is_logged(slot) };
        self.base.mapping.set_logged(slot, true);
        Some(Snapshot { pin, unit, bits, before })
    }

    /// Cancels a slot's snapshot.
    fn cancel(&self, before: Before) {
        let Before { slot, touched, was_logged } = before;
        self.changed.borrow_mut().insert(slot);
        self.base.mapping.set_logged(slot, was_logged);
        if let Some(before) = touched {
            let mut touched = self.touched.borrow_mut();
            touched.entry(slot).and_modify(|t| t.mask |= before.mask).or_insert(before);
        }
    }
}

impl Journal for CleanJournal {
    fn base(&self) -> &Base {
        &self.base
    }

    fn is_settled(&self) -> bool {
        let nothing = self.changed.borrow().is_empty() && self.touched.borrow().is_empty();
        self.log().has_failed() || nothing && self.base.is_settled()
    }

    fn changed(&self, slot: u32) {
        self.changed.borrow_mut().insert(slot);
    }

    fn removed(&self, evicted: Evicted) {
        self.changed.borrow_mut().remove(&evicted.slot);
        self.touched.borrow_mut().remove(&evicted.slot);
        self.base.mapping.removed(evicted);
    }
}

impl Checkpointed for CleanJournal {
    type Before = Vec<Before>;

    /// All invalidations. The next payload includes the pending states.
    fn carries(record: &Record) -> bool {
        !matches!(record, Record::State { .. })
    }

    /// All units, except where the drop of the slot's old mapping is pending: that record may come first in the next log,
    /// and would drop the new unit.
    fn begin(&self) -> Vec<Before> {
        let mut touched = self.touched.take();
        self.changed.borrow_mut().clear();
        let settled = |slot: &u32| {
            self.base.table.unit_of(*slot).is_some() && !self.base.mapping.is_dropping(*slot)
        };
        let before = (0..self.base.table.slots()).filter(settled).map(|slot| {
            let was_logged = self.base.mapping.is_logged(slot);
            self.base.mapping.set_logged(slot, true);
            Before { slot, touched: touched.remove(&slot), was_logged }
        });
        before.collect()
    }

    fn restore(&self, before: Vec<Before>) {
        // A unit that was evicted meanwhile is not logged.
        let kept = before.into_iter().filter(|before| self.base.mapping.is_logged(before.slot));
        kept.for_each(|before| self.cancel(before));
    }

    /// The unit and its valid pages, without those touched since the snapshot.
    fn entry(&self, slot: u32, out: &mut Vec<u8>) {
        let (layout, at) = (&self.log().layout, out.len());
        let unit = self.base.table.unit_of(slot).filter(|_| self.base.mapping.is_logged(slot));
        let Some(unit) = unit else {
            return out.resize(at + layout.entry_bytes(), 0);
        };
        out.extend((unit + 1).to_le_bytes());
        self.base.table.valid_bits(slot, out);
        if let Some(bits) = out.get_mut(at + 4..) {
            clear_regions(bits, self.touched_mask(slot), self.regions, layout.pages);
        }
    }

    async fn flush_devices(&self) -> Result<(), LogFailed> {
        if !mutant::is_active("checkpoint-no-origin-flush")
            && let Err(errno) = self.base.cx.origin.make_durable().await
        {
            // A failed flush is final: nothing more can be logged, and every write would wait for room in a full log.
            self.log().flash.fail(format!("the origin cannot be flushed: {errno}"));
            return Err(LogFailed);
        }
        if mutant::is_active("checkpoint-no-flash-flush") {
            return Ok(());
        }
        self.log().flush_flash().await
    }

    async fn log_batch(&self) -> Result<bool, LogFailed> {
        let slots = self.candidates();
        if slots.is_empty() {
            return Ok(false);
        }
        let more = slots.len() == BATCH;
        let snapshots: Vec<Snapshot> =
            slots.iter().filter_map(|slot| self.snapshot(*slot)).collect();
        let flushed = self.flush_devices().await;
        let mut ticket = 0;
        for Snapshot { pin, unit, mut bits, before } in snapshots {
            let slot = pin.slot();
            if flushed.is_err() {
                self.cancel(before);
                continue;
            }
            if !mutant::is_active("checkpoint-over-write") {
                let (touched, pages) = (self.touched_mask(slot), self.log().layout.pages);
                clear_regions(&mut bits, touched, self.regions, pages);
            }
            ticket = self.log().enqueue(Record::State { slot, unit, bits: bits.into() });
        }
        flushed?;
        // No wait until that is durable: this task makes room in a full log, by a checkpoint.
        if mutant::is_active("full-log-waits") {
            self.log().durable(ticket).await?;
        }
        Ok(more)
    }
}
