// SPDX-License-Identifier: MIT OR Apache-2.0
//! Operations on exports of servers: other threads run them, and wake this one when they end.
//!
//! Invariants: the device holds the memory of such an operation until it is collected here. An operation that ends
//! between the last collection and the following sleep ends that sleep at once.

use slab::Slab;

use super::attached::Attached;
use crate::device::nbd::Finished;

/// Operations at servers.
#[derive(Default)]
pub(super) struct Remote {
    /// Number of operations in flight.
    pub(super) in_flight: usize,
    /// Reused allocation.
    pub(super) finished: Vec<Finished>,
}

impl Remote {
    /// Appends the completed operations.
    pub(super) fn collect(&mut self, devices: &Slab<Attached>, finished: &mut Vec<Finished>) {
        if self.in_flight == 0 {
            return;
        }
        let before = finished.len();
        for (_, on) in devices.iter().filter(|(_, on)| on.in_flight > 0) {
            if let Some(nbd) = on.device.nbd() {
                nbd.collect(on.remote, finished);
            }
        }
        self.in_flight -= finished.len() - before;
    }
}
