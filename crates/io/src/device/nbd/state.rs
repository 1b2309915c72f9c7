// SPDX-License-Identifier: MIT OR Apache-2.0
//! The state of an NBD device: its operations, its connections, and what may be sent when.
//!
//! Purpose: every decision of the device, without a socket, a thread or a clock: threads report events and the time,
//! and receive actions. One lock protects everything.
//!
//! Invariants, beside those of the module above:
//! - An operation is in exactly one place: queued, sent (`flying` on one connection), or with the thread that received
//!   its reply. It ends once.
//! - Of two overlapping writes at most one has begun, and it ends before the other begins. A write request whose
//!   operation has ended, or will be sent again, but that the server may still execute, is a *ghost*: no overlapping
//!   write begins while it exists.
//! - A flush succeeds only if it covers every write acknowledged before it was sent: it is sent on a connection that is
//!   older than all unflushed writes, and no connection has been lost meanwhile.
//!
//! Why ranges are compared one by one: there are at most a few hundred.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use larder_core::buf::Buf;
use larder_core::exec::{Io, IoKind, Nanos};
use larder_core::extent::Extent;
use larder_core::request::Errno;
use larder_nbd::client::Stream;
use larder_nbd::codec::can;
use slab::Slab;

use super::flight::{Flying, Link};
use super::members::{Finished, Members};
use super::op::{Answered, Op, Sending};
use super::step::ExportInfo;

/// Requests in flight on one connection.
const MOST_FLYING: usize = 128;
/// Requests that a connection takes from the queue at a time.
const MOST_TAKEN: usize = 32;
/// Retired connections that the server has not closed.
const MOST_RETIRED: usize = 8;
/// The server's error when it is shutting down.
const ESHUTDOWN: Errno = Errno(108);

/// The state of a device.
pub(super) struct State {
    export: ExportInfo,
    ops: Slab<Op>,
    queue: VecDeque<usize>,
    /// The ranges of writes that have begun and not ended.
    held: BTreeMap<usize, Range<u64>>,
    links: BTreeMap<u64, Link>,
    next_link: u64,
    pub(super) members: Members,
    /// Number of acknowledged writes that are not durable by themselves.
    writes: u64,
    /// How many of them a flush covers.
    flushed: u64,
    /// Acknowledged, unflushed writes existed when their connection was lost.
    lost: bool,
    /// The same, for drivers: set before a reply of another connection reaches one.
    pub(super) has_lost: Arc<AtomicBool>,
    /// In that case the whole device fails, not only its flushes.
    pub(super) vanishes: bool,
    /// Number of replies, which measures progress.
    pub(super) answers: u64,
    pub(super) closing: bool,
}

impl State {
    pub(super) fn new(export: ExportInfo) -> Self {
        Self {
            export,
            ops: Slab::new(),
            queue: VecDeque::new(),
            held: BTreeMap::new(),
            links: BTreeMap::new(),
            next_link: 0,
            members: Members::default(),
            writes: 0,
            flushed: 0,
            lost: false,
            has_lost: Arc::default(),
            vanishes: false,
            answers: 0,
            closing: false,
        }
    }

    /// Accepts an operation and takes its buffer.
    pub(super) fn submit(&mut self, member: u32, key: u32, io: &mut Io, now: Nanos) {
        let op = Op {
            member,
            key,
            kind: io.kind,
            offset: io.offset,
            len: io.len,
            buf: io.buf.take().map(Arc::new),
            at: io.at,
            progress: 0,
            since: now,
            asks_status: false,
            extents: Vec::new(),
        };
        self.enqueue(op);
    }

    /// Accepts a status request, which is handled as a read without a buffer.
    pub(super) fn ask_status(&mut self, member: u32, offset: u64, len: u64, now: Nanos) {
        let (kind, buf, extents) = (IoKind::Read, None, Vec::new());
        let (at, progress, since) = (0, 0, now);
        self.enqueue(Op {
            member,
            key: 0,
            kind,
            offset,
            len,
            buf,
            at,
            progress,
            since,
            asks_status: true,
            extents,
        });
    }

    fn enqueue(&mut self, op: Op) {
        let key = self.ops.insert(op);
        if self.lost && self.vanishes {
            return self.finish(key, Err(Errno::ENXIO));
        }
        self.queue.push_back(key);
        self.go_on(key);
    }

