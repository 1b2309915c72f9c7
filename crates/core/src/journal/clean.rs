// SPDX-License-Identifier: MIT OR Apache-2.0
//! The journal of a clean cache: which pages of which units equal the origin.
//!
//! Every period, or when it is asked to, the checkpointer takes units with valid pages that are not logged, and the touched
//! regions that the policy chooses to clean ([`Touched`]). It copies the units' valid bits (the *snapshot*), flushes the
//! origin and then flash, and logs the valid bits except those of touched regions. A page of the snapshot was written to
//! both devices before the flushes, so it is durable on both when the record is. While the policy lets flushes of the origin
//! rest, units are logged without one, and regions with changes that no flush covers count as touched (`due.rs`).
//!
//! Invariant: while a write is in flight, recovery finds its pages invalid, and they stay so until both devices were
//! flushed after the write. Three steps keep it for a unit that is logged (nothing is recovered of others):
//! - A write to a region that is not touched enqueues a touched record and waits for it. A write to a touched region waits
//!   for nothing but the record that touched it.
//! - A region is cleaned only if no claim covers it at the snapshot.
//! - A write that starts between the snapshot and the state record of its region finds the region still touched on flash.
//!   It cancels the cleaning: the region is touched again, and the state record excludes it. After the state record is
//!   enqueued, the region is not touched, and the write waits for a new record, which follows in the log.
//!
//! A mixed slot is logged like a unit, with its places instead of pages, once its directory is on flash. That a page left its
//! place is a touched record of the place's region, so that recovery does not find it there; a write to its unit waits for it.
//!
//! A checkpoint excludes touched regions from its payload. It cleans those that the policy returns (all without settings
//! of the policy); those are not cancelled, because the payload may hold them already: a write waits for a new record.
//! A crash leaves the touched regions cold: the policy bounds them by a share of the valid pages.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use larder_policy::touched::{Needs, TouchSettings, Touched};

use super::base::{Base, Journal};
use super::checkpoint::{self, Checkpointed};
use super::entry::{clear_regions, number};
use super::log::{Log, LogFailed, Ticket};
use super::record::Record;
use crate::buf::PAGE;
use crate::cache::units::directory;
use crate::cache::units::mixed::Left;
use crate::cache::units::singles::Logged;
use crate::cache::units::table::{Evicted, SlotPin, Table};
use crate::context::Context;
use crate::exec::Nanos;
use crate::mutant;
use crate::origin::Origin;
use crate::pages::{Pages, Regions};
use crate::volumes::VolumeSet;

/// Units logged at a time.
pub(super) const BATCH: usize = 256;

/// The records of a slot's touched regions.
#[derive(Clone, Copy, Default)]
pub(super) struct Recorded {
    /// The last touched record.
    ticket: Ticket,
    /// Regions whose touched record is durable, whatever the last one is.
    pub(super) durable: u64,
    /// Regions that are being cleaned and are touched on flash.
    cleaning: u64,
}

/// The journal of a clean cache.
pub(crate) struct CleanJournal {
    pub(super) base: Base,
    pub(super) regions: Regions,
    pub(super) touched: RefCell<Touched>,
    pub(super) recorded: RefCell<BTreeMap<u32, Recorded>>,
    /// Slots with valid pages that are not logged.
    pub(super) changed: RefCell<BTreeSet<u32>>,
    /// Further ones that wait for the next flush of the origin.
    pub(super) waiting: RefCell<BTreeSet<u32>>,
    pub(super) last_write: Cell<Nanos>,
    /// The origin is not flushed before, because of the last flush.
    pub(super) rests_until: Cell<Nanos>,
    /// Volumes whose origin cannot be flushed, and whether slots still hold units of them (`closed.rs`).
    pub(super) closed: Cell<VolumeSet>,
    pub(super) leaving: Cell<bool>,
    /// Volumes that the checkpoint in progress leaves out (`left_out.rs`).
    pub(super) left_out: Cell<VolumeSet>,
}

