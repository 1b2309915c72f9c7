// SPDX-License-Identifier: MIT OR Apache-2.0
//! The log of one shard's metadata: records in order, each durable before it is acknowledged.
//!
//! A caller enqueues a record and gets a ticket; [`Log::durable`] waits until all records up to the ticket are durable. One
//! task, the committer ([`Log::commit`]), writes the log in batches: a batch holds the records that were enqueued while the
//! previous one was written. It writes both copies at the same time with FUA. It requests a checkpoint when half of the log
//! is used (`checkpoint.rs`), and waits for it when the log is full.
//!
//! The committer also switches to the other half of the metadata, so that no batch is in flight meanwhile: it writes the
//! records enqueued since the snapshot to the new log, then the new header.
//!
//! A log of dirty data is written however long flash fails. Whenever it failed for as long as operations are repeated, the
//! tasks that wait for the log get an error; their records become durable later.
//!
//! Invariants: at most one batch is in flight; a record is acknowledged only when it and all before it are durable in
//! both copies.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};

use super::layout::Layout;
use super::record::{LogEnd, Record, pack};
use super::recover::{Header, Recovered};
use crate::buf::Buf;
use crate::cache::units::table::SlotPin;
use crate::config::Contents;
use crate::exec::{Exec, IoKind, Signal, WaitList, each};
use crate::flash::{Flash, FlashOp, Guards, InFlight, Role};
use crate::mutant;

/// The number of records enqueued up to a point of the log.
pub(crate) type Ticket = u64;

/// The log cannot be written: after the next write, a restart may not use the metadata on flash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the journal cannot be written")]
pub(crate) struct LogFailed;

/// Records that are not durable yet, and the progress of the log.
#[derive(Default)]
struct Queue {
    records: Vec<Record>,
    enqueued: Ticket,
    durable: Ticket,
    /// First records of the log of the checkpoint in progress, see [`Log::note_snapshot`].
    since: Option<Vec<Record>>,
}

/// A checkpoint whose payload is durable.
pub(super) struct Switch {
    pub half: u8,
    pub generation: u64,
    pub payload_crc: u32,
}

/// One shard's log on one attached flash device.
pub(crate) struct Log {
    pub(super) exec: Exec<InFlight>,
    pub(super) flash: Rc<Flash>,
    pub(super) layout: Layout,
    volume: u64,
    /// The current half; `None` before the first checkpoint.
    half: Cell<Option<u8>>,
    end: Cell<LogEnd>,
    /// The newest generation written.
    newest: Cell<u64>,
    /// The header of that half, if there is only one copy of it.
    lone_header: Cell<Option<Header>>,
    queue: RefCell<Queue>,
    waiting: WaitList,
    failed: Cell<bool>,
    /// How many times flash failed for too long.
    outages: Cell<u64>,
    work: Signal,
    pub(super) checkpoint_due: Rc<Signal>,
    /// A checkpoint's payload is durable; the committer switches to its half.
    switch: RefCell<Option<Switch>>,
    switched: Signal,
    /// Held by writes of headers and payloads until the device has answered.
    making: Rc<()>,
}

impl Log {
    pub(crate) fn new(
        exec: &Exec<InFlight>,
        flash: &Rc<Flash>,
        (layout, volume): (Layout, u64),
        recovered: Option<&Recovered>,
    ) -> Rc<Self> {
        let end = recovered.map_or_else(|| LogEnd::first(volume, 0, &layout), |r| r.end);
        Rc::new(Self {
            exec: exec.clone(),
            flash: Rc::clone(flash),
            layout,
            volume,
            half: Cell::new(recovered.map(|r| r.half)),
            end: Cell::new(end),
            newest: Cell::new(recovered.map_or(0, |r| r.newest)),
            lone_header: Cell::new(recovered.and_then(|r| r.lone_header)),
            queue: RefCell::default(),
            waiting: WaitList::default(),
            failed: Cell::new(false),
            outages: Cell::new(0),
            work: Signal::default(),
            checkpoint_due: Rc::default(),
            switch: RefCell::new(None),
            switched: Signal::default(),
            making: Rc::default(),
        })
    }

    /// The volume that it belongs to.
    pub(super) fn volume(&self) -> u64 {
        self.volume
    }

    /// Its generation, and its durable blocks.
    pub(crate) fn reached(&self) -> (u64, u64) {
        let end = self.end.get();
        (end.generation, end.sequence)
    }

    /// Appends a record.
    pub(super) fn enqueue(&self, record: Record) -> Ticket {
        let mut queue = self.queue.borrow_mut();
        if let Some(since) = &mut queue.since {
            since.push(record.clone());
        }
        queue.records.push(record);
        queue.enqueued += 1;
        self.work.set(&self.exec);
        queue.enqueued
    }

