// SPDX-License-Identifier: MIT OR Apache-2.0
//! The origin of one volume. Every operation on it goes through this file and states its [`Use`].
//!
//! An operation ends where the volume ends: of its padding ([`volumes`](crate::volumes)) a read returns zeroes, and a change
//! does nothing.
//!
//! An operation has no time limit, except the read of data that flash has too, and its errors are returned unchanged. The
//! pace of population learns from client operations and population reads only.
//!
//! A failed flush is final: the origin may have dropped the data that it could not write, and an operating system reports
//! that error once. Every later flush fails too, so that each client learns of it; restarting the volume is the operator's
//! decision. A flush that was in flight fails as well, though the origin completed it: the other may have lost what this one
//! should have covered. The first shard of a volume flushes for all shards and remembers a failure.
//!
//! After a failed flush, or when the driver reports that the origin may have lost acknowledged writes
//! ([`distrust`](Origin::distrust)), the origin may hold older bytes than flash. Every shard then stops to read from it what
//! flash has.

use std::cell::{Cell, OnceCell, RefCell};
use std::ops::Range;
use std::rc::Rc;

use larder_policy::balance::{Load, Meter};

use crate::buf::Buf;
use crate::config::Limits;
use crate::event::{Event, Events};
use crate::exec::{DevId, Ended, Exec, IoKind, Nanos, SECOND, Signal, WaitList};
use crate::flash::InFlight;
use crate::merge::{Merger, Op, merges};
use crate::mutant;
use crate::overdue::Overdue;
use crate::population::pace::Pace;
pub(crate) use crate::population::pace::Use;
use crate::request::Errno;
use crate::stats::Stats;
use crate::unflushed::Unflushed;

/// How long an origin that refused dirty data counts as refusing it: others of its writes may succeed meanwhile.
const REFUSAL: Nanos = 2 * SECOND;

/// The origin of a volume, for one shard.
pub(crate) struct Origin {
    dev: DevId,
    volume: u32,
    /// The volume's place in the space of the cache.
    range: Range<u64>,
    exec: Exec<InFlight>,
    stats: Rc<Stats>,
    events: Events,
    overdue: Rc<Overdue>,
    pub(crate) pace: Pace,
    /// Whether this shard flushes for all.
    flushes: bool,
    /// Changes of this shard that have ended, and how many of them a flush covers. All changes of an earlier run count as
    /// one.
    changes: Cell<u64>,
    durable: Cell<u64>,
    /// Where changes were made since, if a journal asked.
    unflushed: OnceCell<Unflushed>,
    flushing: Cell<bool>,
    merger: Merger,
    waiting: WaitList,
    /// Result of the flush that the first shard made for this one.
    relayed: Signal,
    relayed_result: Cell<Result<(), Errno>>,
    failed: Cell<Option<Errno>>,
    /// When an event reported that it refuses dirty data, and when it did so last; none if it accepts them.
    refused: Cell<Option<(Nanos, Nanos)>>,
    /// It may have lost acknowledged writes.
    distrusted: Cell<bool>,
    /// Client reads.
    meter: RefCell<Meter>,
}

impl Origin {
    pub(crate) fn new(
        dev: DevId,
        (volume, range): (u32, Range<u64>),
        (exec, stats, events): (&Exec<InFlight>, &Rc<Stats>, &Events),
        (limits, overdue): (&Limits, &Rc<Overdue>),
        shard: u32,
    ) -> Self {
        Self {
            dev,
            volume,
            range,
            exec: exec.clone(),
            stats: Rc::clone(stats),
            events: events.clone(),
            overdue: Rc::clone(overdue),
            pace: Pace::new(limits),
            flushes: shard == 0,
            changes: Cell::new(1),
            durable: Cell::new(0),
            unflushed: OnceCell::new(),
            flushing: Cell::new(false),
            merger: Merger::default(),
            waiting: WaitList::default(),
            relayed: Signal::default(),
            relayed_result: Cell::new(Ok(())),
            failed: Cell::new(None),
            refused: Cell::new(None),
            distrusted: Cell::new(false),
            meter: RefCell::default(),
        }
    }

    /// The number of its volume.
    pub(crate) fn volume(&self) -> u32 {
        self.volume
    }

    /// Whether it leaves an operation unanswered for too long.
    pub(crate) fn is_overdue(&self) -> bool {
        self.overdue.volumes().has(self.volume)
    }