/// The snapshot of a unit.
struct Snapshot {
    pin: SlotPin,
    volumes: VolumeSet,
    logged: Logged,
    bits: Vec<u8>,
    before: Before,
}

/// The state before a checkpoint's snapshot.
pub(crate) struct Begun {
    /// The journal omits the flush of the origin.
    rests: bool,
    slots: Vec<Before>,
}

/// What came of the flushes between a snapshot and its record.
enum Flushed {
    /// Nothing: the units of a volume leave, since its origin cannot be flushed.
    Left,
    /// The devices were flushed, except the origins of these volumes.
    Without(VolumeSet),
}

/// The state of a slot before a snapshot.
pub(crate) struct Before {
    pub(super) slot: u32,
    /// The regions that the snapshot cleans.
    cleaned: u64,
    was_logged: bool,
}

impl CleanJournal {
    /// Starts the journal's tasks. `restored`: slots whose units were recovered.
    pub(crate) fn start(
        cx: &Rc<Context>,
        table: &Rc<Table>,
        (log, touch): (Rc<Log>, Option<TouchSettings>),
        restored: impl Iterator<Item = u32>,
    ) -> Rc<Self> {
        let pages = cx.shape.pages_per_unit();
        let regions = Regions::of(pages);
        let touched = Touched::new(touch, pages.div_ceil(regions.pages_each));
        if touch.is_some() {
            let block_bytes = u64::from(regions.pages_each) * PAGE as u64;
            cx.origins.iter().for_each(|origin| origin.watch_unflushed(block_bytes));
        }
        cx.exec.spawn(Log::commit(Rc::downgrade(&log)));
        let journal = Rc::new(Self {
            base: Base::new(cx, table, log, restored),
            regions,
            touched: RefCell::new(touched),
            recorded: RefCell::default(),
            changed: RefCell::default(),
            waiting: RefCell::default(),
            last_write: Cell::new(0),
            rests_until: Cell::new(0),
            closed: Cell::default(),
            leaving: Cell::new(false),
            left_out: Cell::default(),
        });
        cx.exec.spawn(checkpoint::run(Rc::downgrade(&journal)));
        journal
    }

    pub(crate) fn log(&self) -> &Log {
        self.base.log()
    }

    /// Logs that these pages of a slot are about to be written: recovery finds their regions invalid. The write waits until
    /// the record of the ticket is durable.
    pub(crate) fn touch(&self, slot: u32, pages: &Pages) -> Option<Ticket> {
        self.last_write.set(self.base.cx.exec.now());
        let ticket = self.invalidate(slot, pages);
        ticket.filter(|_| !mutant::is_active("write-before-touched"))
    }

    /// The same of the single pages among these pages of a unit.
    pub(crate) fn touch_singles(&self, unit: u32, pages: &Pages) -> Option<Ticket> {
        if mutant::is_active("single-written-untouched") {
            return None;
        }
        let places = self.base.table.single_places(unit, pages);
        let touch = |(slot, place): (u32, u32)| self.touch(slot, &(place..place + 1));
        places.into_iter().filter_map(touch).max()
    }

    fn invalidate(&self, slot: u32, pages: &Pages) -> Option<Ticket> {
        if !self.base.mapping.is_logged(slot) {
            return None;
        }
        let mask = self.regions.mask_of(pages);
        let (needs, is_due) = {
            let mut touched = self.touched.borrow_mut();
            (touched.write(slot, mask), touched.is_due(self.valid_regions()))
        };
        if is_due && self.base.cx.exec.now() >= self.rests_until.get() {
            self.log().checkpoint_due.set(&self.base.cx.exec);
        }
        self.record(slot, needs, mask)
    }

