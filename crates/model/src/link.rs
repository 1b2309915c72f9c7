// SPDX-License-Identifier: MIT OR Apache-2.0
//! A network segment, or a controller's bus, in front of a model.
//!
//! Each request sends one message there and one back; the data of a write is in the first, the data of a read in the
//! second. All messages share one wire, one at a time in the order in which they are ready, each for its bytes and
//! `packet_ns`. Half of `latency_ns` passes on each way without occupying the wire.
//!
//! Invariant: events are processed in order of time, and completions of the inner model before arrivals at it, so
//! messages use the wire in the order in which they are ready.
//!
//! Why not one wire for each direction: the 118 MB/s of `san-1g` are one figure, and Holland's segment carries one
//! packet at a time (8.2 us and 1 ns a bit: `packet_ns` of 8,200 and 125 MB/s give its 49.17 us for a round trip with 4
//! KiB).

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use serde::Deserialize;

use crate::bounds;
use crate::completions::{Completions, Order};
use crate::wire::Wire;
use crate::{Kind, Model, Nanos, Op, Wear};

/// The parameters of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub struct LinkSpec {
    /// Rate of the wire.
    #[serde(deserialize_with = "bounds::bandwidth")]
    pub bytes_per_second: u64,
    /// Additional latency of a request, both ways together.
    #[serde(deserialize_with = "bounds::nanos")]
    pub latency_ns: Nanos,
    /// How long each message occupies the wire beside its bytes.
    #[serde(deserialize_with = "bounds::nanos")]
    pub packet_ns: Nanos,
}

#[derive(Clone, Copy)]
struct Message {
    id: u64,
    order: Order,
    op: Op,
}

/// A model behind a link.
pub struct Link<M> {
    inner: M,
    wire: Wire,
    packet_ns: Nanos,
    out_ns: Nanos,
    back_ns: Nanos,
    messages: Vec<Message>,
    free: Vec<usize>,
    /// Messages in flight: arrival, order, index.
    arrivals: BinaryHeap<Reverse<(Nanos, Order, usize)>>,
    done: Completions,
}

impl<M: Model> Link<M> {
    /// An idle link in front of `inner`.
    pub fn new(inner: M, spec: LinkSpec) -> Self {
        Self {
            inner,
            wire: Wire::new(spec.bytes_per_second),
            packet_ns: spec.packet_ns,
            out_ns: spec.latency_ns / 2,
            back_ns: spec.latency_ns - spec.latency_ns / 2,
            messages: Vec::new(),
            free: Vec::new(),
            arrivals: BinaryHeap::new(),
            done: Completions::default(),
        }
    }

    fn add_message(&mut self, message: Message) -> usize {
        if let Some(at) = self.free.pop() {
            self.messages[at] = message;
            return at;
        }
        self.messages.push(message);
        self.messages.len() - 1
    }

    fn advance(&mut self, now: Nanos) {
        loop {
            let arrival = self.arrivals.peek().map(|Reverse((at, _, _))| *at);
            let inner = self.inner.next();
            match (arrival, inner) {
                (_, Some(at)) if at <= now && arrival.is_none_or(|arrival| at <= arrival) => {
                    while let Some((index, end)) = self.inner.poll(at) {
                        self.send_back(end, index as usize);
                    }
                }
                (Some(at), _) if at <= now => {
                    if let Some(Reverse((_, _, index))) = self.arrivals.pop() {
                        self.inner.submit(at, index as u64, self.messages[index].op);
                    }
                }
                _ => return,
            }
        }
    }

    fn send_back(&mut self, now: Nanos, index: usize) {
        let Message { id, order, op } = self.messages[index];
        self.free.push(index);
        let bytes = if op.kind == Kind::Read { op.len } else { 0 };
        let end = self.wire_time(now, bytes).saturating_add(self.back_ns);
        self.done.finish(order, id, end);
    }

    /// Uses the wire; a message that takes no time on the wire does not queue for it.
    fn wire_time(&mut self, now: Nanos, bytes: u64) -> Nanos {
        if bytes == 0 && self.packet_ns == 0 {
            return now;
        }
        self.wire.carry(now, self.packet_ns, bytes)
    }
}

impl<M: Model> Model for Link<M> {
    fn submit(&mut self, now: Nanos, id: u64, op: Op) {
        let now = self.done.observe(now);
        self.advance(now);
        let order = self.done.admit();
        let bytes = if op.kind == Kind::Write { op.len } else { 0 };
        let arrival = self.wire_time(now, bytes).saturating_add(self.out_ns);
        let index = self.add_message(Message { id, order, op });
        self.arrivals.push(Reverse((arrival, order, index)));
    }

    fn next(&self) -> Option<Nanos> {
        let arrival = self.arrivals.peek().map(|Reverse((at, _, _))| *at);
        let ends = [arrival, self.inner.next(), self.done.next()];
        ends.into_iter().flatten().min()
    }

    fn poll(&mut self, now: Nanos) -> Option<(u64, Nanos)> {
        let now = self.done.observe(now);
        self.advance(now);
        self.done.take(now)
    }

    fn in_flight(&self) -> usize {
        self.done.in_flight()
    }

    fn wear(&self) -> Option<Wear> {
        self.inner.wear()
    }
}
