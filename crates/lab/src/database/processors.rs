// SPDX-License-Identifier: MIT OR Apache-2.0
//! The processors of the database's machine: a transaction takes one of them for a while, before its accesses.
//!
//! Tasks wait for a processor in the order in which they came. Why all of a transaction's time at once: clients have no
//! pause, so only how much of a second the processors can do, and how many clients are away from the devices meanwhile,
//! has an effect; slices between accesses would cost an event each.
//!
//! Invariant: at most so many tasks compute at a time.

use std::cell::Cell;

use larder_core::exec::{Exec, Nanos};

use super::waits::Waits;

/// The processors, see the module.
pub(super) struct Processors {
    free: Cell<u32>,
    waits: Waits,
}

impl Processors {
    /// So many, all of them free.
    pub(super) fn new(count: u32) -> Self {
        Self { free: Cell::new(count.max(1)), waits: Waits::default() }
    }

    /// Takes a processor for so long.
    pub(super) async fn compute(&self, exec: &Exec, time: Nanos) {
        if time == 0 {
            return;
        }
        while self.free.get() == 0 {
            self.waits.wait(exec).await;
        }
        self.free.set(self.free.get() - 1);
        exec.sleep(time).await;
        self.free.set(self.free.get() + 1);
        self.waits.wake(exec);
    }
}
