// SPDX-License-Identifier: MIT OR Apache-2.0
//! The journal: what of the metadata is on flash, so that a restart is warm (design rules 8-10).
//!
//! Purpose: one mechanism, the *touched* record. A unit whose state is on flash is *logged*;
//! before the first write to one of its regions reaches either device, a touched record is
//! durable that takes the region's pages back. Recovery therefore never finds a page valid that
//! may differ from the origin. What is not logged yet (a population of the last second) is lost
//! by a crash and costs no more than that.
//!
//! Who does what:
//! - paths call `Journal::touch` before a write, and `Journal::settled` before the first byte
//!   of new content goes into a slot whose old mapping may be on flash;
//! - one task (`commit.rs`) writes the log, in batches, each durable before it is acknowledged;
//! - another (`checkpoint.rs`) logs what units hold, after it flushed both devices, and rewrites
//!   the whole state to the other region when the log fills up.
//!
//! Invariants: at most one batch of the log is under way; a record is acknowledged only when it
//! and all before it are durable in both copies; a slot is logged only for the unit it holds.
//! Ordered containers only: equal seeds must give equal runs.

mod checkpoint;
mod commit;
pub mod layout;
pub mod record;
pub mod recover;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use self::layout::Layout;
use self::record::{Record, Tail};
use self::recover::{Header, Recovered};
use crate::exec::{Exec, Guard, Nanos, Signal};
use crate::mutant;
use crate::pages::Pages;

/// A point in the log: everything enqueued up to it.
pub(crate) type Ticket = u64;

#[derive(Clone, Copy)]
struct Touched {
    mask: u64,
    ticket: Ticket,
}

/// Records to be written, and how far the log is.
#[derive(Default)]
struct Queue {
    records: Vec<Record>,
    enqueued: Ticket,
    durable: Ticket,
    /// What the log of the checkpoint under way begins with, see [`Queue::note_snapshot`].
    since: Option<Vec<Record>>,
}

impl Queue {
    /// From now on the next log gets what is enqueued, and what was taken back before and is not
    /// durable yet. Where flash owns what it holds, what was given is as dear.
    fn note_snapshot(&mut self, owns: bool) {
        let taken_back = |r: &&Record| owns || !matches!(r, Record::State { .. });
        let forgets = mutant::is_active("switch-forgets-pending");
        let pending = self.records.iter().filter(taken_back).filter(|_| !forgets);
        self.since = Some(pending.cloned().collect());
    }
}

/// One shard's journal over one attached flash device, see the module.
pub(crate) struct Journal {
    layout: Layout,
    volume: u64,
    /// The region in force, none before the first checkpoint.
    region: Cell<Option<u8>>,
    tail: Cell<Tail>,
    /// The newest generation that anything was written for.
    newest: Cell<u64>,
    /// The header of that region, if there is but one copy of it.
    lone_header: Cell<Option<Header>>,
    queue: RefCell<Queue>,
    waiting: RefCell<Vec<Rc<Signal>>>,
    /// Slots whose unit is on flash, or will be with what is being written.
    logged: RefCell<Vec<u64>>,
    /// Regions written since their unit was logged.
    touched: RefCell<BTreeMap<u32, Touched>>,
    /// Slots that came to hold more than is logged.
    changed: RefCell<BTreeSet<u32>>,
    /// Slots whose old unit is about to be dropped from flash.
    dropped: RefCell<BTreeMap<u32, Ticket>>,
    /// Units that left, until that is durable.
    left: RefCell<BTreeMap<u32, Ticket>>,
    /// The log could not be written: nothing on flash may be trusted after the next write.
    failed: Cell<bool>,
    /// Everything is to be logged soon: the volume stops.
    hurry: Cell<bool>,
    /// The whole state is to be written anew: an update has ended.
    save: Cell<bool>,
    /// Something counts as logged that is not enqueued yet.
    logging: Cell<bool>,
    last_write: Cell<Nanos>,
    work: Signal,
    checkpoint_due: Rc<Signal>,
    /// A checkpoint's payload is durable; the committer switches to its region.
    switch: RefCell<Option<commit::Switch>>,
    switched: Signal,
    /// Held by whatever writes headers and payloads, until the device has answered.
    making: Rc<()>,
}

