// SPDX-License-Identifier: MIT OR Apache-2.0
//! The journal of a write-back cache: which units flash holds, and which of their regions are dirty.
//!
//! It persists the cache's [`DirtyMap`]. A unit is logged when it is wholly cached, clean, and durable on both devices; a
//! region is logged as dirty before the first write to it. A checkpoint does not change this state.
//!
//! A unit that a miss *admits* is logged later: when its data was made durable by a flush of flash, and of the origin if it is
//! clean. Until then recovery does not find it, and its writes need no record. It is logged with its dirty regions in one
//! block, so that no crash makes it clean.
//!
//! **Without a dirty log** (PRWC 2.8.4, its second choice) a unit is logged as wholly dirty as soon as it is cached, so that no
//! later write waits for a record. After a restart all units count as dirty, and are written back before they are evicted. A run
//! that begins with the state of a run with a dirty log logs dirty regions until its first checkpoint, which has all units as
//! wholly dirty, is durable. So each state on flash is right whichever kind of run reads it.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use super::base::{Base, Journal};
use super::checkpoint::{self, Checkpointed};
use super::log::{Log, LogFailed, Ticket};
use super::record::{HEADER, Record};
use crate::cache::units::dirty_flash::DirtyFlash;
use crate::cache::units::dirty_map::DirtyMap;
use crate::cache::units::mixed::Left;
use crate::cache::units::table::{Evicted, Table};
use crate::context::Context;
use crate::exec::WaitList;
use crate::mutant;
use crate::pages::Pages;
use crate::request::Errno;

/// The journal of a write-back cache.
pub(crate) struct DirtyJournal {
    base: Base,
    dirty: Rc<DirtyMap>,
    slots: Rc<DirtyFlash>,
    /// Ticket of the last record that marks regions of a slot as dirty, until the slot is clean.
    touched: RefCell<BTreeMap<u32, Ticket>>,
    /// Slots whose units were admitted and are not logged, each with a number of its own.
    admitted: RefCell<BTreeMap<u32, u64>>,
    /// How many units were admitted.
    admissions: Cell<u64>,
    /// Ticket of the last record of an admitted unit.
    kept: Cell<Ticket>,
    /// A FLUSH logs a part of them; the others wait.
    keeping: Cell<bool>,
    kept_one: WaitList,
    /// Whether dirty regions are logged.
    dirty_log: bool,
    /// Whether the state on flash has all units as wholly dirty.
    all_dirty: Cell<bool>,
}

/// Units in a block of the log, each with a state and its dirty regions.
fn pairs_in_block(block_bytes: u64) -> usize {
    let pair = Record::Touch { slot: 0, mask: 0 }.bytes()
        + Record::State { slot: 0, unit: 0, bits: Box::default() }.bytes();
    (block_bytes as usize - HEADER) / pair
}

impl DirtyJournal {
    /// Starts the journal's tasks. `restored`: slots whose units were recovered.
    pub(crate) fn start(
        cx: &Rc<Context>,
        table: &Rc<Table>,
        ((dirty, slots), dirty_log): ((Rc<DirtyMap>, Rc<DirtyFlash>), bool),
        log: Rc<Log>,
        restored: impl Iterator<Item = u32>,
    ) -> Rc<Self> {
        cx.exec.spawn(Log::commit(Rc::downgrade(&log)));
        let journal = Rc::new(Self {
            base: Base::new(cx, table, log, restored),
            dirty,
            slots,
            touched: RefCell::default(),
            admitted: RefCell::default(),
            admissions: Cell::new(0),
            kept: Cell::new(0),
            keeping: Cell::new(false),
            kept_one: WaitList::default(),
            dirty_log,
            all_dirty: Cell::new(!dirty_log && mutant::is_active("all-dirty-early")),
        });
        if !dirty_log {
            journal.base.save();
        }
        cx.exec.spawn(checkpoint::run(Rc::downgrade(&journal)));
        journal
    }

    fn log(&self) -> &Log {
        self.base.log()
    }