    /// Enqueues the records that a write needs, and cancels the cleaning of its regions. Returns the ticket to wait for.
    fn record(&self, slot: u32, needs: Needs, mask: u64) -> Option<Ticket> {
        let mut recorded = self.recorded.borrow_mut();
        let recorded = recorded.entry(slot).or_default();
        let wanted = needs.now | needs.ahead;
        let back = wanted & recorded.cleaning;
        if !mutant::is_active("cleaning-not-cancelled") {
            recorded.cleaning &= !back;
        }
        if wanted != back {
            if self.log().is_durable(recorded.ticket) {
                recorded.durable |= needs.before | back;
            }
            recorded.ticket = self.log().enqueue(Record::Touch { slot, mask: wanted & !back });
        }
        (recorded.durable & mask != mask).then_some(recorded.ticket)
    }

    /// Valid pages, in regions.
    pub(super) fn valid_regions(&self) -> u64 {
        self.base.table.valid() / u64::from(self.regions.pages_each)
    }

    pub(super) fn touched_mask(&self, slot: u32) -> u64 {
        self.touched.borrow().mask(slot)
    }

    /// Writes the directories of the mixed slots that were closed since the last call.
    async fn save_directories(&self) -> Result<(), LogFailed> {
        let (table, log) = (&self.base.table, self.log());
        if self.base.progress.hurry.get() {
            table.close_mixed();
        }
        while let Some((slot, singles)) = table.unsaved() {
            let pin = table.pin_slot(slot);
            self.base.mapping.slot_dropped(slot).await?;
            let bytes = directory::encode(&singles, log.volume(), slot, log.layout.pages);
            log.write_directory(pin, &bytes).await?;
            table.set_saved(slot);
        }
        Ok(())
    }

    /// Takes a slot's snapshot: it counts as logged, and the regions to clean are not touched. None if it waits for a flush.
    fn snapshot(&self, (slot, cleaned): (u32, u64), rests: bool) -> Option<Snapshot> {
        let volumes = self.volumes_in(slot);
        if self.leaves(slot) {
            self.touched.borrow_mut().put_back(slot, cleaned);
            return None;
        }
        let logged = self.base.table.logged_as(slot).filter(|_| self.settle(slot, rests))?;
        let pin = self.base.table.pin_slot(slot);
        let mut bits = Vec::with_capacity(self.log().layout.entry_bytes());
        self.base.table.valid_bits(slot, &mut bits);
        if let Some(recorded) = self.recorded.borrow_mut().get_mut(&slot) {
            recorded.cleaning = self.touched.borrow().cancellable(cleaned);
        }
        let before = Before { slot, cleaned, was_logged: self.base.mapping.is_logged(slot) };
        self.base.mapping.set_logged(slot, true);
        Some(Snapshot { pin, volumes, logged, bits, before })
    }

    /// Cancels a slot's snapshot.
    pub(super) fn cancel(&self, before: Before) {
        let Before { slot, cleaned, was_logged } = before;
        self.changed.borrow_mut().insert(slot);
        self.base.mapping.set_logged(slot, was_logged);
        self.touched.borrow_mut().put_back(slot, cleaned);
        if let Some(recorded) = self.recorded.borrow_mut().get_mut(&slot) {
            recorded.cleaning = 0;
        }
    }

    /// Flushes the origins, unless that rests, and then flash. `waits`: the mutant that waits for overdue origins.
    async fn flush(&self, rests: bool, waits: &str) -> Result<Flushed, LogFailed> {
        let flushed = match rests {
            true => Flushed::Without(VolumeSet::default()),
            false => self.flush_origins(waits).await?,
        };
        if matches!(flushed, Flushed::Left) || mutant::is_active("checkpoint-no-flash-flush") {
            return Ok(flushed);
        }
        self.log().flush_flash().await.map(|()| flushed)
    }

