// SPDX-License-Identifier: MIT OR Apache-2.0
//! Waking a thread that sleeps in [`Driver::turn`](crate::Driver::turn).
//!
//! Purpose: another thread has put something into an inbox of the driver's thread.
//!
//! Invariants: put into the inbox first, then wake. A wake that comes while the thread is awake
//! makes its next sleep end at once, so none is lost; several wakes may end one sleep. Only a wake
//! of a thread that really sleeps costs a system call.
//!
//! Why not `IORING_OP_MSG_RING`: it needs a ring on the waking side, and any thread may wake.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::event::EventfdFlags;

const AWAKE: u32 = 0;
const SLEEPING: u32 = 1;
const NOTIFIED: u32 = 2;

struct Shared {
    state: AtomicU32,
    event: OwnedFd,
}

/// Wakes a driver's thread, see the module.
#[derive(Clone)]
pub struct Waker(Arc<Shared>);

impl std::fmt::Debug for Waker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Waker")
    }
}

impl Waker {
    /// The event descriptor blocks on purpose: a ring answers EAGAIN at once on one that does not.
    pub(crate) fn new() -> rustix::io::Result<Self> {
        let event = rustix::event::eventfd(0, EventfdFlags::CLOEXEC)?;
        Ok(Self(Arc::new(Shared { state: AtomicU32::new(AWAKE), event })))
    }

    /// Makes the thread's present sleep end, or its next one if it is awake.
    pub fn wake(&self) {
        // A notice that is already there needs no second one: whoever takes it looks at the
        // inbox after that, and this read-modify-write orders the caller's inbox before it.
        if self.0.state.swap(NOTIFIED, Ordering::AcqRel) == SLEEPING {
            // Fails only on a full counter, in which case the thread wakes up anyway.
            let _ = rustix::io::write(&self.0.event, &1_u64.to_ne_bytes());
        }
    }

    /// Whether there is a notice; leaves it.
    pub(crate) fn is_notified(&self) -> bool {
        self.0.state.load(Ordering::Relaxed) == NOTIFIED
    }

    /// Called before blocking; false if there is a notice, which this takes.
    pub(crate) fn begin_sleep(&self) -> bool {
        let state = &self.0.state;
        let slept =
            state.compare_exchange(AWAKE, SLEEPING, Ordering::AcqRel, Ordering::Acquire).is_ok();
        if !slept {
            state.swap(AWAKE, Ordering::AcqRel);
        }
        slept
    }

    /// Called after blocking; takes a notice.
    pub(crate) fn end_sleep(&self) {
        self.0.state.swap(AWAKE, Ordering::AcqRel);
    }

    pub(crate) fn event(&self) -> &OwnedFd {
        &self.0.event
    }
}
