// SPDX-License-Identifier: MIT OR Apache-2.0
//! A hard disk: mechanics, queue and write cache put together.
//!
//! The head does one thing at a time: a queued request, or a drain of the write cache. Queued are
//! reads, and writes where there is no cache. With a cache:
//! - A write is done once its bytes are over the bus and the command's overhead has passed, if
//!   there is room; else it waits for room, in order of arrival.
//! - A read of dirty bytes is answered from the cache.
//! - Reads go first. The drain starts after a while without reads, so that it does not slip in
//!   between two reads of one client; among steady reads it gets one turn in 16; and every other
//!   turn as soon as someone waits for it: a flush, a FUA write, or a write without room.
//! - A flush waits until all that was dirty when it came is on the medium; a FUA write is a write
//!   with a flush after it, as Linux does it on disks like this one. A cache with a battery
//!   completes both at once.
//!
//! The overhead of a command is included in the rated seek; it shows only where no seek hides it.
//!
//! Invariant: the head is never idle while something is queued or someone waits for the drain.
//! Why not let writes to a full cache go to the medium directly: the drain in order of place is
//! better than the queue's choice among so few.

mod platter;
mod queue;
mod spec;
mod write_cache;

use std::collections::VecDeque;

use self::platter::{Plan, Platter};
use self::queue::{Pending, Queue};
use self::write_cache::{Barrier, WriteCache};
use crate::completions::{Completions, Order};
use crate::wire::Wire;
use crate::{Kind, Model, Nanos, Op, SplitMix64};

pub use self::spec::{DiskSpec, WriteCacheSpec};

/// Reads for each drain if nobody waits for the drain.
const DRAIN_SHARE: u32 = 16;
/// How long there must have been no read before the drain starts by itself.
const DRAIN_GRACE_NS: Nanos = 2_000_000;
/// A drain of neighbours keeps the head for no longer than this takes.
const DRAIN_BYTES_MAX: u64 = 512 << 10;

/// A write that waits for room.
struct Waiting {
    id: u64,
    order: Order,
    op: Op,
}

/// The disk.
pub struct Disk {
    platter: Platter,
    queue: Queue,
    cache: Option<WriteCache>,
    waiting: VecDeque<Waiting>,
    bus: Wire,
    command_ns: Nanos,
    /// The head works until then.
    busy_until: Option<Nanos>,
    /// The drain starts by itself then. Only while the head rests.
    drain_at: Option<Nanos>,
    last_read_at: Nanos,
    reads_since_drain: u32,
    done: Completions,
}

impl Disk {
    /// An idle disk. The seed sets the angle at which its platter starts.
    #[must_use]
    pub fn new(spec: &DiskSpec, capacity_bytes: u64, seed: u64) -> Self {
        let phase = SplitMix64::new(seed).next_u64();
        Self {
            platter: Platter::new(spec, capacity_bytes, phase),
            queue: Queue::new(spec.queue_depth, spec.patience),
            cache: spec.cache.map(WriteCache::new),
            waiting: VecDeque::new(),
            bus: Wire::new(spec.bus_bytes_per_second),
            command_ns: spec.command_ns,
            busy_until: None,
            drain_at: None,
            last_read_at: 0,
            reads_since_drain: 0,
            done: Completions::default(),
        }
    }

    /// Lets all happen that happens by `now`, each thing at its own time.
    fn advance(&mut self, now: Nanos) {
        while let Some(at) = self.busy_until.or(self.drain_at).filter(|&at| at <= now) {
            if self.busy_until.take().is_some() {
                self.end_drain(at);
            }
            self.dispatch(at);
        }
    }

    /// Gives a head that is free the next thing to do.
    fn dispatch(&mut self, now: Nanos) {
        self.drain_at = None;
        while self.busy_until.is_none() {
            let due = self.drain_due();
            if due.is_some_and(|at| at <= now) {
                self.begin_drain(now);
            } else if let Some((pending, plan)) = self.queue.pop(&self.platter, now) {
                self.serve(now, &pending, plan);
            } else {
                self.drain_at = due;
                return;
            }
        }
    }

    /// When the drain may have the head. None if there is nothing to drain, or if reads go first.
    fn drain_due(&self) -> Option<Nanos> {
        let cache = self.cache.as_ref().filter(|cache| cache.is_dirty())?;
        let awaited = cache.has_barrier() || !self.waiting.is_empty();
        let share = if awaited { 1 } else { DRAIN_SHARE };
        if self.reads_since_drain >= share || (awaited && self.queue.is_empty()) {
            Some(0)
        } else if self.queue.is_empty() {
            Some(self.last_read_at.saturating_add(DRAIN_GRACE_NS))
        } else {
            None
        }
    }