    async fn flush_origins(&self, waits: &str) -> Result<Flushed, LogFailed> {
        let (cx, began) = (&self.base.cx, self.base.cx.exec.now());
        let open = cx.origins.iter().map(Origin::volume).filter(|volume| !self.is_closed(*volume));
        let open: Vec<u32> = open.collect();
        let mut overdue = VolumeSet::default();
        if !mutant::is_active("checkpoint-no-origin-flush") {
            let volumes = open.iter().copied().collect();
            let flushed = cx.origins.make_durable_in_time(waits, volumes).await;
            overdue = flushed.overdue;
            if let Some(errno) = flushed.failed {
                let answered = flushed.volumes.and(overdue);
                let failed = open.into_iter().filter(|volume| !answered.has(*volume));
                return self.origins_failed(failed, errno).map(|()| Flushed::Left);
            }
        }
        // The patience with an overdue origin is no measure of how long a flush takes.
        if overdue.is_empty() {
            let now = cx.exec.now();
            self.rests_until.set(now + self.touched.borrow().rest(now - began));
        }
        Ok(Flushed::Without(overdue))
    }

    /// Logs the snapshots of units whose devices were flushed; returns the last ticket.
    fn log_snapshots(&self, snapshots: Vec<Snapshot>) -> Ticket {
        let mut ticket = 0;
        for Snapshot { pin, logged, mut bits, before, .. } in snapshots {
            let (slot, pages) = (pin.slot(), self.log().layout.pages);
            let mut touched = self.touched_mask(slot);
            if let Some(recorded) = self.recorded.borrow_mut().get_mut(&slot) {
                let cleaning = std::mem::take(&mut recorded.cleaning);
                if mutant::is_active("cleaning-not-cancelled") {
                    touched &= !cleaning;
                }
                recorded.durable &= touched;
            }
            if mutant::is_active("region-cleaned-early") && before.cleaned != 0 {
                bits.clear();
                self.base.table.valid_bits(slot, &mut bits);
            }
            if !mutant::is_active("checkpoint-over-write") {
                clear_regions(&mut bits, touched, self.regions, pages);
            }
            let unit = number(logged);
            ticket = self.log().enqueue(Record::State { slot, unit, bits: bits.into() });
        }
        let touched = self.touched.borrow();
        self.recorded.borrow_mut().retain(|slot, _| touched.mask(*slot) != 0);
        ticket
    }
}

impl Journal for CleanJournal {
    fn base(&self) -> &Base {
        &self.base
    }

    fn is_settled(&self) -> bool {
        let changed = !self.changed.borrow().is_empty() || !self.waiting.borrow().is_empty();
        let nothing = !changed && self.touched.borrow().is_empty();
        self.log().has_failed() || nothing && self.base.is_settled()
    }

    /// Pages of touched regions are logged when those are cleaned.
    fn changed(&self, slot: u32, pages: &Pages) {
        if self.regions.mask_of(pages) & !self.touched_mask(slot) != 0 {
            self.changed.borrow_mut().insert(slot);
        }
    }

    fn removed(&self, evicted: Evicted) {
        self.changed.borrow_mut().remove(&evicted.slot);
        self.waiting.borrow_mut().remove(&evicted.slot);
        self.touched.borrow_mut().forget(evicted.slot);
        self.recorded.borrow_mut().remove(&evicted.slot);
        self.base.mapping.removed(evicted);
    }

    fn left(&self, Left { slot, place, unit }: Left) {
        if mutant::is_active("single-leaves-unlogged") {
            return;
        }
        if let Some(ticket) = self.invalidate(slot, &(place..place + 1)) {
            self.base.mapping.unit_drops(unit, ticket);
        }
    }
}

impl Checkpointed for CleanJournal {
    type Before = Begun;

    /// All invalidations. The next payload includes the pending states.
    fn carries(record: &Record) -> bool {
        !matches!(record, Record::State { .. })
    }

