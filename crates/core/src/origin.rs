// SPDX-License-Identifier: MIT OR Apache-2.0
//! The origin: the only caller of the executor for it. Every operation states why it happens.
//!
//! An operation has no time limit and its errors are returned as they are. The pace of population learns from clients'
//! operations and from population reads; write-back and what is `Unpaced` it does not count.
//!
//! A failed flush is final: the origin may have dropped what it could not write, and a system reports that once, to
//! whoever asks first. Every later flush fails too, so that each client learns of it; restarting the volume is the
//! operator's decision. The first shard of a volume flushes for all and remembers a failure.

use std::cell::Cell;
use std::rc::Rc;

use crate::buf::Buf;
use crate::event::{Event, Events};
use crate::exec::{DevId, Ended, Exec, IoKind, Signal, WaitList};
use crate::flash::InFlight;
use crate::population::pace::Pace;
pub(crate) use crate::population::pace::Use;
use crate::request::Errno;
use crate::stats::Stats;

/// The origin of a shard, see the module.
pub(crate) struct Origin {
    dev: DevId,
    exec: Exec<InFlight>,
    stats: Rc<Stats>,
    events: Events,
    pace: Rc<Pace>,
    /// Whether this is the shard that flushes for all.
    flushes: bool,
    /// Changes of this shard that have ended, and how many of them a flush covers. What an earlier run wrote counts as
    /// one.
    changes: Cell<u64>,
    durable: Cell<u64>,
    flushing: Cell<bool>,
    waiting: WaitList,
    /// How the first shard's flush for this one ended.
    relayed: Signal,
    relayed_result: Cell<Result<(), Errno>>,
    failed: Cell<Option<Errno>>,
}

impl Origin {
    pub(crate) fn new(
        dev: DevId,
        (exec, stats, events): (&Exec<InFlight>, &Rc<Stats>, &Events),
        pace: &Rc<Pace>,
        shard: u32,
    ) -> Self {
        Self {
            dev,
            exec: exec.clone(),
            stats: Rc::clone(stats),
            events: events.clone(),
            pace: Rc::clone(pace),
            flushes: shard == 0,
            changes: Cell::new(1),
            durable: Cell::new(0),
            flushing: Cell::new(false),
            waiting: WaitList::default(),
            relayed: Signal::default(),
            relayed_result: Cell::new(Ok(())),
            failed: Cell::new(None),
        }
    }

    /// Reads `len` bytes into the beginning of the buffer.
    pub(crate) async fn read(
        &self,
        why: Use,
        offset: u64,
        len: u64,
        buf: Buf,
    ) -> Result<Buf, Errno> {
        let (result, buf) = self.io(why, IoKind::Read, offset, len, Some(buf)).await;
        result.and_then(|()| buf.ok_or(Errno::EIO))
    }

    /// Writes the first `len` bytes of the buffer, which comes back.
    pub(crate) async fn write(
        &self,
        why: Use,
        (offset, len): (u64, u64),
        fua: bool,
        buf: Option<Buf>,
    ) -> (Result<(), Errno>, Option<Buf>) {
        self.io(why, IoKind::Write { fua }, offset, len, buf).await
    }

    /// Writes, trims or zeroes a range, as a client asked for it.
    pub(crate) async fn change(
        &self,
        why: Use,
        kind: IoKind,
        (offset, len): (u64, u64),
        buf: Option<Buf>,
    ) -> Result<(), Errno> {
        self.io(why, kind, offset, len, buf).await.0
    }

    async fn io(
        &self,
        why: Use,
        kind: IoKind,
        offset: u64,
        len: u64,
        buf: Option<Buf>,
    ) -> (Result<(), Errno>, Option<Buf>) {
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
        let ended = self.exec.io(self.dev, kind, offset, len, buf, 0, None, None).await;
        let now = self.exec.now();
        let reads = kind == IoKind::Read;
        self.pace.ended(why, reads.then_some(len), now - began, now);
        // Only now: a flush that began before this change ended does not cover it.
        if !matches!(kind, IoKind::Read | IoKind::Flush) {
            self.changes.set(self.changes.get() + 1);
        }
        match ended {
            Ended::Done(result, buf) => {
                if result.is_err() {
                    self.stats.add(|c| c.origin_errors += 1);
                }
                (result, buf)
            }
            // Without a bound nothing is ever overdue.
            Ended::TimedOut => (Err(Errno::ETIMEDOUT), None),
        }
    }

    /// Flushes the origin.
    pub(crate) async fn flush(&self) -> Result<(), Errno> {
        if let Some(errno) = self.failed.get() {
            return Err(errno);
        }
        let (result, _) = self.io(Use::Unpaced, IoKind::Flush, 0, 0, None).await;
        if let Err(errno) = result
            && self.failed.replace(Some(errno)).is_none()
        {
            self.events.tell(Event::OriginFlushFailed { errno });
        }
        result
    }

    /// How a flush failed, if one ever did.
    pub(crate) fn flush_failed(&self) -> Option<Errno> {
        self.failed.get()
    }

    /// Makes durable what this shard changed before, unless a flush has done so since. One flush at a time: a task that
    /// comes meanwhile waits, and flushes again unless that flush covered its changes.
    pub(crate) async fn make_durable(&self) -> Result<(), Errno> {
        let needed = self.changes.get();
        while self.durable.get() < needed {
            if self.flushing.get() {
                self.waiting.wait(&self.exec).await;
                continue;
            }
            self.flushing.set(true);
            let covers = self.changes.get();
            let result = if self.flushes { self.flush().await } else { self.relay().await };
            self.flushing.set(false);
            self.waiting.wake_all(&self.exec);
            result?;
            self.durable.set(covers);
        }
        Ok(())
    }

    /// Asks the first shard for a flush.
    async fn relay(&self) -> Result<(), Errno> {
        self.events.tell(Event::NeedsOriginFlush);
        self.relayed.wait(&self.exec).await;
        self.relayed_result.get()
    }

    /// The first shard has flushed.
    pub(crate) fn relayed(&self, result: Result<(), Errno>) {
        self.relayed_result.set(result);
        self.relayed.set(&self.exec);
    }
}
