// SPDX-License-Identifier: MIT OR Apache-2.0
//! Operations on the exports of servers: begun and ended by other threads, which wake this one.
//!
//! Invariants: the memory of such an operation is with its device until it is collected here. What
//! ends between a look at the device and the sleep after it makes that sleep end at once.

use super::Driver;
use crate::device::nbd::Finished;

/// What is with servers.
#[derive(Default)]
pub(super) struct Remote {
    /// How many operations.
    pub(super) in_flight: usize,
    /// Kept for its memory.
    finished: Vec<Finished>,
}

impl Driver {
    /// Takes back what has ended.
    pub(super) fn collect_remote(&mut self) {
        if self.remote.in_flight == 0 {
            return;
        }
        let mut finished = std::mem::take(&mut self.remote.finished);
        for (_, entry) in self.devices.iter().filter(|(_, entry)| entry.in_flight > 0) {
            if let Some(nbd) = entry.device.nbd() {
                nbd.collect(entry.remote, &mut finished);
            }
        }
        self.remote.in_flight -= finished.len();
        for Finished { key, result, buf, .. } in finished.drain(..) {
            if let Some(op) = self.ops.get_mut(key as usize) {
                op.io.buf = buf;
                self.open_gate(key as usize, result);
            }
        }
        self.remote.finished = finished;
    }
}
