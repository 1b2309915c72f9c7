// SPDX-License-Identifier: MIT OR Apache-2.0
//! The committer: the one task that writes the log.
//!
//! A batch is whatever was enqueued while the one before it was written. Both copies are written
//! at the same time under FUA, and the batch counts when both are durable. When the log is full
//! the committer waits for the checkpoint, which it asked for long before.
//!
//! A switch to a new region is its work too, so that no batch is under way meanwhile: what was
//! enqueued since the snapshot goes to the new log first, then the new header makes it count.

use std::rc::Rc;

use super::record::{Record, Tail, pack};
use super::recover::Header;
use crate::buf::Buf;
use crate::cache::Cache;
use crate::exec::{Ended, IoFuture, IoKind};
use crate::flash::Hold;
use crate::mutant;
use crate::shard::Core;

/// A checkpoint whose payload is durable.
pub(super) struct Switch {
    pub region: u8,
    pub generation: u64,
    pub payload_crc: u32,
}

/// Why a step of the committer ended.
enum Step {
    Done,
    Failed,
}

impl Core {
    /// The committer's life.
    pub(crate) async fn journal_committer(self: Rc<Self>, cache: std::rc::Weak<Cache>) {
        loop {
            let Some(cache) = cache.upgrade() else { return };
            let Some(journal) = cache.journal() else { return };
            if journal.failed.get() || cache.closed() {
                return journal.fail(&self.exec);
            }
            let (lone, switch) = (journal.lone_header.take(), journal.switch.take());
            let step = match (lone, journal.region.get(), switch) {
                (Some(header), Some(region), switch) => {
                    journal.switch.replace(switch);
                    match self.journal_header(&cache, region, &header).await {
                        Ok(()) => Step::Done,
                        Err(()) => Step::Failed,
                    }
                }
                (_, _, Some(switch)) => self.journal_switch(&cache, switch).await,
                (..) => self.journal_commit(&cache).await,
            };
            if matches!(step, Step::Failed) {
                journal.fail(&self.exec);
                return self.give_up(&cache.device, "its log cannot be written".to_owned());
            }
            let (room, half) = (journal.room(), journal.layout.log_blocks / 2);
            if room <= half {
                journal.checkpoint_due.set(&self.exec);
            }
            let none = journal.region.get().is_none();
            let idle = none || room == 0 || journal.queue.borrow().records.is_empty();
            if idle && journal.switch.borrow().is_none() {
                journal.work.wait(&self.exec).await;
            }
        }
    }

    async fn journal_commit(&self, cache: &Rc<Cache>) -> Step {
        let Some(journal) = cache.journal() else { return Step::Done };
        let Some(region) = journal.region.get() else { return Step::Done };
        let (room, mut tail) = (journal.room(), journal.tail.get());
        let at = tail.sequence as u32;
        let (bytes, taken) =
            pack(&journal.queue.borrow().records, &journal.layout, room, &mut tail);
        if taken == 0 {
            return Step::Done;
        }
        if self.journal_write(cache, region, at, bytes).await.is_err() {
            return Step::Failed;
        }
        journal.tail.set(tail);
        let mut queue = journal.queue.borrow_mut();
        queue.records.drain(..taken);
        queue.durable += taken as u64;
        drop(queue);
        journal.wake(&self.exec);
        Step::Done
    }

    /// Both copies of some blocks of a log.
    async fn journal_write(
        &self,
        cache: &Rc<Cache>,
        region: u8,
        at: u32,
        bytes: Vec<u8>,
    ) -> Result<(), ()> {
        let Some(journal) = cache.journal() else { return Err(()) };
        let fua = !mutant::is_active("log-not-durable");
        let copies = [0, 1].map(|copy| {
            let offset = journal.layout.log_block(region, copy, at);
            self.meta_io(cache, IoKind::Write { fua }, offset, Some(Buf::copy_of(&bytes)), None)
        });
        let mut good = true;
        for copy in copies {
            good &= self.meta_ended(cache, copy.await).is_ok();
        }
        if good { Ok(()) } else { Err(()) }
    }