    /// Flash failed for too long: the tasks that wait for the log get an error.
    ///
    /// # Errors
    /// If the log fails, since flash has a copy or is closed.
    pub(super) fn end_waits(&self) -> Result<(), LogFailed> {
        let device = self.flash.device();
        if device.contents == Contents::Copies || device.closed() {
            return Err(LogFailed);
        }
        self.outages.set(self.outages.get() + 1);
        self.waiting.wake_all(&self.exec);
        Ok(())
    }

    /// Whether all records up to the ticket are durable.
    pub(super) fn is_durable(&self, ticket: Ticket) -> bool {
        self.queue.borrow().durable >= ticket
    }

    /// Waits until all records up to the ticket are durable.
    pub(crate) async fn durable(&self, ticket: Ticket) -> Result<(), LogFailed> {
        let outages = self.outages.get();
        while !self.is_durable(ticket) {
            if self.failed.get() || self.outages.get() != outages {
                return Err(LogFailed);
            }
            self.waiting.wait(&self.exec).await;
        }
        Ok(())
    }

    /// Whether the log has failed.
    pub(crate) fn has_failed(&self) -> bool {
        self.failed.get()
    }

    /// Fails the log: every task that waits for it gets an error.
    pub(crate) fn fail(&self) {
        self.failed.set(true);
        self.waiting.wake_all(&self.exec);
        self.work.set(&self.exec);
        self.checkpoint_due.set(&self.exec);
        self.switched.set(&self.exec);
    }

    /// Whether a checkpoint and all enqueued records are durable.
    pub(super) fn is_settled(&self) -> bool {
        let queue = self.queue.borrow();
        self.half.get().is_some() && queue.durable == queue.enqueued
    }

    /// Whether there is no checkpoint.
    pub(super) fn is_new(&self) -> bool {
        self.half.get().is_none()
    }

    /// Blocks of the log that are free.
    pub(super) fn room(&self) -> u32 {
        self.layout.log_blocks - self.end.get().sequence as u32
    }

    /// Whether so much of the log is used that a checkpoint is due.
    pub(super) fn is_filling(&self) -> bool {
        self.room() <= self.layout.log_blocks / 2
    }

    /// Whether a write of a header or payload is in flight, perhaps after a timeout: it could overwrite newer bytes.
    fn is_making(&self) -> bool {
        Rc::strong_count(&self.making) > 1 && !mutant::is_active("late-metadata-forgotten")
    }

    /// Begins a checkpoint: marks the other half as incomplete. Returns that half and its generation.
    pub(super) async fn begin_half(&self) -> Result<(u8, u64), LogFailed> {
        if self.is_making() {
            return Err(LogFailed);
        }
        let in_place = mutant::is_active("region-in-place");
        let half = self.half.get().map_or(0, |h| if in_place { h } else { 1 - h });
        let generation = self.newest.get() + 1;
        self.newest.set(generation);
        self.write_header(half, &self.header(generation, None)).await?;
        Ok((half, generation))
    }

    fn header(&self, generation: u64, payload_crc: Option<u32>) -> Header {
        let follows = self.end.get().generation;
        Header { volume: self.volume, generation, follows, payload_crc }
    }

    /// From the snapshot on, records go to the next log too. It begins with those pending records that `needed` selects:
    /// recovery from the older payload needs them if the new payload is damaged.
    pub(super) fn note_snapshot(&self, needed: impl Fn(&Record) -> bool) {
        let forgets = mutant::is_active("switch-forgets-pending");
        let mut queue = self.queue.borrow_mut();
        let pending = queue.records.iter().filter(|record| needed(record) && !forgets);
        queue.since = Some(pending.cloned().collect());
    }

    /// Cancels the next log: the checkpoint failed.
    pub(super) fn forget_snapshot(&self) {
        self.queue.borrow_mut().since = None;
    }

    /// Waits until the committer has switched to a half whose payload is durable.
    pub(super) async fn switch_to(&self, switch: Switch) -> Result<(), LogFailed> {
        *self.switch.borrow_mut() = Some(switch);
        self.work.set(&self.exec);
        self.switched.wait(&self.exec).await;
        if self.failed.get() { Err(LogFailed) } else { Ok(()) }
    }

    /// The task of the committer.
    pub(crate) async fn commit(log: Weak<Self>) {
        while let Some(log) = log.upgrade() {
            if log.failed.get() || log.flash.closed() {
                return log.fail();
            }
            if log.step().await.is_err() {
                log.fail();
                return log.flash.fail("its log cannot be written".to_owned());
            }
            if log.is_filling() {
                log.checkpoint_due.set(&log.exec);
            }
            let idle = log.is_new() || log.room() == 0 || log.queue.borrow().records.is_empty();
            if idle && log.switch.borrow().is_none() {
                log.work.wait(&log.exec).await;
            }
        }
    }

    async fn step(&self) -> Result<(), LogFailed> {
        if let Some((header, half)) = self.lone_header.take().zip(self.half.get()) {
            return self.write_header(half, &header).await;
        }
        let switch = self.switch.take();
        match switch {
            Some(switch) => self.switch(switch).await,
            None => self.write_batch().await,
        }
    }

