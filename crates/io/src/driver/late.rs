// SPDX-License-Identifier: MIT OR Apache-2.0
//! Operations whose completion or start is delayed: injected delay, `slow+` and held operations.
//!
//! Invariants: an operation has one gate for the device itself and one for each reason to wait; it ends when the last
//! gate opens. Operations on a plain device do not use this module.
//!
//! Why operations behind a model run on the real device at once: it is assumed to be much faster than the model, so the
//! latency is that of the model, not the sum.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use larder_core::exec::Nanos;
use slab::Slab;

use super::attached::Attached;
use super::ops::Op;

/// Delayed operations.
#[derive(Default)]
pub(super) struct Late {
    /// When to open a gate of which operation. An operation with such a gate cannot end earlier, so its key is not
    /// reused meanwhile.
    timers: BinaryHeap<Reverse<(Nanos, u32)>>,
    /// Operations that have not begun, in order.
    held: Vec<u32>,
    /// Number of operations in models.
    modelled: usize,
    /// Reused allocation.
    pub(super) finished: Vec<u32>,
}

impl Late {
    pub(super) fn is_empty(&self) -> bool {
        self.timers.is_empty() && self.held.is_empty() && self.modelled == 0
    }

    /// Keeps an operation from beginning.
    pub(super) fn hold(&mut self, key: u32) {
        self.held.push(key);
    }

    /// Removes and returns the operations that have not begun; the caller judges them again or drops them.
    pub(super) fn take_held(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.held)
    }

    /// Adds a gate for each event that a beginning operation waits for, besides the device itself.
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

    /// Appends the operations that models have completed; returns the time of the next event of a timer or a model.
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

/// The earlier of the times that exist.
pub(super) fn earlier(a: Option<Nanos>, b: Option<Nanos>) -> Option<Nanos> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}
