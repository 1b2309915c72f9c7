// SPDX-License-Identifier: MIT OR Apache-2.0
//! Operations whose end is told later than it comes, or that do not even begin: injected delay,
//! `slow+` and held operations.
//!
//! Invariants: an operation has one gate for the device itself and one for each reason to wait; it
//! ends when the last gate opens, whichever that is. A plain device never comes here.
//!
//! Why operations behind a model run at once: the real device is meant to be much faster than the
//! model, so what is measured is the model, not their sum.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use larder_core::exec::Nanos;
use slab::Slab;

use super::attached::Attached;
use super::ops::Op;

/// Everything that is not the ring's to report.
#[derive(Default)]
pub(super) struct Late {
    /// When to open a gate of which operation. An operation that has such a gate cannot end
    /// before, so its key is not used again meanwhile.
    timers: BinaryHeap<Reverse<(Nanos, u32)>>,
    /// Operations that have not begun, in order.
    held: Vec<u32>,
    /// How many operations are with a model.
    modelled: usize,
    /// Kept for its memory.
    pub(super) finished: Vec<u32>,
}

impl Late {
    pub(super) fn is_empty(&self) -> bool {
        self.timers.is_empty() && self.held.is_empty() && self.modelled == 0
    }

    /// An operation does not begin for now.
    pub(super) fn hold(&mut self, key: u32) {
        self.held.push(key);
    }

    /// All that have not begun, for another look or for good.
    pub(super) fn take_held(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.held)
    }

    /// An operation begins now: adds what it has to wait for beside the device itself.
    pub(super) fn add_gates(
        &mut self,
        (key, op): (u32, &mut Op),
        on: &Attached,
        (now, delay): (Nanos, Nanos),
    ) {
        if delay > 0 {
            op.gates += 1;
            self.timers.push(Reverse((now.saturating_add(delay), key)));
        }
        if let Some(slow) = on.device.slow() {
            op.gates += 1;
            self.modelled += 1;
            slow.submit(on.member, key, now, &op.io);
        }
    }

    /// The next operation with a timer that is due.
    pub(super) fn due(&mut self, now: Nanos) -> Option<u32> {
        self.timers.peek().filter(|Reverse((time, _))| *time <= now)?;
        self.timers.pop().map(|Reverse((_, key))| key)
    }

    /// Appends the operations that models are done with; returns when to come again for a timer or a model.
    pub(super) fn collect(
        &mut self,
        devices: &Slab<Attached>,
        now: Nanos,
        finished: &mut Vec<u32>,
    ) -> Option<Nanos> {
        let mut next = self.timers.peek().map(|Reverse((time, _))| *time);
        if self.modelled == 0 {
            return next;
        }
        let before = finished.len();
        for (_, on) in devices.iter().filter(|(_, on)| on.in_flight > 0) {
            if let Some(slow) = on.device.slow() {
                next = earlier(next, slow.collect(on.member, now, finished));
            }
        }
        self.modelled -= finished.len() - before;
        next
    }
}

/// The earlier of two times, where there is one.
pub(super) fn earlier(a: Option<Nanos>, b: Option<Nanos>) -> Option<Nanos> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}