    /// Logs regions that became dirty, and waits until all records of the slot's dirty regions are durable.
    pub(crate) async fn dirtied(&self, slot: u32, new: u64) -> Result<(), LogFailed> {
        if self.is_admitted(slot) {
            return Ok(()); // its first record will have the region
        }
        if new != 0 && !self.all_dirty.get() {
            let ticket = self.log().enqueue(Record::Touch { slot, mask: new });
            self.touched.borrow_mut().insert(slot, ticket);
        }
        let ticket = self.touched.borrow().get(&slot).copied();
        let Some(ticket) = ticket.filter(|_| !mutant::is_active("write-before-touched")) else {
            return Ok(());
        };
        self.log().durable(ticket).await?;
        // No further record is waited for.
        let is_last = self.touched.borrow().get(&slot) == Some(&ticket);
        if is_last {
            self.touched.borrow_mut().remove(&slot);
        }
        Ok(())
    }

    /// A slot holds a unit that a miss admitted. Its write has ended.
    pub(crate) fn admit(&self, slot: u32) {
        let number = self.admissions.get() + 1;
        self.admissions.set(number);
        self.admitted.borrow_mut().insert(slot, number);
    }

    /// Whether a slot holds such a unit that is not logged.
    pub(crate) fn is_admitted(&self, slot: u32) -> bool {
        self.admitted.borrow().contains_key(&slot)
    }

    /// The units that were admitted and are not logged.
    pub(crate) fn admitted(&self) -> Vec<(u32, u64)> {
        self.admitted.borrow().iter().map(|(slot, number)| (*slot, *number)).collect()
    }

    /// Logs those of the units that still are where they were, and waits until all that were admitted before are logged durably.
    /// Since the list was made, flash was flushed without a loss; the origin too, for those that are clean. A part of the log
    /// at a time: more would not fit into the log of a checkpoint in progress.
    pub(crate) async fn keep(&self, admitted: &[(u32, u64)]) -> Result<(), Errno> {
        if mutant::is_active("flush-forgets-admitted") {
            return Ok(());
        }
        let durable =
            async || self.log().durable(self.kept.get()).await.map_err(|LogFailed| Errno::EIO);
        for part in admitted.chunks(self.at_a_time()) {
            while self.keeping.replace(true) {
                self.kept_one.wait(&self.base.cx.exec).await;
            }
            self.log_admitted(part);
            let done = durable().await;
            self.keeping.set(false);
            self.kept_one.wake_all(&self.base.cx.exec);
            done?;
        }
        durable().await
    }

    /// Units that are logged at a time: their records take a quarter of the log.
    fn at_a_time(&self) -> usize {
        let layout = &self.log().layout;
        if mutant::is_active("admitted-beyond-the-log") {
            return usize::MAX;
        }
        (layout.log_blocks as usize / 4).max(1) * pairs_in_block(layout.block_bytes)
    }

    fn log_admitted(&self, admitted: &[(u32, u64)]) {
        for (slot, number) in admitted {
            let is_same = self.admitted.borrow().get(slot) == Some(number);
            let Some(unit) = self.base.table.unit_of(*slot).filter(|_| is_same) else { continue };
            self.admitted.borrow_mut().remove(slot);
            let mask = if self.dirty_log { self.dirty.mask(*slot) } else { self.all() };
            self.base.mapping.set_logged(*slot, true);
            let state = Record::State { slot: *slot, unit, bits: Box::default() };
            self.kept.set(self.log().enqueue(state));
            if mask != 0 {
                self.kept.set(self.log().enqueue(Record::Touch { slot: *slot, mask }));
                self.touched.borrow_mut().insert(*slot, self.kept.get());
            }
        }
    }

    /// All regions of a unit.
    fn all(&self) -> u64 {
        let pages = self.log().layout.pages;
        self.dirty.regions().mask_of(&(0..pages))
    }

    /// Logs that the slot holds this unit, wholly and clean. The caller has made it durable on both devices.
    pub(crate) fn clean(&self, slot: u32, unit: u32) -> Ticket {
        self.touched.borrow_mut().remove(&slot);
        self.admitted.borrow_mut().remove(&slot);
        self.base.mapping.set_logged(slot, true);
        let ticket = self.log().enqueue(Record::State { slot, unit, bits: Box::default() });
        if self.dirty_log || mutant::is_active("admitted-as-clean") {
            return ticket;
        }
        let ticket = self.log().enqueue(Record::Touch { slot, mask: self.all() });
        self.touched.borrow_mut().insert(slot, ticket);
        ticket
    }
}

impl Journal for DirtyJournal {
    fn base(&self) -> &Base {
        &self.base
    }

    fn is_settled(&self) -> bool {
        // What flash has lost cannot be logged.
        let lost = |slot: &u32| self.slots.writes.has_lost(*slot);
        self.admitted.borrow().keys().all(lost) && self.base.is_settled()
    }

