// SPDX-License-Identifier: MIT OR Apache-2.0
//! Operations on the exports of servers: begun and ended by other threads, which wake this one.
//!
//! Invariants: the memory of such an operation is with its device until it is collected here. What
//! ends between a look at the device and the sleep after it makes that sleep end at once.

use slab::Slab;

use super::attached::Attached;
use crate::device::nbd::Finished;

/// What is with servers.
#[derive(Default)]
pub(super) struct Remote {
    /// How many operations.
    pub(super) in_flight: usize,
    /// Kept for its memory.
    pub(super) finished: Vec<Finished>,
}

impl Remote {
    /// Appends what has ended.
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
