// SPDX-License-Identifier: MIT OR Apache-2.0
//! Trust in a flash device: used, bypassed for a while, or failed.
//!
//! While an operation is overdue, nothing new is sent to the device. When all late answers have come, it is used again;
//! in a clean mode the writes of that time are not cached. A device that stays silent, vanishes or fails too often is
//! given up, and the volume goes on in pass-through with an alarm (design rules 1, 5, 12).

use std::cell::Cell;

use crate::exec::Nanos;
use crate::request::Errno;

/// The state, see the module.
#[derive(Debug, Default)]
pub(crate) struct Health {
    overdue: Cell<u32>,
    /// How many times the device began to be silent: tells one silence from the next.
    silences: Cell<u64>,
    errors: Cell<u32>,
    window_start: Cell<Nanos>,
    /// How a flush failed, where one matters.
    flush: Cell<Option<Errno>>,
}

impl Health {
    /// How a flush of the device failed, if one did.
    pub(crate) fn flush_failed(&self) -> Option<Errno> {
        self.flush.get()
    }

    /// A flush of the device failed.
    pub(crate) fn flush_has_failed(&self, errno: Errno) {
        self.flush.set(Some(errno));
    }

    /// Whether operations may be sent to the device.
    pub(crate) fn usable(&self) -> bool {
        self.overdue.get() == 0
    }

    /// An operation is overdue; whether it is the first.
    pub(crate) fn overdue(&self) -> bool {
        let first = self.overdue.replace(self.overdue.get() + 1) == 0;
        if first {
            self.silences.set(self.silences.get() + 1);
        }
        first
    }

    /// The silence that is going on, if one is.
    pub(crate) fn silence(&self) -> Option<u64> {
        (!self.usable()).then(|| self.silences.get())
    }

    /// An overdue operation was answered after all; whether it was the last.
    pub(crate) fn answered(&self) -> bool {
        self.overdue.set(self.overdue.get().saturating_sub(1));
        self.overdue.get() == 0
    }

    /// The device failed an operation; whether that is too much.
    pub(crate) fn failed(&self, errno: Errno, now: Nanos, most: u32, window: Nanos) -> bool {
        if now.saturating_sub(self.window_start.get()) > window {
            self.window_start.set(now);
            self.errors.set(0);
        }
        self.errors.set(self.errors.get() + 1);
        let gone = matches!(errno, Errno::ENXIO | Errno(19 /* ENODEV */));
        gone || self.errors.get() >= most
    }
}