    /// Ends a queued operation that has no further request.
    fn go_on(&mut self, key: usize) {
        let Some(op) = self.ops.get(key) else { return };
        if op.step(&self.export).is_none() {
            self.queue.retain(|queued| *queued != key);
            self.finish(key, Ok(()));
        }
    }

    fn finish(&mut self, key: usize, result: Result<(), Errno>) {
        let Some(op) = self.ops.try_remove(key) else { return };
        self.held.remove(&key);
        // Another reference exists only while a thread is sending the buffer; then it is copied.
        let own =
            |buf: Arc<Buf>| Arc::try_unwrap(buf).unwrap_or_else(|shared| Buf::copy_of(&shared));
        let buf = op.buf.map(own);
        self.members.notify(op.member, Finished { key: op.key, result, buf, extents: op.extents });
    }

    /// Whether an operation is in flight or queued.
    pub(super) fn is_busy(&self) -> bool {
        !self.ops.is_empty()
    }

    pub(super) fn waiting(&self) -> usize {
        self.queue.len()
    }

    /// Number of connections that are retired and not closed.
    fn retired(&self) -> usize {
        self.links.values().filter(|link| link.retired).count()
    }

    /// Whether another connection may be made.
    pub(super) fn may_connect(&self) -> bool {
        let most = if self.export.can(can::MULTI_CONN) { MOST_RETIRED } else { 1 };
        self.retired() < most
    }

    pub(super) fn has_links(&self) -> bool {
        !self.links.is_empty()
    }

    pub(super) fn live_links(&self) -> usize {
        self.links.len() - self.retired()
    }

    pub(super) fn add_link(&mut self, stream: Option<Stream>, has_status: bool) -> u64 {
        let number = self.next_link;
        self.next_link += 1;
        self.links.insert(number, Link::new(stream, self.writes, has_status));
        number
    }

    /// Shuts down every connection, whatever is in flight on it.
    pub(super) fn hang_up(&self) {
        for stream in self.links.values().filter_map(|link| link.stream.as_ref()) {
            let _ = stream.shutdown(std::net::Shutdown::Both);
        }
    }

    pub(super) fn is_usable(&self, link: u64) -> bool {
        self.links.get(&link).is_some_and(|link| !link.retired)
    }

    /// Whether the connection may be used; reports that its last batch is sent.
    pub(super) fn is_live(&mut self, link: u64) -> bool {
        let Some(link) = self.links.get_mut(&link) else { return false };
        link.sending = false;
        !link.retired
    }

    /// The next requests to send on a connection, in order; the first gets the cookie `cookie`, the others the
    /// following ones.
    pub(super) fn take(&mut self, link: u64, mut cookie: u64, now: Nanos) -> Vec<Sending> {
        let mut taken = Vec::new();
        let live = self.live_links().max(1);
        let Some(found) = self.links.get(&link) else { return taken };
        let (flying, knows_all) = (found.flying.len(), found.born <= self.flushed);
        let has_status = found.has_status;
        if self.vanishes && !knows_all {
            return taken;
        }
        let share = self.queue.len().div_ceil(live);
        let most = share.min(MOST_TAKEN).min(MOST_FLYING.saturating_sub(flying));
        let mut skipped: Vec<Range<u64>> = Vec::new();
        let mut at = 0;
        while taken.len() < most && at < self.queue.len() {
            let key = self.queue[at];
            let Some(op) = self.ops.get(key) else { break };
            let step = op.step(&self.export);
            if op.asks_status && !has_status {
                self.queue.remove(at);
                self.finish(key, Err(Errno::EOPNOTSUPP));
                continue;
            }
            let flushes = step.is_some_and(|step| step.kind == IoKind::Flush);
            if flushes && self.lost {
                self.queue.remove(at);
                self.finish(key, Err(Errno::EIO));
                continue;
            }
            if flushes && !knows_all {
                at += 1;
                continue;
            }
            if let Some(range) = op.writes()
                && !self.held.contains_key(&key)
                && (skipped.iter().any(|s| overlap(s, &range)) || self.is_held(&range))
            {
                skipped.push(range);
                at += 1;
                continue;
            }
            self.queue.remove(at);
            if let Some(sending) = self.send(link, cookie, key, now) {
                taken.push(sending);
                cookie += 1;
            }
        }
        if let Some(link) = self.links.get_mut(&link) {
            link.sending = !taken.is_empty();
        }
        taken
    }

