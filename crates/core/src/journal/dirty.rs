// SPDX-License-Identifier: MIT OR Apache-2.0
//! The journal of a write-back cache: which units flash holds, and which of their regions are dirty.
//!
//! It persists the cache's [`DirtyMap`]. A unit is logged when it is whole, clean, and durable on both devices; a region
//! is logged as dirty before the first write to it. Nothing is logged by waiting: a checkpoint changes no state.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use super::Journal;
use super::checkpoint::{self, Checkpointed, Progress};
use super::log::{Log, LogFailed, Ticket};
use super::mapping::Mapping;
use super::record::Record;
use crate::cache::units::dirty_map::DirtyMap;
use crate::cache::units::table::{Evicted, Table};
use crate::context::Context;
use crate::exec::Nanos;
use crate::mutant;

/// The journal, see the module.
pub(crate) struct DirtyJournal {
    cx: Rc<Context>,
    table: Rc<Table>,
    dirty: Rc<DirtyMap>,
    mapping: Mapping,
    /// The last record that names regions of a slot as dirty, until the slot is clean.
    touched: RefCell<BTreeMap<u32, Ticket>>,
    progress: Progress,
}

impl DirtyJournal {
    pub(crate) fn new(
        cx: &Rc<Context>,
        table: &Rc<Table>,
        dirty: &Rc<DirtyMap>,
        log: Rc<Log>,
    ) -> Rc<Self> {
        Rc::new(Self {
            cx: Rc::clone(cx),
            table: Rc::clone(table),
            dirty: Rc::clone(dirty),
            mapping: Mapping::new(log),
            touched: RefCell::default(),
            progress: Progress::default(),
        })
    }

    /// What the restart found: these slots are logged.
    pub(crate) fn restore(&self, slots: impl Iterator<Item = u32>) {
        slots.for_each(|slot| self.mapping.set_logged(slot, true));
    }

    /// Starts the tasks of the journal.
    pub(crate) fn start(self: &Rc<Self>) {
        self.cx.exec.spawn(Log::commit(Rc::downgrade(&self.mapping.log)));
        self.cx.exec.spawn(checkpoint::run(Rc::downgrade(self)));
    }

    pub(crate) fn log(&self) -> &Log {
        &self.mapping.log
    }

    /// Regions of a slot became dirty in memory: waits until the log says so durably. With no new regions it waits for
    /// the record that named the slot's regions before.
    pub(crate) async fn dirtied(&self, slot: u32, new: u64) -> Result<(), LogFailed> {
        if new != 0 {
            let ticket = self.log().enqueue(Record::Touch { slot, mask: new });
            self.touched.borrow_mut().insert(slot, ticket);
        }
        let ticket = self.touched.borrow().get(&slot).copied();
        match ticket.filter(|_| !mutant::is_active("write-before-touched")) {
            Some(ticket) => self.log().durable(ticket).await,
            None => Ok(()),
        }
    }

    /// Logs that the slot holds this unit, wholly and clean; both devices hold it durably.
    pub(crate) fn clean(&self, slot: u32, unit: u32) -> Ticket {
        self.touched.borrow_mut().remove(&slot);
        self.mapping.set_logged(slot, true);
        self.log().enqueue(Record::State { slot, unit, bits: Box::default() })
    }

    /// Asks that everything be logged soon.
    pub(crate) fn hurry(&self) {
        if !self.progress.hurry.replace(true) && self.log().layout.factors > 0 {
            self.progress.save.set(true);
        }
    }

    /// Asks that the whole state be written anew.
    pub(crate) fn save(&self) {
        self.progress.save.set(true);
    }

    /// Whether everything is logged, or nothing more can be.
    pub(crate) fn is_settled(&self) -> bool {
        self.log().has_failed() || self.log().is_settled() && self.progress.is_idle()
    }
}

impl Journal for DirtyJournal {
    fn mapping(&self) -> &Mapping {
        &self.mapping
    }

    /// A unit is logged when it is whole.
    fn changed(&self, _: u32) {}

    fn removed(&self, evicted: Evicted) {
        self.touched.borrow_mut().remove(&evicted.slot);
        self.mapping.removed(evicted);
    }
}

impl Checkpointed for DirtyJournal {
    type Before = ();

    fn log(&self) -> &Log {
        &self.mapping.log
    }

    fn progress(&self) -> &Progress {
        &self.progress
    }

    fn period(&self) -> Nanos {
        self.cx.limits.checkpoint
    }

    /// Everything: what became clean is as dear as what became dirty.
    fn carries(_: &Record) -> bool {
        true
    }

    /// Dirty regions stay dirty, and a unit that is not whole stays unlogged.
    fn begin(&self) {}

    fn put_back(&self, (): ()) {}

    /// The unit and its dirty regions.
    fn entry(&self, slot: u32, out: &mut Vec<u8>) {
        let unit = self.table.unit_of(slot).filter(|_| self.mapping.is_logged(slot));
        let Some(unit) = unit else {
            return out.resize(out.len() + self.log().layout.entry_bytes(), 0);
        };
        out.extend((unit + 1).to_le_bytes());
        let forgotten = mutant::is_active("checkpoint-forgets-dirty");
        let mask = if forgotten { 0 } else { self.dirty.mask(slot) };
        out.extend(mask.to_le_bytes());
    }

    fn factors(&self, out: &mut Vec<u8>) {
        self.cx.population.factors(self.log().layout.factors, out);
    }

    /// Flash alone: what is logged as clean was flushed to the origin before.
    async fn flush_devices(&self) -> Result<(), LogFailed> {
        if mutant::is_active("checkpoint-no-flash-flush") {
            return Ok(());
        }
        self.log().flush_flash().await
    }

    async fn log_batch(&self) -> Result<bool, LogFailed> {
        Ok(false)
    }
}
