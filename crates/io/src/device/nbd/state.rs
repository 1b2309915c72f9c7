// SPDX-License-Identifier: MIT OR Apache-2.0
//! What an NBD device knows: its operations, its connections, and what may be sent when.
//!
//! Purpose: every decision of the device, without a socket, a thread or a clock: threads come in
//! with what happened and the time, and go out with what to do. All of it is under one lock.
//!
//! Invariants, beside those of the module above:
//! - An operation is in exactly one place: queued, sent (`flying` on one connection), or with the
//!   thread that took its answer. It ends once.
//! - Of two writing operations that overlap at most one has begun, and it ends before the other
//!   begins. A writing request whose operation is over, or is to be sent again, but that the
//!   server may still carry out, is a *ghost*: nothing that overlaps it begins while it may live.
//! - A flush ends well only if every write answered before it was sent is covered by it: it goes
//!   out on a connection that is older than all of them that no flush has covered yet, and no
//!   connection has been lost meanwhile.
//!
//! Why ranges are compared one by one: there are at most some hundred.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

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

/// Requests on their way on one connection.
const MOST_FLYING: usize = 128;
/// Requests that one connection takes at a time.
const MOST_TAKEN: usize = 32;
/// Connections that are not used any more and that the server has not ended.
const MOST_RETIRED: usize = 8;
/// "The server is going away."
const ESHUTDOWN: Errno = Errno(108);