    /// Marks the next request of an operation as sent.
    fn send(&mut self, link: u64, cookie: u64, key: usize, now: Nanos) -> Option<Sending> {
        let op = self.ops.get_mut(key)?;
        let link = self.links.get_mut(&link)?;
        let step = op.step(&self.export)?;
        if let Some(range) = op.writes() {
            self.held.insert(key, range);
        }
        let start = op.at + op.progress as usize;
        let data = match (&op.buf, op.kind, step.kind) {
            (Some(buf), IoKind::Write { .. }, IoKind::Write { .. }) => {
                Some((Arc::clone(buf), start..start + step.len as usize))
            }
            _ => None,
        };
        let flying = Flying { op: Some(key), step, sent: now, covers: self.writes };
        link.flying.insert(cookie, flying);
        Some(Sending { step, data, asks_status: op.asks_status })
    }

    /// Whether a write that has begun and not ended, or a ghost, overlaps the range.
    fn is_held(&self, range: &Range<u64>) -> bool {
        let flying = self.links.values().flat_map(|link| link.flying.values());
        let mut ghosts = flying.filter(|f| f.op.is_none()).filter_map(|f| f.step.writes());
        let mut held = self.held.values();
        held.any(|held| overlap(held, range)) || ghosts.any(|ghost| overlap(&ghost, range))
    }

    /// Records the extents of the reply that is being received.
    pub(super) fn learned(&mut self, link: u64, cookie: u64, extents: Vec<Extent>) {
        let flying = self.links.get(&link).and_then(|link| link.flying.get(&cookie));
        if let Some(op) = flying.and_then(|f| f.op).and_then(|key| self.ops.get_mut(key)) {
            op.extents = extents;
        }
    }

    /// Matches a reply to its operation. `None` if no operation waits for it. The caller fills a returned buffer
    /// before it calls [`settle`](Self::settle).
    pub(super) fn answered(
        &mut self,
        number: u64,
        cookie: u64,
        result: Result<(), Errno>,
    ) -> Option<Answered> {
        let link = self.links.get_mut(&number)?;
        let Flying { op, step, covers, .. } = link.flying.remove(&cookie)?;
        let Some(key) = op else {
            // A ghost has ended; a retired connection without ghosts is closed.
            if link.retired && link.flying.is_empty() {
                link.end();
            }
            return None;
        };
        if result == Err(ESHUTDOWN) {
            self.queue.push_front(key);
            self.retire(number, "the server is shutting down");
            return None;
        }
        if result.is_ok() && step.writes().is_some() && !step.is_durable() {
            self.writes += 1;
        }
        if result.is_ok() && step.kind == IoKind::Flush {
            self.flushed = self.flushed.max(covers);
        }
        self.answers += 1;
        let op = self.ops.get_mut(key)?;
        let mut answered = Answered { op: key, step, memory: None, result };
        if step.kind == IoKind::Read && result.is_ok() {
            let start = op.at + op.progress as usize;
            let own = op.buf.take().and_then(|buf| Arc::try_unwrap(buf).ok());
            answered.memory = own.map(|buf| (buf, start..start + step.len as usize));
        }
        Some(answered)
    }

    /// Takes a reply's buffer back; the operation continues or ends.
    pub(super) fn settle(&mut self, answered: Answered) {
        let Answered { op: key, step, memory, mut result } = answered;
        if self.lost && (self.vanishes || step.kind == IoKind::Flush) {
            result = Err(self.failure());
        }
        let Some(op) = self.ops.get_mut(key) else { return };
        let without = memory.is_none() && !op.asks_status;
        if step.kind == IoKind::Read && without && result.is_ok() {
            result = Err(Errno::EIO);
        }
        if let Some((buf, _)) = memory {
            op.buf = Some(Arc::new(buf));
        }
        if result.is_err() {
            return self.finish(key, result);
        }
        op.progress = step.end_progress(op.offset, op.len);
        match op.step(&self.export) {
            Some(_) => self.queue.push_front(key),
            None => self.finish(key, Ok(())),
        }
    }