    /// The load of client reads.
    pub(crate) fn load(&self) -> Load {
        self.meter.borrow().load()
    }

    /// The origin may have lost acknowledged writes: flash may hold newer bytes.
    pub(crate) fn distrust(&self) {
        self.distrusted.set(true);
    }

    /// Whether the origin has every acknowledged write, as far as is known.
    pub(crate) fn is_trusted(&self) -> bool {
        let any = mutant::is_active("balance-trusts-origin");
        any || !self.distrusted.get() && self.failed.get().is_none()
    }

    /// Reads `len` bytes into the beginning of the buffer.
    pub(crate) async fn read(
        &self,
        why: Use,
        offset: u64,
        len: u64,
        buf: Buf,
    ) -> Result<Buf, Errno> {
        let (result, buf) = self.io(why, IoKind::Read, (offset, len), Some(buf)).await;
        result.and_then(|()| buf.ok_or(Errno::EIO))
    }

    /// Reads for a client what flash has too: the read fails when the time limit expires, and its buffer stays with it.
    pub(crate) async fn read_within(
        &self,
        limit: Nanos,
        (offset, len): (u64, u64),
        buf: Buf,
    ) -> Result<Buf, Errno> {
        let op = Op { kind: IoKind::Read, offset, len, buf: Some(buf) };
        let (result, buf) = self.execute(Use::Client, op, Some(limit)).await;
        result.and_then(|()| buf.ok_or(Errno::EIO))
    }

    /// Writes the first `len` bytes of the buffer and returns it.
    pub(crate) async fn write(
        &self,
        why: Use,
        (offset, len): (u64, u64),
        fua: bool,
        buf: Option<Buf>,
    ) -> (Result<(), Errno>, Option<Buf>) {
        self.io(why, IoKind::Write { fua }, (offset, len), buf).await
    }

    /// Writes dirty data of flash. Events report that the origin refuses it, at most one in [`REFUSAL`], and that it has refused
    /// none for so long.
    pub(crate) async fn write_back(
        &self,
        range: (u64, u64),
        buf: Option<Buf>,
    ) -> Result<(), Errno> {
        let (result, _) = self.write(Use::WriteBack, range, false, buf).await;
        let (now, before) = (self.exec.now(), self.refused.get());
        let recent = |at: &Nanos| now - at < REFUSAL;
        let reported = before.map(|(reported, _)| reported).filter(recent);
        let refuses = before.is_some_and(|(_, last)| recent(&last));
        if result.is_err() {
            self.refused.set(Some((reported.unwrap_or(now), now)));
        } else if !refuses {
            self.refused.set(None);
        }
        let changed = before.is_some() != self.refused.get().is_some();
        if changed || result.is_err() && reported.is_none() {
            self.events.emit(Event::OriginRefuses { volume: self.volume, errno: result.err() });
        }
        result
    }

    /// Writes, trims or zeroes a range, as a client asked for it.
    pub(crate) async fn change(
        &self,
        why: Use,
        kind: IoKind,
        (offset, len): (u64, u64),
        buf: Option<Buf>,
    ) -> Result<(), Errno> {
        self.io(why, kind, (offset, len), buf).await.0
    }

    /// An operation; those of the parts of one request are merged.
    async fn io(
        &self,
        why: Use,
        kind: IoKind,
        (offset, len): (u64, u64),
        buf: Option<Buf>,
    ) -> (Result<(), Errno>, Option<Buf>) {
        let op = Op { kind, offset, len, buf };
        match self.exec.group().filter(|_| merges(why, kind)) {
            None => self.execute(why, op, None).await,
            // Boxed, so that the task of a request within one unit does not have the size of this.
            Some(run) => {
                let execute = async |op| self.execute(why, op, None).await;
                Box::pin(self.merger.run((run, why), op, &self.exec, execute)).await
            }
        }
    }

