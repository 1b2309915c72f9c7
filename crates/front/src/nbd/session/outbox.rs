// SPDX-License-Identifier: MIT OR Apache-2.0
//! Replies that wait for the socket.
//!
//! Purpose: combines many replies into few parts. Headers and short payloads are copied one after the other into a
//! *slab*; the buffers of a payload above [`COPY_BYTES`] are parts of their own and are not copied.
//!
//! Invariants: bytes are sent in the order in which they were added. One batch is in flight at a time. A request counts
//! as open until the last byte of its reply is sent, so the session stops reading from a client that does not read its
//! replies. Memory stays bounded by what requests pay for, and by [`MOST_UNUSED`] for each queue. Requests pay for the header
//! page of a long reply, and for all copied bytes. They do not pay for the rest of a slab behind which a long payload follows.

use std::collections::VecDeque;
use std::ops::Range;

use larder_core::buf::{Buf, PAGE};

/// Payload up to this length is copied: that costs less than another part and a buffer held for longer.
pub(super) const COPY_BYTES: usize = 16 << 10;
/// Bytes in a slab.
const SLAB_BYTES: usize = 64 << 10;
/// If slabs of the queue have at least this many unused bytes, further slabs have one page.
const MOST_UNUSED: usize = 2 * SLAB_BYTES;
/// The most parts of a batch; the kernel accepts 1024.
const BATCH_PARTS: usize = 512;
/// A batch of this many bytes is not extended, so that its buffers are soon free again.
const BATCH_BYTES: usize = 4 << 20;

/// What a request holds until its reply is sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Held {
    pub(super) requests: usize,
    pub(super) bytes: u64,
    /// Memory, see [`Purse`](larder_volume::budget::Purse).
    pub(super) cost: u64,
}

impl Held {
    fn add(&mut self, other: Self) {
        self.requests += other.requests;
        self.bytes += other.bytes;
        self.cost += other.cost;
    }
}

struct Part {
    buf: Buf,
    /// The used part of `buf`. Only a slab has room after it.
    used: Range<usize>,
    /// Freed when this part is sent.
    frees: Held,
}

#[derive(Default)]
pub(super) struct Outbox {
    parts: VecDeque<Part>,
    /// Bytes of slabs that no reply will use, because a long payload follows.
    unused: usize,
    /// What the batch in flight frees; `None` if none is in flight.
    flying: Option<Held>,
}

impl Outbox {
    /// Copies bytes to the end of the queue. `alone` states that a part without a copy follows: a new slab would stay
    /// nearly empty, so a page suffices.
    pub(super) fn copy(&mut self, mut bytes: &[u8], alone: bool) {
        while !bytes.is_empty() {
            let full = self.parts.back().is_none_or(|p| p.used.end == p.buf.len());
            if full {
                let small = alone || self.unused >= MOST_UNUSED;
                let buf = Buf::with_len(if small { PAGE } else { SLAB_BYTES });
                self.parts.push_back(Part { buf, used: 0..0, frees: Held::default() });
            }
            let Some(part) = self.parts.back_mut() else { return };
            let n = bytes.len().min(part.buf.len() - part.used.end);
            let (head, tail) = bytes.split_at(n);
            part.buf[part.used.end..][..n].copy_from_slice(head);
            part.used.end += n;
            bytes = tail;
        }
    }

    /// Adds a buffer of a payload to the end of the queue, as a part of its own if it is `alone`.
    pub(super) fn payload(&mut self, buf: Buf, alone: bool) {
        let len = buf.len();
        if !alone {
            self.copy(&buf, false);
        } else {
            self.unused += self.parts.back().map_or(0, |p| p.buf.len() - p.used.end);
            self.parts.push_back(Part { buf, used: 0..len, frees: Held::default() });
        }
    }

    /// The reply ends with the bytes added last; once they are sent, the request holds nothing.
    pub(super) fn end(&mut self, held: Held) {
        if let Some(part) = self.parts.back_mut() {
            part.frees.add(held);
        }
    }

