// SPDX-License-Identifier: MIT OR Apache-2.0
//! The health of a flash device: used, bypassed, or failed.
//!
//! While an operation is overdue, the device gets no new ones; a clean cache does not cache the writes of that time. The
//! device is used again when it has answered all overdue operations. A device that does not answer, vanishes or returns too
//! many errors has failed: the volume switches to pass-through with an alarm (design rules 1, 5, 12).

use std::cell::Cell;

use crate::exec::Nanos;
use crate::request::Errno;

/// The health of one device.
#[derive(Debug, Default)]
pub(crate) struct Health {
    overdue: Cell<u32>,
    /// How many times an operation became overdue while no other was: the number of the current silence.
    silences: Cell<u64>,
    errors: Cell<u32>,
    window_start: Cell<Nanos>,
}

impl Health {
    /// Whether no operation is overdue.
    pub(crate) fn usable(&self) -> bool {
        self.overdue.get() == 0
    }

    /// An operation is overdue. Returns whether it is the only one.
    pub(crate) fn overdue(&self) -> bool {
        let first = self.overdue.replace(self.overdue.get() + 1) == 0;
        if first {
            self.silences.set(self.silences.get() + 1);
        }
        first
    }

    /// The number of the current silence, if an operation is overdue.
    pub(crate) fn silence(&self) -> Option<u64> {
        (!self.usable()).then(|| self.silences.get())
    }

    /// The device answered an overdue operation. Returns whether none is left.
    pub(crate) fn answered(&self) -> bool {
        self.overdue.set(self.overdue.get().saturating_sub(1));
        self.overdue.get() == 0
    }

    /// The device returned an error. Returns whether it has failed.
    pub(crate) fn failed(&self, errno: Errno, now: Nanos, most: u32, window: Nanos) -> bool {
        if now.saturating_sub(self.window_start.get()) > window {
            self.window_start.set(now);
            self.errors.set(0);
        }
        self.errors.set(self.errors.get() + 1);
        let gone = matches!(errno, Errno::ENXIO | Errno::ENODEV);
        gone || self.errors.get() >= most
    }
}
