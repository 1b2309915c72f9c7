// SPDX-License-Identifier: MIT OR Apache-2.0
//! A hard disk: mechanics, queue and write cache.
//!
//! The head does one thing at a time: it serves a queued request or drains the write cache. Reads are queued, and
//! writes if there is no cache. With a cache:
//! - A write completes once its data has crossed the bus and the command overhead has passed, if there is room;
//!   otherwise it waits for room, in order of arrival.
//! - A read of dirty data is served from the cache.
//! - Reads take precedence. The drain starts after a while without reads, so that it does not run between two reads of
//!   one client. Among steady reads it gets one turn in 16; it gets every other turn while a flush, a FUA write, or a
//!   write without room waits for it.
//! - A flush waits until all data that was dirty at its arrival is on the medium. A FUA write is a write followed by a
//!   flush, as Linux does it on such disks. A cache with a battery completes both at once.
//!
//! The overhead of a command is part of the rated seek; it is visible only where no seek hides it.
//!
//! Invariant: the head is never idle while a request is queued or waits for the drain.
//!
//! Why writes to a full cache do not go to the medium directly: the drain in order of offsets is more efficient than
//! the queue's choice among few requests.

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

/// Reads for each drain if no request waits for the drain.
const DRAIN_SHARE: u32 = 16;
/// Time without a read after which the drain starts by itself.
const DRAIN_GRACE_NS: Nanos = 2_000_000;
/// The longest drain of neighbouring ranges.
const DRAIN_BYTES_MAX: u64 = 512 << 10;

/// A write that waits for room.
struct Waiting {
    id: u64,
    order: Order,
    op: Op,
}

/// A disk.
pub struct Disk {
    platter: Platter,
    queue: Queue,
    cache: Option<WriteCache>,
    waiting: VecDeque<Waiting>,
    bus: Wire,
    command_ns: Nanos,
    /// When the head becomes free.
    busy_until: Option<Nanos>,
    /// When the drain starts by itself; only while the head is idle.
    drain_at: Option<Nanos>,
    last_read_at: Nanos,
    reads_since_drain: u32,
    done: Completions,
}

impl Disk {
    /// An idle disk. The seed determines the initial angle of the platter.
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

    /// Processes all events up to `now`, each at its own time.
    fn advance(&mut self, now: Nanos) {
        while let Some(at) = self.busy_until.or(self.drain_at).filter(|&at| at <= now) {
            if self.busy_until.take().is_some() {
                self.end_drain(at);
            }
            self.dispatch(at);
        }
    }

    /// Gives an idle head its next task.
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

    /// When the drain may use the head; `None` if nothing is dirty, or reads take precedence.
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

    /// After a drain, continues the requests that waited for it.
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

    /// Stores a write in the cache, which has room.
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
