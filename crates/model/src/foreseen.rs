// SPDX-License-Identifier: MIT OR Apache-2.0
//! Devices that know when a request will be done as soon as they are told of it.
//!
//! Such a device is a rule for that time ([`EndsAt`]) and the books around it ([`Foreseen`]), which
//! are the same for all: drives without queues to choose from, volumes, RAM, servers.
//! Why not disks, arrays and links too: what comes later changes when an earlier request is done.

use crate::completions::Completions;
use crate::{Model, Nanos, Op, Wear};

/// The rule.
pub trait EndsAt: Send {
    /// When a request that comes at `now` will be done. Asked once for each request, in order of
    /// arrival; `now` never steps back.
    fn ends_at(&mut self, now: Nanos, op: Op) -> Nanos;

    /// See [`Model::wear`].
    fn wear(&self) -> Option<Wear> {
        None
    }
}

/// A device with such a rule.
pub struct Foreseen<R> {
    rule: R,
    done: Completions,
}

impl<R: EndsAt> Foreseen<R> {
    /// An idle device.
    pub(crate) fn by(rule: R) -> Self {
        Self { rule, done: Completions::default() }
    }
}

impl<R: EndsAt> Model for Foreseen<R> {
    fn submit(&mut self, now: Nanos, id: u64, op: Op) {
        let now = self.done.observe(now);
        let order = self.done.admit();
        self.done.finish(order, id, self.rule.ends_at(now, op));
    }

    fn next(&self) -> Option<Nanos> {
        self.done.next()
    }

    fn poll(&mut self, now: Nanos) -> Option<(u64, Nanos)> {
        let now = self.done.observe(now);
        self.done.take(now)
    }

    fn in_flight(&self) -> usize {
        self.done.in_flight()
    }

    fn wear(&self) -> Option<Wear> {
        self.rule.wear()
    }
}
