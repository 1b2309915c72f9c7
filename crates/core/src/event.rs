// SPDX-License-Identifier: MIT OR Apache-2.0
//! Events that a shard reports to its driver.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::ops::Range;
use std::rc::Rc;

use crate::exec::DevId;
use crate::request::Errno;

/// Events of a shard that the driver has not taken, in order.
#[derive(Clone, Default)]
pub(crate) struct Events(Rc<RefCell<VecDeque<Event>>>);

impl Events {
    pub(crate) fn emit(&self, event: Event) {
        self.0.borrow_mut().push_back(event);
    }

    pub(crate) fn next(&self) -> Option<Event> {
        self.0.borrow_mut().pop_front()
    }
}

/// A change of state that the driver or the operator must handle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The flash device failed; the shard is in pass-through.
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
    /// A flush of the origin failed: every later one fails too.
    OriginFlushFailed {
        /// The volume.
        volume: u32,
        /// The error.
        errno: Errno,
    },
    /// The origin of a volume leaves an operation unanswered for too long: the others continue without it.
    OriginOverdue {
        /// The volume.
        volume: u32,
    },
    /// The origin has answered all such operations.
    OriginAnswers {
        /// The volume.
        volume: u32,
    },
    /// The flash device returns errors, and stays in use because it holds dirty data.
    FlashErrors {
        /// The device.
        dev: DevId,
        /// The error.
        why: String,
    },
    /// Changes go past a page log whose flash fails: the driver makes it durable off the flash that recovery ignores what
    /// this shard's log has of these pages, and of no others, and then calls
    /// [`ignores_recorded`](crate::shard::Shard::ignores_recorded).
    LogIgnores {
        /// The device.
        dev: DevId,
        /// The pages, in order and apart from each other.
        pages: Vec<Range<u64>>,
    },
    /// The flash device returned other bytes of cached data than it was given (`--verify`).
    FlashDamaged {
        /// The first byte of the first such page, on the volume or in the space of several.
        at: u64,
    },
    /// A page that only flash has does not match its checksum.
    DirtyDamaged {
        /// Its first byte, on the volume or in the space of several.
        at: u64,
    },
    /// The flash device that returned errors works again.
    FlashWorks {
        /// The device.
        dev: DevId,
    },
    /// The origin fails writes of dirty data, which are retried; without an error: it accepts them again.
    OriginRefuses {
        /// The volume.
        volume: u32,
        /// The error.
        errno: Option<Errno>,
    },
    /// This shard needs a flush of a volume's origin. The first shard makes all flushes, since it remembers a failed one;
    /// the driver passes the result to [`origin_flushed`](crate::shard::Shard::origin_flushed).
    NeedsOriginFlush {
        /// The volume.
        volume: u32,
    },
    /// A page log is open.
    LogOpened {
        /// The device.
        dev: DevId,
        /// Whether its content is valid.
        warm: bool,
    },
    /// A page log cannot be used but may hold dirty data: every request gets EIO.
    LogRefused {
        /// The device.
        dev: DevId,
        /// Why.
        why: String,
    },
    /// This shard no longer uses the device: the driver may close it.
    FlashReleased {
        /// The device.
        dev: DevId,
    },
}
