// SPDX-License-Identifier: MIT OR Apache-2.0
//! Devices that know the completion time of a request at its submission.
//!
//! Such a device is a rule for that time ([`EndsAt`]) and the common bookkeeping ([`Foreseen`]): drives without queues
//! to choose from, volumes, RAM, servers.
//!
//! Why not disks, arrays and links: with them, later requests change when an earlier one completes.

use crate::completions::Completions;
use crate::{Model, Nanos, Op, Wear};

/// The rule of completion times.
pub trait EndsAt: Send {
    /// The completion time of a request that arrives at `now`. Called once for each request, in order of arrival; `now`
    /// never decreases.
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