    /// Retires a connection: its requests in flight are sent again on another one. The connection stays open as long as
    /// the server may still execute its writes.
    pub(super) fn retire(&mut self, number: u64, why: &str) {
        let Some(link) = self.links.get_mut(&number).filter(|link| !link.retired) else { return };
        link.retired = true;
        let mut again: Vec<(u64, usize)> = Vec::new();
        for (cookie, flying) in &mut link.flying {
            again.extend(flying.op.take().map(|key| (*cookie, key)));
        }
        link.flying.retain(|_, flying| flying.step.writes().is_some());
        if link.flying.is_empty() {
            link.end();
        } else if link.sending || !self.export.can(can::MULTI_CONN) {
            // A thread that is sending must not wait for a server that does not read; and a server that accepts one
            // connection at a time must release this one.
            link.shutdown(std::net::Shutdown::Write);
        }
        if !self.closing {
            let count = again.len();
            tracing::warn!("NBD connection abandoned: {why}; {count} requests are sent again");
        }
        // In the order in which they were sent.
        again.sort_unstable_by_key(|(cookie, _)| std::cmp::Reverse(*cookie));
        again.into_iter().for_each(|(_, key)| self.queue.push_front(key));
        self.note_loss();
    }

    /// Records a lost connection: acknowledged, unflushed writes of any connection may be lost, because the others may
    /// be about to end as well.
    fn note_loss(&mut self) {
        if self.closing || self.lost || self.writes == self.flushed {
            return;
        }
        self.lost = true;
        self.has_lost.store(true, Ordering::Release);
        if self.vanishes {
            tracing::error!(
                "the NBD server may have lost acknowledged writes; the device is not used any more"
            );
            return self.fail_waiting();
        }
        tracing::error!(
            "ALARM: the NBD server had acknowledged writes that were not flushed and may have lost them; \
             every flush fails from now on"
        );
    }

    /// The error of operations that were not executed.
    fn failure(&self) -> Errno {
        if self.lost && self.vanishes { Errno::ENXIO } else { Errno::EIO }
    }

    /// Handles a server that broke the protocol: later replies on this connection are ignored, and its ghosts exist
    /// until the server closes it.
    pub(super) fn distrust(&mut self, number: u64, why: &str) {
        self.retire(number, why);
        if let Some(link) = self.links.get_mut(&number) {
            link.shutdown(std::net::Shutdown::Write);
        }
    }

    /// The server closed a connection, and executes nothing more of it.
    pub(super) fn over(&mut self, number: u64, why: &str) {
        self.retire(number, why);
        self.links.remove(&number);
    }

    /// Applies the time limits: retires connections with overdue replies, and fails operations that are overdue.
    pub(super) fn expire(&mut self, now: Nanos, answer_within: Nanos, give_up_after: Nanos) {
        let overdue = |f: &Flying| {
            let limit = if f.step.kind == IoKind::Flush { give_up_after } else { answer_within };
            now.saturating_sub(f.sent) > limit
        };
        let late = self.links.iter().filter(|(_, link)| link.flying.values().any(overdue));
        let late: Vec<u64> = late.map(|(number, _)| *number).collect();
        late.into_iter().for_each(|number| self.retire(number, "a reply is overdue"));
        let over = |op: &Op| now.saturating_sub(op.since) > give_up_after;
        let over = self.ops.iter().filter(|(_, op)| over(op)).map(|(key, _)| key);
        let over: Vec<usize> = over.collect();
        for flying in self.links.values_mut().flat_map(|link| link.flying.values_mut()) {
            flying.op = flying.op.filter(|key| !over.contains(key));
        }
        self.fail(&over);
    }

    /// Fails every queued operation.
    pub(super) fn fail_waiting(&mut self) {
        let waiting: Vec<usize> = self.queue.iter().copied().collect();
        self.fail(&waiting);
    }

    fn fail(&mut self, keys: &[usize]) {
        let errno = self.failure();
        self.queue.retain(|key| !keys.contains(key));
        for &key in keys {
            // An operation whose reply is being processed ends with it.
            let taken = self.ops.get(key).is_some_and(Op::is_being_taken);
            if !taken {
                self.finish(key, Err(errno));
            }
        }
    }
}

fn overlap(a: &Range<u64>, b: &Range<u64>) -> bool {
    a.start < b.end && b.start < a.end
}

#[cfg(test)]
mod tests;