/// See the module.
pub(super) struct State {
    export: ExportInfo,
    ops: Slab<Op>,
    queue: VecDeque<usize>,
    /// What writing operations that have begun and not ended hold against each other.
    held: BTreeMap<usize, Range<u64>>,
    links: BTreeMap<u64, Link>,
    next_link: u64,
    pub(super) members: Members,
    /// Writes answered and not durable by themselves, counted.
    writes: u64,
    /// So many of them are covered by a flush.
    flushed: u64,
    /// Writes that were answered and not flushed when their connection was lost.
    lost: bool,
    /// Then the device is gone, not only its flushes.
    pub(super) vanishes: bool,
    /// Answers so far, which is progress.
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
            vanishes: false,
            answers: 0,
            closing: false,
        }
    }

    /// Takes an operation in, and its memory from it.
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
        self.enter(op);
    }

    /// Takes a question in: what a range is. It goes its way as a read without memory does.
    pub(super) fn ask_status(&mut self, member: u32, offset: u64, len: u64, now: Nanos) {
        let (kind, buf, extents) = (IoKind::Read, None, Vec::new());
        let (at, progress, since) = (0, 0, now);
        self.enter(Op {
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

    fn enter(&mut self, op: Op) {
        let key = self.ops.insert(op);
        if self.lost && self.vanishes {
            return self.finish(key, Err(Errno::ENXIO));
        }
        self.queue.push_back(key);
        self.go_on(key);
    }

    /// Ends a queued operation that has no (further) step.
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
        // Somebody else has it only while he is sending it; that one is too late anyway.
        let own =
            |buf: Arc<Buf>| Arc::try_unwrap(buf).unwrap_or_else(|shared| Buf::copy_of(&shared));
        let buf = op.buf.map(own);
        self.members.tell(op.member, Finished { key: op.key, result, buf, extents: op.extents });
    }

    /// Whether something is under way.
    pub(super) fn is_busy(&self) -> bool {
        !self.ops.is_empty()
    }

    pub(super) fn waiting(&self) -> usize {
        self.queue.len()
    }

    /// How many connections are not used any more and not over.
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

    pub(super) fn add_link(&mut self, stream: Option<Stream>, tells_status: bool) -> u64 {
        let number = self.next_link;
        self.next_link += 1;
        self.links.insert(number, Link::new(stream, self.writes, tells_status));
        number
    }

    /// Ends every connection, whatever is on it.
    pub(super) fn hang_up(&self) {
        for stream in self.links.values().filter_map(|link| link.stream.as_ref()) {
            let _ = stream.shutdown(std::net::Shutdown::Both);
        }
    }

    pub(super) fn is_usable(&self, link: u64) -> bool {
        self.links.get(&link).is_some_and(|link| !link.retired)
    }

    /// Whether the connection may be used; what was being sent on it has been sent.
    pub(super) fn is_live(&mut self, link: u64) -> bool {
        let Some(link) = self.links.get_mut(&link) else { return false };
        link.sending = false;
        !link.retired
    }

    /// What to send next on a connection, in order; the first will have the cookie `cookie`, the
    /// others the ones after it.
    pub(super) fn take(&mut self, link: u64, mut cookie: u64, now: Nanos) -> Vec<Sending> {
        let mut taken = Vec::new();
        let live = self.live_links().max(1);
        let Some(found) = self.links.get(&link) else { return taken };
        let (flying, knows_all) = (found.flying.len(), found.born <= self.flushed);
        let tells_status = found.tells_status;
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
            if op.asks_status && !tells_status {
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

    /// Marks the next step of an operation as sent.
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

    /// Whether something that may still change the range stands in its way: an operation that has
    /// begun and not ended, or a ghost.
    fn is_held(&self, range: &Range<u64>) -> bool {
        let flying = self.links.values().flat_map(|link| link.flying.values());
        let mut ghosts = flying.filter(|f| f.op.is_none()).filter_map(|f| f.step.writes());
        let mut held = self.held.values();
        held.any(|held| overlap(held, range)) || ghosts.any(|ghost| overlap(&ghost, range))
    }

    /// The answer that comes now says what a range is.
    pub(super) fn learned(&mut self, link: u64, cookie: u64, extents: Vec<Extent>) {
        let flying = self.links.get(&link).and_then(|link| link.flying.get(&cookie));
        if let Some(op) = flying.and_then(|f| f.op).and_then(|key| self.ops.get_mut(key)) {
            op.extents = extents;
        }
    }

    /// An answer came. None: nobody waits for it any more. With memory, it is to be filled before
    /// [`settle`](Self::settle).
    pub(super) fn answered(
        &mut self,
        number: u64,
        cookie: u64,
        result: Result<(), Errno>,
    ) -> Option<Answered> {
        let link = self.links.get_mut(&number)?;
        let Flying { op, step, covers, .. } = link.flying.remove(&cookie)?;
        let Some(key) = op else {
            // A ghost is gone; with the last one a connection has no purpose any more.
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

    /// Takes an answer's memory back; the operation goes on or ends.
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

    /// Uses a connection no more: what was on its way is to be sent again on another. The
    /// connection stays as long as the server may still carry writes of it out.
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
            // Whoever is sending must not wait for a server that does not read; and a server that
            // takes one connection at a time must let go of this one.
            link.shutdown(std::net::Shutdown::Write);
        }
        if !self.closing {
            let count = again.len();
            tracing::warn!("NBD connection given up: {why}; {count} requests are sent again");
        }
        // In the order in which they were sent.
        again.sort_unstable_by_key(|(cookie, _)| std::cmp::Reverse(*cookie));
        again.into_iter().for_each(|(_, key)| self.queue.push_front(key));
        self.note_loss();
    }

    /// A connection is lost: what was answered on any of them and not flushed may be, too. Another
    /// one that is still there may be about to end as well.
    fn note_loss(&mut self) {
        if self.closing || self.lost || self.writes == self.flushed {
            return;
        }
        self.lost = true;
        if self.vanishes {
            tracing::error!(
                "the NBD server may have lost what it had answered; it is used no more"
            );
            return self.fail_waiting();
        }
        tracing::error!(
            "ALARM: the NBD server had answered writes that were not flushed; whether it still has \
             them cannot be known, so every flush fails from now on"
        );
    }

    /// What operations fail with that were not carried out.
    fn failure(&self) -> Errno {
        if self.lost && self.vanishes { Errno::ENXIO } else { Errno::EIO }
    }

    /// After garbage: no answer of this connection is believed any more, and its ghosts live
    /// until the server has ended it.
    pub(super) fn distrust(&mut self, number: u64, why: &str) {
        self.retire(number, why);
        if let Some(link) = self.links.get_mut(&number) {
            link.shutdown(std::net::Shutdown::Write);
        }
    }

    /// The server has ended a connection, and with it whatever it had of it.
    pub(super) fn over(&mut self, number: u64, why: &str) {
        self.retire(number, why);
        self.links.remove(&number);
    }

    /// Gives up what has waited too long: connections with overdue answers, and operations whose
    /// time is over.
    pub(super) fn expire(&mut self, now: Nanos, answer_within: Nanos, give_up_after: Nanos) {
        let overdue = |f: &Flying| {
            let limit = if f.step.kind == IoKind::Flush { give_up_after } else { answer_within };
            now.saturating_sub(f.sent) > limit
        };
        let late = self.links.iter().filter(|(_, link)| link.flying.values().any(overdue));
        let late: Vec<u64> = late.map(|(number, _)| *number).collect();
        late.into_iter().for_each(|number| self.retire(number, "an answer is overdue"));
        let over = |op: &Op| now.saturating_sub(op.since) > give_up_after;
        let over = self.ops.iter().filter(|(_, op)| over(op)).map(|(key, _)| key);
        let over: Vec<usize> = over.collect();
        for flying in self.links.values_mut().flat_map(|link| link.flying.values_mut()) {
            flying.op = flying.op.filter(|key| !over.contains(key));
        }
        self.fail(&over);
    }

    /// Fails everything that waits to be sent.
    pub(super) fn fail_waiting(&mut self) {
        let waiting: Vec<usize> = self.queue.iter().copied().collect();
        self.fail(&waiting);
    }

    fn fail(&mut self, keys: &[usize]) {
        let errno = self.failure();
        self.queue.retain(|key| !keys.contains(key));
        for &key in keys {
            // One whose answer is being taken ends with it.
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