    fn serve(&mut self, now: Nanos, pending: &Pending, plan: Plan) {
        let span = &pending.span;
        let end = match plan {
            Plan::Buffered => {
                self.platter.did_hit(span, now);
                self.last_read_at = now;
                self.bus.carry(now, 0, span.end - span.offset).saturating_add(self.command_ns)
            }
            Plan::Media { end, .. } if pending.write => {
                self.platter.did_write(span);
                self.busy_until = Some(end);
                end
            }
            Plan::Media { end, joins, .. } => {
                self.platter.did_read(span, end, joins);
                self.busy_until = Some(end);
                self.last_read_at = end;
                self.reads_since_drain = self.reads_since_drain.saturating_add(1);
                end.max(now + self.command_ns)
            }
        };
        self.done.finish(pending.order, pending.id, end);
    }

    fn begin_drain(&mut self, now: Nanos) {
        self.reads_since_drain = 0;
        let Some(cache) = &mut self.cache else { return };
        let Some((offset, end)) = cache.begin_drain(DRAIN_BYTES_MAX) else { return };
        let span = self.platter.span(offset, end - offset);
        if let Plan::Media { end, .. } = self.platter.plan_write(now, &span) {
            self.platter.did_write(&span);
            self.busy_until = Some(end);
        }
    }

    /// If the head has just drained, lets those go on who waited for it.
    fn end_drain(&mut self, now: Nanos) {
        let Some(cache) = &mut self.cache else { return };
        cache.end_drain();
        self.pass_barriers(now);
        while let Some(waiting) = self.waiting.pop_front() {
            if !self.has_room(waiting.op.len) {
                self.waiting.push_front(waiting);
                break;
            }
            self.absorb(now, waiting.id, waiting.order, waiting.op);
        }
    }

    fn has_room(&self, len: u64) -> bool {
        self.cache.as_ref().is_some_and(|cache| cache.has_room(len))
    }

    /// Takes a write into the cache, which has room.
    fn absorb(&mut self, now: Nanos, id: u64, order: Order, op: Op) {
        let end = self.bus.carry(now, 0, op.len).saturating_add(self.command_ns);
        let span = self.platter.span(op.offset, op.len);
        let Some(cache) = &mut self.cache else { return };
        cache.insert(span.offset, span.end);
        if op.fua && cache.is_volatile() {
            cache.add_barrier(Barrier { id, order, earliest: end });
            self.pass_barriers(now);
        } else {
            self.done.finish(order, id, end);
        }
    }

    fn pass_barriers(&mut self, now: Nanos) {
        let Some(cache) = &mut self.cache else { return };
        while let Some(barrier) = cache.pop_barrier() {
            self.done.finish(barrier.order, barrier.id, barrier.earliest.max(now));
        }
    }

    fn read(&mut self, now: Nanos, id: u64, order: Order, op: Op) {
        let span = self.platter.span(op.offset, op.len);
        if self.cache.as_ref().is_some_and(|cache| cache.covers(span.offset, span.end)) {
            let end = self.bus.carry(now, 0, op.len).saturating_add(self.command_ns);
            self.done.finish(order, id, end);
        } else {
            self.queue.push(Pending { id, order, span, write: false });
        }
    }

    fn write(&mut self, now: Nanos, id: u64, order: Order, op: Op) {
        if self.cache.is_none() {
            let span = self.platter.span(op.offset, op.len);
            self.queue.push(Pending { id, order, span, write: true });
        } else if self.waiting.is_empty() && self.has_room(op.len) {
            self.absorb(now, id, order, op);
        } else {
            self.waiting.push_back(Waiting { id, order, op });
        }
    }

    fn flush(&mut self, now: Nanos, id: u64, order: Order) {
        let earliest = now.saturating_add(self.command_ns);
        if let Some(cache) = self.cache.as_mut().filter(|cache| cache.is_volatile()) {
            cache.add_barrier(Barrier { id, order, earliest });
            self.pass_barriers(now);
        } else {
            self.done.finish(order, id, earliest);
        }
    }
}

impl Model for Disk {
    fn submit(&mut self, now: Nanos, id: u64, op: Op) {
        let now = self.done.observe(now);
        self.advance(now);
        let order = self.done.admit();
        match op.kind {
            Kind::Read => self.read(now, id, order, op),
            Kind::Write => self.write(now, id, order, op),
            Kind::Flush => self.flush(now, id, order),
            Kind::Trim => self.done.finish(order, id, now.saturating_add(self.command_ns)),
        }
        if self.busy_until.is_none() {
            self.dispatch(now);
        }
    }

    fn next(&self) -> Option<Nanos> {
        let event = self.busy_until.or(self.drain_at);
        let end = self.done.next();
        event.into_iter().chain(end).min()
    }

    fn poll(&mut self, now: Nanos) -> Option<(u64, Nanos)> {
        let now = self.done.observe(now);
        self.advance(now);
        self.done.take(now)
    }

    fn in_flight(&self) -> usize {
        self.done.in_flight()
    }
}