    /// Nothing: [`clean`](Self::clean) and [`keep`](Self::keep) log units.
    fn changed(&self, _: u32, _: &Pages) {}

    fn removed(&self, evicted: Evicted) {
        self.touched.borrow_mut().remove(&evicted.slot);
        self.admitted.borrow_mut().remove(&evicted.slot);
        self.base.mapping.removed(evicted);
    }

    /// Nothing: only a clean cache has mixed slots.
    fn left(&self, _: Left) {}
}

impl Checkpointed for DirtyJournal {
    /// Flushes of flash that had failed.
    type Before = u64;

    fn carries(_: &Record) -> bool {
        true
    }

    /// Nothing: dirty regions stay dirty, and partially cached units are not logged.
    fn begin(&self) -> u64 {
        self.slots.writes.doubts()
    }

    fn restore(&self, _: u64) {}

    /// The unit and its dirty regions.
    fn entry(&self, slot: u32, out: &mut Vec<u8>) {
        let unit = self.base.table.unit_of(slot).filter(|_| self.base.mapping.is_logged(slot));
        let Some(unit) = unit else {
            return out.resize(out.len() + self.log().layout.entry_bytes(), 0);
        };
        out.extend((unit + 1).to_le_bytes());
        let forgotten = mutant::is_active("checkpoint-forgets-dirty");
        let mask = match self.dirty_log {
            _ if forgotten => 0,
            true => self.dirty.mask(slot),
            false => self.all(),
        };
        out.extend(mask.to_le_bytes());
    }

    /// Flash only: clean units were flushed to the origin before they were logged. A flush that failed meanwhile may have
    /// lost the payload.
    async fn flush_devices(&self, before: &mut u64) -> Result<bool, LogFailed> {
        if mutant::is_active("checkpoint-no-flash-flush") {
            return Ok(true);
        }
        while self.slots.make_durable().await.is_err() {
            if self.log().room() == 0 || self.log().flash.closed() {
                self.log().end_waits()?;
            }
            self.log().flash.rest(1).await;
        }
        let doubts = std::mem::replace(before, self.slots.writes.doubts());
        Ok(doubts == *before || mutant::is_active("checkpoint-trusts-lost-payload"))
    }

    /// Logs the units that were admitted, a part of the log at a time. It does not wait for a full log: this task makes room.
    ///
    /// Dirty ones first: they need no flush of the origin, which may take long, or fail.
    async fn log_batch(&self) -> Result<bool, LogFailed> {
        // Of a lost sector the flush covers nothing, also if it is written again meanwhile.
        let (mut admitted, losses) = (self.admitted(), self.slots.writes.losses());
        admitted.retain(|(slot, _)| !self.slots.writes.has_lost(*slot));
        if admitted.is_empty() || !self.log().is_durable(self.kept.get()) {
            return Ok(false);
        }
        let is_dirty = |one: &(u32, u64)| self.dirty.mask(one.0) != 0;
        let (mut dirty, mut clean): (Vec<_>, Vec<_>) = admitted.into_iter().partition(is_dirty);
        dirty.truncate(self.at_a_time());
        let (origins, table) = (&self.base.cx.origins, &self.base.table);
        let is_overdue = |unit| origins.of_unit(unit).is_overdue();
        clean.retain(|(slot, _)| table.unit_of(*slot).is_some_and(|unit| !is_overdue(unit)));
        clean.truncate(self.at_a_time() - dirty.len());
        self.slots.make_durable().await.map_err(|_| LogFailed)?;
        if losses != self.slots.writes.losses() {
            return Ok(false);
        }
        self.log_admitted(&dirty);
        if clean.is_empty() || self.log().room() == 0 {
            return Ok(false);
        }
        let units = clean.iter().filter_map(|(slot, _)| table.unit_of(*slot));
        let volumes = origins.volumes_of(units);
        let flushed = origins.make_durable_in_time("journal-waits-for-hung", volumes).await.volumes;
        let is_flushed = |unit| flushed.has(origins.of_unit(unit).volume());
        clean.retain(|(slot, _)| table.unit_of(*slot).is_some_and(is_flushed));
        self.log_admitted(&clean);
        Ok(false)
    }

    fn completed(&self) {
        self.all_dirty.set(!self.dirty_log);
    }
}
