// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a shard tells whoever runs it.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use crate::exec::DevId;
use crate::request::Errno;

/// Events of a shard that nobody has taken yet, in order.
#[derive(Clone, Default)]
pub(crate) struct Events(Rc<RefCell<VecDeque<Event>>>);

impl Events {
    pub(crate) fn tell(&self, event: Event) {
        self.0.borrow_mut().push_back(event);
    }

    pub(crate) fn next(&self) -> Option<Event> {
        self.0.borrow_mut().pop_front()
    }
}

/// What the operator should hear of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The flash device was given up; the shard goes on in pass-through.
    FlashFailed {
        /// The device.
        dev: DevId,
        /// Why.
        why: String,
    },
    /// An operation is overdue; the device is bypassed until it answers.
    FlashSuspended {
        /// The device.
        dev: DevId,
    },
    /// All overdue operations were answered; the device is used again.
    FlashResumed {
        /// The device.
        dev: DevId,
    },
    /// A flush of the origin failed: every later one will fail too.
    OriginFlushFailed {
        /// How.
        errno: Errno,
    },
    /// The flash device errs, and cannot be given up: it alone has what it holds.
    FlashErrs {
        /// The device.
        dev: DevId,
        /// How.
        why: String,
    },
    /// The origin refuses what flash alone has, and keeps being asked; or, with nothing, it takes it again.
    OriginRefuses {
        /// How.
        errno: Option<Errno>,
    },
    /// The origin must be flushed for this shard's sake: all flushes go to the volume's first
    /// shard, which remembers a failed one. The answer goes to
    /// [`origin_flushed`](crate::shard::Shard::origin_flushed).
    NeedsOriginFlush,
    /// A page log is open.
    LogOpened {
        /// The device.
        dev: DevId,
        /// Whether what it held counts.
        warm: bool,
    },
    /// A page log cannot be used, and it alone may have something: nobody is served.
    LogRefused {
        /// The device.
        dev: DevId,
        /// Why.
        why: String,
    },
    /// Nothing of this shard uses the device any more, nor will: it may be closed.
    FlashReleased {
        /// The device.
        dev: DevId,
    },
}