impl Journal {
    pub(crate) fn new(layout: Layout, volume: u64, recovered: Option<&Recovered>) -> Self {
        let tail = recovered.map_or_else(|| Tail::first(volume, 0, &layout), |r| r.tail);
        Self {
            layout,
            volume,
            region: Cell::new(recovered.map(|r| r.region)),
            tail: Cell::new(tail),
            newest: Cell::new(recovered.map_or(0, |r| r.newest)),
            lone_header: Cell::new(recovered.and_then(|r| r.lone_header)),
            queue: RefCell::default(),
            waiting: RefCell::default(),
            logged: RefCell::new(vec![0; layout.slots.div_ceil(64) as usize]),
            touched: RefCell::default(),
            changed: RefCell::default(),
            dropped: RefCell::default(),
            left: RefCell::default(),
            failed: Cell::new(false),
            hurry: Cell::new(false),
            save: Cell::new(false),
            logging: Cell::new(false),
            last_write: Cell::new(0),
            work: Signal::default(),
            checkpoint_due: Rc::default(),
            switch: RefCell::new(None),
            switched: Signal::default(),
            making: Rc::default(),
        }
    }

    fn is_logged(&self, slot: u32) -> bool {
        self.logged.borrow()[slot as usize / 64] >> (slot % 64) & 1 == 1
    }

    /// How far the log has come: its generation, and blocks of it that are durable.
    pub(crate) fn reached(&self) -> (u64, u64) {
        let tail = self.tail.get();
        (tail.generation, tail.sequence)
    }

    pub(crate) fn logged_count(&self) -> u64 {
        self.logged.borrow().iter().map(|word| u64::from(word.count_ones())).sum()
    }

    pub(crate) fn set_logged(&self, slot: u32, logged: bool) {
        let word = &mut self.logged.borrow_mut()[slot as usize / 64];
        *word = *word & !(1 << (slot % 64)) | u64::from(logged) << (slot % 64);
    }

    /// The slot has pages valid that are not logged.
    pub(crate) fn changed(&self, slot: u32) {
        if self.layout.dirty {
            return; // what flash owns is logged when it is whole
        }
        self.changed.borrow_mut().insert(slot);
    }

    /// The slot's unit leaves.
    pub(crate) fn removed<G: Guard>(&self, slot: u32, unit: u32, exec: &Exec<G>) {
        self.changed.borrow_mut().remove(&slot);
        self.touched.borrow_mut().remove(&slot);
        if self.is_logged(slot) {
            self.set_logged(slot, false);
            if !mutant::is_active("drop-not-logged") {
                let ticket = self.enqueue(Record::Drop { slot }, exec);
                self.dropped.borrow_mut().insert(slot, ticket);
                self.left.borrow_mut().insert(unit, ticket);
            }
        }
    }

    fn enqueue<G: Guard>(&self, record: Record, exec: &Exec<G>) -> Ticket {
        let mut queue = self.queue.borrow_mut();
        if let Some(since) = &mut queue.since {
            since.push(record.clone());
        }
        queue.records.push(record);
        queue.enqueued += 1;
        self.work.set(exec);
        queue.enqueued
    }

    /// The regions that pages belong to.
    fn mask_of(&self, pages: &Pages) -> u64 {
        let per = self.layout.touch_pages();
        let (first, last) = (pages.start / per, (pages.end - 1) / per);
        (first..=last).fold(0, |mask, region| mask | 1 << region)
    }

    /// Before a write to these pages of the slot's unit reaches a device: their regions are
    /// durably taken back. Fails when the log does.
    pub(crate) async fn touch<G: Guard>(
        &self,
        slot: u32,
        pages: &Pages,
        exec: &Exec<G>,
    ) -> Result<(), ()> {
        self.last_write.set(exec.now());
        if !self.is_logged(slot) {
            return Ok(());
        }
        let mask = self.mask_of(pages);
        let known = self.touched.borrow().get(&slot).copied();
        let ticket = match known {
            Some(known) if known.mask & mask == mask => known.ticket,
            known => {
                let ticket = self.enqueue(Record::Touch { slot, mask }, exec);
                let mask = mask | known.map_or(0, |k| k.mask);
                self.touched.borrow_mut().insert(slot, Touched { mask, ticket });
                ticket
            }
        };
        if mutant::is_active("write-before-touched") {
            return Ok(());
        }
        self.durable(ticket, exec).await
    }

    /// A unit that is not resident is about to be written: its old mapping is durably gone.
    pub(crate) async fn gone<G: Guard>(&self, unit: u32, exec: &Exec<G>) -> Result<(), ()> {
        let ticket = self.left.borrow().get(&unit).copied();
        let Some(ticket) = ticket else { return Ok(()) };
        if mutant::is_active("write-before-drop") {
            return Ok(());
        }
        self.durable(ticket, exec).await
    }