    async fn write_batch(&self) -> Result<(), LogFailed> {
        let Some(half) = self.half.get() else { return Ok(()) };
        let mut end = self.end.get();
        let at = end.sequence as u32;
        let (bytes, taken) =
            pack(&self.queue.borrow().records, &self.layout, self.room(), &mut end);
        if taken == 0 {
            return Ok(());
        }
        self.write_blocks(half, at, &bytes).await?;
        self.end.set(end);
        let mut queue = self.queue.borrow_mut();
        queue.records.drain(..taken);
        queue.durable += taken as u64;
        drop(queue);
        self.waiting.wake_all(&self.exec);
        Ok(())
    }

    async fn switch(&self, switch: Switch) -> Result<(), LogFailed> {
        let Switch { half, generation, payload_crc } = switch;
        let mut end = LogEnd::first(self.volume, generation, &self.layout);
        let since = self.queue.borrow_mut().since.take().unwrap_or_default();
        // Records enqueued from here on are written after the switch.
        let enqueued = self.queue.borrow().enqueued;
        let kept: &[Record] = if mutant::is_active("switch-forgets") { &[] } else { &since };
        let mut left = kept;
        while !left.is_empty() {
            let at = end.sequence as u32;
            let room = self.layout.log_blocks - at;
            let (bytes, taken) = pack(left, &self.layout, room, &mut end);
            if taken == 0 {
                return Err(LogFailed);
            }
            self.write_blocks(half, at, &bytes).await?;
            left = &left[taken..];
        }
        self.write_header(half, &self.header(generation, Some(payload_crc))).await?;
        self.half.set(Some(half));
        self.end.set(end);
        let mut queue = self.queue.borrow_mut();
        let late = (queue.enqueued - enqueued) as usize;
        let durable = queue.records.len() - late;
        queue.records.drain(..durable);
        queue.durable = enqueued;
        drop(queue);
        self.waiting.wake_all(&self.exec);
        self.switched.set(&self.exec);
        Ok(())
    }

    /// Writes both copies of some blocks of a log, durably.
    async fn write_blocks(&self, half: u8, at: u32, bytes: &[u8]) -> Result<(), LogFailed> {
        let fua = !mutant::is_active("log-not-durable");
        let write = |copy: u8| {
            let offset = self.layout.log_block(half, copy, at);
            self.write_meta(fua, offset, Buf::copy_of(bytes), Guards::default)
        };
        all_good(each([0, 1].map(write).into()).await)
    }

    /// Writes both copies of a half's header, durably.
    async fn write_header(&self, half: u8, header: &Header) -> Result<(), LogFailed> {
        let copies: &[u8] = if mutant::is_active("one-header") { &[0] } else { &[0, 1] };
        let write = |copy: &u8| {
            let at = self.layout.header(half, *copy);
            let bytes = Buf::copy_of(&header.encode(&self.layout, at));
            self.write_meta(true, at, bytes, || self.making_guards())
        };
        all_good(each(copies.iter().map(write).collect()).await)
    }

    /// Writes a part of a payload.
    pub(super) async fn write_payload(&self, at: u64, bytes: &[u8]) -> Result<(), LogFailed> {
        self.write_meta(false, at, Buf::copy_of(bytes), || self.making_guards()).await
    }

    /// Writes the directory of a mixed slot, which stays pinned until the device has answered.
    pub(super) async fn write_directory(
        &self,
        pin: SlotPin,
        bytes: &[u8],
    ) -> Result<(), LogFailed> {
        let (at, _) = self.layout.directory(pin.slot());
        let guards = || Guards { pin: Some(pin.clone()), ..Guards::default() };
        self.write_meta(false, at, Buf::copy_of(bytes), guards).await
    }

    /// Flushes flash.
    pub(super) async fn flush_flash(&self) -> Result<(), LogFailed> {
        let done = self.flash.io(FlashOp::flush(), self.making_guards()).await;
        done.map(drop).map_err(|_| LogFailed)
    }

    fn making_guards(&self) -> Guards {
        Guards { _making: Some(Rc::clone(&self.making)), ..Guards::default() }
    }

    async fn write_meta(
        &self,
        fua: bool,
        at: u64,
        bytes: Buf,
        guards: impl Fn() -> Guards,
    ) -> Result<(), LogFailed> {
        let mut op = FlashOp::whole(Role::Metadata, IoKind::Write { fua }, at, bytes);
        while let Err(error) = self.flash.insist(op, &guards).await {
            self.end_waits()?;
            self.flash.rest(1).await;
            let bytes = error.into_buf().ok_or(LogFailed)?;
            op = FlashOp::whole(Role::Metadata, IoKind::Write { fua }, at, bytes);
        }
        Ok(())
    }
}

fn all_good(results: Vec<Result<(), LogFailed>>) -> Result<(), LogFailed> {
    results.into_iter().collect()
}