    /// Both copies of a region's header, durable.
    pub(super) async fn journal_header(
        &self,
        cache: &Rc<Cache>,
        region: u8,
        header: &Header,
    ) -> Result<(), ()> {
        let Some(journal) = cache.journal() else { return Err(()) };
        let copies: &[u8] = if mutant::is_active("one-header") { &[0] } else { &[0, 1] };
        let write = |copy: &u8| {
            let at = journal.layout.header(region, *copy);
            let bytes = Buf::copy_of(&header.encode(&journal.layout, at));
            let held = Some(journal.making.clone());
            self.meta_io(cache, IoKind::Write { fua: true }, at, Some(bytes), held)
        };
        let under_way: Vec<_> = copies.iter().map(write).collect();
        let mut good = true;
        for copy in under_way {
            good &= self.meta_ended(cache, copy.await).is_ok();
        }
        if good { Ok(()) } else { Err(()) }
    }

    async fn journal_switch(&self, cache: &Rc<Cache>, switch: Switch) -> Step {
        let Some(journal) = cache.journal() else { return Step::Done };
        let generation = switch.generation;
        let mut tail = Tail::first(journal.volume, generation, &journal.layout);
        let since = journal.queue.borrow_mut().since.take().unwrap_or_default();
        // What comes from here on waits until the switch is done.
        let enqueued = journal.queue.borrow().enqueued;
        let kept: &[Record] = if mutant::is_active("switch-forgets") { &[] } else { &since };
        let mut left = kept;
        while !left.is_empty() {
            let (at, room) =
                (tail.sequence as u32, journal.layout.log_blocks - tail.sequence as u32);
            let (bytes, taken) = pack(left, &journal.layout, room, &mut tail);
            if taken == 0 || self.journal_write(cache, switch.region, at, bytes).await.is_err() {
                return Step::Failed;
            }
            left = &left[taken..];
        }
        let header = Header {
            volume: journal.volume,
            generation,
            follows: journal.tail.get().generation,
            payload_crc: Some(switch.payload_crc),
        };
        if self.journal_header(cache, switch.region, &header).await.is_err() {
            return Step::Failed;
        }
        journal.region.set(Some(switch.region));
        journal.tail.set(tail);
        let mut queue = journal.queue.borrow_mut();
        let late = (queue.enqueued - enqueued) as usize;
        let durable = queue.records.len() - late;
        queue.records.drain(..durable);
        queue.durable = enqueued;
        drop(queue);
        journal.wake(&self.exec);
        journal.switched.set(&self.exec);
        Step::Done
    }

    /// An operation on the metadata, and its end.
    pub(super) async fn flash_meta(
        &self,
        cache: &Rc<Cache>,
        kind: IoKind,
        offset: u64,
        buf: Option<Buf>,
    ) -> Result<(), ()> {
        let held = cache.journal().map(|journal| journal.making.clone());
        let ended = self.meta_io(cache, kind, offset, buf, held).await;
        self.meta_ended(cache, ended)
    }

    /// Asks for an operation on the metadata, at once.
    fn meta_io(
        &self,
        cache: &Rc<Cache>,
        kind: IoKind,
        offset: u64,
        buf: Option<Buf>,
        region: Option<Rc<()>>,
    ) -> IoFuture<Hold> {
        let len = buf.as_ref().map_or(0, |b| b.len() as u64);
        self.stats.add(|c| c.flash_write_bytes += len);
        let (hold, bound) = (self.hold(cache, region), self.flash_bound());
        self.exec.io(cache.flash.dev, kind, offset, len, buf, 0, Some(hold), bound)
    }

    fn meta_ended(&self, cache: &Rc<Cache>, ended: Ended) -> Result<(), ()> {
        match ended {
            Ended::Done(Ok(()), _) => Ok(()),
            Ended::Done(Err(_), _) => {
                self.stats.add(|c| c.flash_errors += 1);
                Err(())
            }
            Ended::TimedOut => {
                self.flash_overdue(&cache.device);
                Err(())
            }
        }
    }
}

impl super::Journal {
    /// Blocks of the log that are free.
    pub(super) fn room(&self) -> u32 {
        self.layout.log_blocks - self.tail.get().sequence as u32
    }

    /// Whether so much of the log is used that the state should be written anew.
    pub(super) fn is_filling(&self) -> bool {
        self.room() <= self.layout.log_blocks / 2
    }
}