    /// Passes the parts of the next batch to `push`, unless a batch is in flight or the queue is empty.
    pub(super) fn take(&mut self, mut push: impl FnMut(Buf, Range<usize>)) -> bool {
        if self.flying.is_some() || self.parts.is_empty() {
            return false;
        }
        let (mut frees, mut bytes) = (Held::default(), 0);
        for _ in 0..BATCH_PARTS {
            if bytes >= BATCH_BYTES {
                break;
            }
            let Some(part) = self.parts.pop_front() else { break };
            bytes += part.used.len();
            frees.add(part.frees);
            push(part.buf, part.used);
        }
        if self.parts.is_empty() {
            self.unused = 0;
        }
        self.flying = Some(frees);
        true
    }

    /// The batch was sent, or failed; returns what it frees.
    pub(super) fn sent(&mut self) -> Held {
        self.flying.take().unwrap_or_default()
    }

    /// Drops all waiting replies; returns what that frees.
    pub(super) fn clear(&mut self) -> Held {
        let mut freed = Held::default();
        self.parts.drain(..).for_each(|part| freed.add(part.frees));
        self.unused = 0;
        freed
    }

    /// Whether a batch is in flight.
    pub(super) fn is_flying(&self) -> bool {
        self.flying.is_some()
    }

    /// Whether the queue is empty and no batch is in flight.
    pub(super) fn is_idle(&self) -> bool {
        self.parts.is_empty() && self.flying.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Batch = Vec<(Buf, Range<usize>)>;

    fn take(out: &mut Outbox) -> Option<Batch> {
        let mut batch = Batch::new();
        out.take(|buf, used| batch.push((buf, used))).then_some(batch)
    }

    fn bytes_of(batch: &Batch) -> Vec<u8> {
        batch.iter().flat_map(|(buf, used)| buf[used.clone()].to_vec()).collect()
    }

    #[test]
    fn short_replies_share_a_slab_and_long_payloads_are_not_copied() {
        let mut out = Outbox::default();
        let mut want = Vec::new();
        for i in 0..100u8 {
            out.copy(&[i; 16], false);
            out.payload(Buf::copy_of(&[i; 512]), false);
            out.end(Held { requests: 1, bytes: 512, cost: 4096 });
            want.extend([i; 528]);
        }
        let long = Buf::copy_of(&[7; 64 << 10]);
        let at = long.as_ptr();
        out.copy(&[8; 28], true);
        out.payload(long, true);
        out.end(Held { requests: 1, bytes: 64 << 10, cost: 68 << 10 });
        want.extend([8; 28]);
        want.extend([7; 64 << 10]);
        let batch = take(&mut out).unwrap();
        assert_eq!(batch.len(), 2);
        assert_eq!(batch[1].0.as_ptr(), at);
        assert_eq!(bytes_of(&batch), want);
        assert!(take(&mut out).is_none());
        assert!(!out.is_idle());
        let frees = out.sent();
        assert_eq!(frees, Held { requests: 101, bytes: 100 * 512 + (64 << 10), cost: 468 << 10 });
        assert!(out.is_idle() && take(&mut out).is_none());
    }

    #[test]
    fn short_replies_between_long_ones_take_little_more_than_they_pay_for() {
        let mut out = Outbox::default();
        let mut paid = 0;
        for i in 0..64 {
            out.copy(&[1; 16], false);
            out.end(Held::default());
            out.copy(&[2; 16], true);
            let piece = Buf::with_len(if i % 2 == 0 { 512 } else { 17 << 10 });
            paid += PAGE + Buf::room(piece.len());
            out.payload(piece, true);
            out.end(Held::default());
        }
        let held: usize = take(&mut out).unwrap().iter().map(|(buf, _)| Buf::room(buf.len())).sum();
        assert!(held <= paid + MOST_UNUSED + SLAB_BYTES, "{held} of {paid}");
    }

    #[test]
    fn batches_are_bounded_and_keep_the_order() {
        let mut out = Outbox::default();
        for i in 0..12u8 {
            out.copy(&[i; 28], true);
            out.payload(Buf::copy_of(&vec![i; 1 << 20]), true);
            out.end(Held { requests: 1, bytes: 1 << 20, cost: 0 });
        }
        let (mut all, mut freed, mut batches) = (Vec::new(), 0, 0);
        while let Some(batch) = take(&mut out) {
            all.extend(bytes_of(&batch));
            freed += out.sent().requests;
            batches += 1;
        }
        assert_eq!((freed, batches), (12, 3));
        for (i, reply) in all.chunks(28 + (1 << 20)).enumerate() {
            assert!(reply.iter().all(|b| *b == i as u8));
        }
    }
}