    /// The mapping that the slot had before is durably gone.
    pub(crate) async fn settled<G: Guard>(&self, slot: u32, exec: &Exec<G>) -> Result<(), ()> {
        let ticket = self.dropped.borrow().get(&slot).copied();
        let Some(ticket) = ticket else { return Ok(()) };
        if mutant::is_active("fill-before-drop") {
            return Ok(());
        }
        self.durable(ticket, exec).await
    }

    /// Waits until the log is so far.
    pub(crate) async fn durable<G: Guard>(&self, ticket: Ticket, exec: &Exec<G>) -> Result<(), ()> {
        while self.queue.borrow().durable < ticket {
            if self.failed.get() {
                return Err(());
            }
            let signal = Rc::new(Signal::default());
            self.waiting.borrow_mut().push(Rc::clone(&signal));
            signal.wait(exec).await;
        }
        Ok(())
    }

    fn wake<G: Guard>(&self, exec: &Exec<G>) {
        let durable = self.queue.borrow().durable;
        self.dropped.borrow_mut().retain(|_, ticket| *ticket > durable);
        self.left.borrow_mut().retain(|_, ticket| *ticket > durable);
        self.waiting.take().iter().for_each(|waiter| waiter.set(exec));
    }

    /// Asks that everything be logged.
    pub(crate) fn hurry(&self) {
        if !self.hurry.replace(true) && self.layout.factors > 0 {
            self.save.set(true);
        }
    }

    /// Whether the log is lost.
    pub(crate) fn has_failed(&self) -> bool {
        self.failed.get()
    }

    /// Whether a region's header or payload is still being written, if only by an operation that
    /// timed out: what is written over it could be undone by it.
    fn is_making(&self) -> bool {
        Rc::strong_count(&self.making) > 1 && !mutant::is_active("late-metadata-forgotten")
    }

    /// Asks that the whole state be written anew.
    pub(crate) fn save(&self) {
        self.save.set(true);
    }

    /// Regions of the slot's unit that were written since it was logged: under no-write-back,
    /// those that flash alone has.
    pub(crate) fn touched_regions(&self, slot: u32) -> u64 {
        self.touched.borrow().get(&slot).map_or(0, |t| t.mask)
    }

    /// Slots with such regions, from this one on.
    pub(crate) fn touched_from(&self, slot: u32, most: usize) -> Vec<u32> {
        self.touched.borrow().range(slot..).take(most).map(|(slot, _)| *slot).collect()
    }

    /// Whether such regions are what flash alone has.
    pub(crate) fn keeps_dirty(&self) -> bool {
        self.layout.dirty
    }

    /// How many slots have such regions.
    pub(crate) fn touched_count(&self) -> u64 {
        self.touched.borrow().len() as u64
    }

    /// Whether these pages of a slot's unit are in such regions.
    pub(crate) fn is_touched(&self, slot: u32, pages: &Pages) -> bool {
        self.touched_regions(slot) & self.mask_of(pages) != 0
    }

    /// The pages of the `region`-th region.
    pub(crate) fn region_pages(&self, region: u32) -> Pages {
        let per = self.layout.touch_pages();
        region * per..(region + 1) * per
    }

    /// Puts back what was touched before a restart.
    pub(crate) fn restore_touched(&self, slot: u32, mask: u64) {
        if mask != 0 {
            self.touched.borrow_mut().insert(slot, Touched { mask, ticket: 0 });
        }
    }

    /// Under no-write-back: logs that the slot holds this unit, wholly and clean; both devices hold
    /// it durably.
    pub(crate) fn clean<G: Guard>(&self, slot: u32, unit: u32, exec: &Exec<G>) -> Ticket {
        self.changed.borrow_mut().remove(&slot);
        self.touched.borrow_mut().remove(&slot);
        self.set_logged(slot, true);
        self.enqueue(Record::State { slot, unit, bits: Box::default() }, exec)
    }

    /// Whether everything is logged, or nothing more can be.
    pub(crate) fn is_settled(&self) -> bool {
        let queue = self.queue.borrow();
        self.failed.get()
            || self.region.get().is_some()
                && queue.durable == queue.enqueued
                && self.changed.borrow().is_empty()
                && !self.save.get()
                && !self.logging.get()
                && (self.layout.dirty || self.touched.borrow().is_empty())
    }

    /// The log is lost; whoever waits for it is told.
    pub(crate) fn fail<G: Guard>(&self, exec: &Exec<G>) {
        self.failed.set(true);
        self.wake(exec);
        self.work.set(exec);
        self.checkpoint_due.set(exec);
        self.switched.set(exec);
    }
}