    async fn execute(
        &self,
        why: Use,
        op: Op,
        limit: Option<Nanos>,
    ) -> (Result<(), Errno>, Option<Buf>) {
        let Op { kind, offset, len: asked, mut buf } = op;
        let len = self.range.end.saturating_sub(offset).min(asked);
        if len < asked {
            if let Some(padding) = buf.as_mut().filter(|_| kind == IoKind::Read) {
                padding[len as usize..asked as usize].fill(0);
            }
            if len == 0 {
                return (Ok(()), buf);
            }
        }
        self.stats.add(|c| match kind {
            IoKind::Read => {
                c.origin_reads += 1;
                c.origin_read_bytes += len;
            }
            IoKind::Write { .. } => c.origin_write_bytes += len,
            _ => {}
        });
        let began = self.exec.now();
        self.pace.began(why);
        let reads = kind == IoKind::Read;
        if reads && why == Use::Client {
            self.meter.borrow_mut().began();
        }
        let timed = !matches!(kind, IoKind::Trim { .. } | IoKind::Zero { .. });
        let open = timed.then(|| self.overdue.begin(self.volume));
        let ended = self.exec.io(self.dev, kind, offset, len, buf, 0, None, limit).await;
        drop(open);
        let now = self.exec.now();
        if reads && why == Use::Client {
            let took = matches!(ended, Ended::Done(Ok(()), _)).then_some(now - began);
            self.meter.borrow_mut().ended(len, took, now);
        }
        self.pace.ended(why, reads.then_some(len), now - began, now);
        // After the end: a flush that began before it does not cover this change.
        if !matches!(kind, IoKind::Read | IoKind::Flush) {
            self.changes.set(self.changes.get() + 1);
            if let Some(unflushed) = self.unflushed.get() {
                unflushed.changed(offset, len);
            }
        }
        match ended {
            Ended::Done(result, buf) => {
                if result.is_err() {
                    self.stats.add(|c| c.origin_errors += 1);
                }
                (result, buf)
            }
            Ended::TimedOut => (Err(Errno::ETIMEDOUT), None),
        }
    }

    /// Flushes the origin.
    pub(crate) async fn flush(&self) -> Result<(), Errno> {
        if let Some(errno) = self.failed.get() {
            return Err(errno);
        }
        let place = (self.range.start, self.range.end - self.range.start);
        let (result, _) = self.io(Use::Unpaced, IoKind::Flush, place, None).await;
        if let Err(errno) = result
            && self.failed.replace(Some(errno)).is_none()
        {
            self.events.emit(Event::OriginFlushFailed { volume: self.volume, errno });
        }
        if mutant::is_active("flush-beside-failed-flush") {
            return result;
        }
        self.failed.get().map_or(Ok(()), Err)
    }

    /// The error of the first failed flush.
    pub(crate) fn flush_failed(&self) -> Option<Errno> {
        self.failed.get()
    }

    /// Makes the changes of this shard that have ended durable, unless a flush has covered them. One flush runs at a time:
    /// another caller waits, and flushes again unless that flush covered its changes.
    pub(crate) async fn make_durable(&self) -> Result<(), Errno> {
        let needed = self.changes.get();
        while self.durable.get() < needed {
            if self.flushing.get() {
                self.waiting.wait(&self.exec).await;
                continue;
            }
            self.flushing.set(true);
            let covers = self.changes.get();
            let unflushed = self.unflushed.get();
            unflushed.inspect(|unflushed| unflushed.flush_began());
            let result = if self.flushes { self.flush().await } else { self.relay().await };
            self.flushing.set(false);
            self.waiting.wake_all(&self.exec);
            result?;
            unflushed.inspect(|unflushed| unflushed.flushed());
            self.durable.set(covers);
        }
        Ok(())
    }

    /// Keeps from now on where changes are not covered by a flush, in blocks of so many bytes.
    pub(crate) fn watch_unflushed(&self, block_bytes: u64) {
        self.unflushed.get_or_init(|| Unflushed::new(block_bytes));
    }

    /// Whether a crash may undo a change of a part of this range. True if changes are not watched.
    pub(crate) fn is_unflushed(&self, offset: u64, len: u64) -> bool {
        if mutant::is_active("record-of-unflushed") {
            return false;
        }
        self.unflushed.get().is_none_or(|unflushed| unflushed.has(offset, len))
    }

    /// Requests a flush from the first shard.
    async fn relay(&self) -> Result<(), Errno> {
        let _open = self.overdue.begin(self.volume);
        self.events.emit(Event::NeedsOriginFlush { volume: self.volume });
        self.relayed.wait(&self.exec).await;
        if let Err(errno) = self.relayed_result.get() {
            self.failed.set(Some(errno));
        }
        self.relayed_result.get()
    }

    /// The first shard has flushed.
    pub(crate) fn relayed(&self, result: Result<(), Errno>) {
        self.relayed_result.set(result);
        self.relayed.set(&self.exec);
    }
}