    /// All units, except where the drop of the slot's old mapping is pending: that record may come first in the next log,
    /// and would drop the new unit. At rest also except units that wait for a flush of the origin. Those of absent volumes keep
    /// the state that is logged.
    fn begin(&self) -> Begun {
        let rests = self.rests();
        let absent = self.absent(rests);
        self.left_out.set(absent);
        let mut cleaned = self.touched.borrow_mut().choose_at_checkpoint();
        let theirs: Vec<u32> =
            cleaned.keys().copied().filter(|slot| self.is_of(*slot, absent)).collect();
        for slot in self.leaving_slots().into_iter().chain(theirs) {
            let mask = cleaned.remove(&slot).unwrap_or(0);
            self.touched.borrow_mut().put_back(slot, mask);
        }
        let table = &self.base.table;
        let logs = |slot: &u32| {
            let is_dropping = self.base.mapping.is_dropping(*slot);
            let logs = table.logged_as(*slot).is_some() && !is_dropping && !self.leaves(*slot);
            logs && !self.is_of(*slot, absent)
        };
        let stays = |slot: &u32| table.logged_as(*slot).is_none() || self.is_of(*slot, absent);
        self.changed.borrow_mut().retain(stays);
        self.waiting.borrow_mut().retain(|slot| self.is_of(*slot, absent));
        let settled = (0..table.slots()).filter(logs).filter(|slot| self.settle(*slot, rests));
        let slots = settled.map(|slot| {
            let was_logged = self.base.mapping.is_logged(slot);
            self.base.mapping.set_logged(slot, true);
            Before { slot, cleaned: cleaned.remove(&slot).unwrap_or(0), was_logged }
        });
        Begun { rests, slots: slots.collect() }
    }

    fn restore(&self, begun: Begun) {
        // A unit that was evicted meanwhile is not logged.
        let logged = |before: &Before| self.base.mapping.is_logged(before.slot);
        begun.slots.into_iter().filter(logged).for_each(|before| self.cancel(before));
    }

    async fn flush_devices(&self, begun: &mut Begun) -> Result<bool, LogFailed> {
        match self.flush(begun.rests, "checkpoint-waits-for-hung").await? {
            Flushed::Left => Ok(false),
            Flushed::Without(overdue) => Ok(!self.leave_out(&mut begun.slots, overdue)),
        }
    }

    /// The unit and its valid pages, without those touched since the snapshot; nothing of a unit that leaves.
    fn entry(&self, slot: u32, out: &mut Vec<u8>) {
        let (layout, at) = (&self.log().layout, out.len());
        let logged = self.base.table.logged_as(slot);
        let is_logged =
            self.base.mapping.is_logged(slot) && !self.leaves(slot) && !self.omits(slot);
        let Some(logged) = logged.filter(|_| is_logged) else {
            return out.resize(at + layout.entry_bytes(), 0);
        };
        out.extend((number(logged) + 1).to_le_bytes());
        self.base.table.valid_bits(slot, out);
        if let Some(bits) = out.get_mut(at + 4..) {
            clear_regions(bits, self.touched_mask(slot), self.regions, layout.pages);
        }
    }

    async fn log_batch(&self) -> Result<bool, LogFailed> {
        self.evict_closed();
        self.save_directories().await?;
        let rests = self.rests();
        let slots = self.candidates(rests);
        if slots.is_empty() {
            return Ok(false);
        }
        let more = slots.len() == BATCH;
        let snapshots: Vec<Snapshot> =
            slots.iter().filter_map(|slot| self.snapshot(*slot, rests)).collect();
        if snapshots.is_empty() {
            return Ok(more);
        }
        let flushed = self.flush(rests, "journal-waits-for-hung").await;
        let Ok(Flushed::Without(overdue)) = flushed else {
            snapshots.into_iter().for_each(|snapshot| self.cancel(snapshot.before));
            return flushed.map(|_| true);
        };
        let (late, durable): (Vec<_>, Vec<_>) =
            snapshots.into_iter().partition(|snapshot| snapshot.volumes.meets(overdue));
        late.into_iter().for_each(|snapshot| self.cancel(snapshot.before));
        let ticket = self.log_snapshots(durable);
        // No wait until that is durable: this task makes room in a full log, by a checkpoint.
        if mutant::is_active("full-log-waits") {
            self.log().durable(ticket).await?;
        }
        Ok(more)
    }
}
