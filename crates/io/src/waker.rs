// SPDX-License-Identifier: MIT OR Apache-2.0
//! Wakes a thread that sleeps in [`Driver::turn`](crate::Driver::turn).
//!
//! Purpose: another thread has put something into an inbox of the driver's thread.
//!
//! Invariants: callers put into the inbox first and wake then. A wake while the thread is awake ends its next sleep at
//! once, so none is lost; several wakes may end one sleep. Only a wake of a sleeping thread costs a system call.
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

/// Wakes a driver's thread.
#[derive(Clone)]
pub struct Waker(Arc<Shared>);

impl std::fmt::Debug for Waker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Waker")
    }
}

impl Waker {
    /// The event descriptor is blocking on purpose: on a non-blocking one a ring returns EAGAIN at once.
    pub(crate) fn new() -> rustix::io::Result<Self> {
        let event = rustix::event::eventfd(0, EventfdFlags::CLOEXEC)?;
        Ok(Self(Arc::new(Shared { state: AtomicU32::new(AWAKE), event })))
    }

    /// Ends the thread's current sleep, or its next one if it is awake.
    pub fn wake(&self) {
        // If a notice is pending no second one is needed: the thread takes the notice before it reads the inbox, and
        // this read-modify-write orders the caller's inbox before it.
        if self.0.state.swap(NOTIFIED, Ordering::AcqRel) == SLEEPING {
            // Fails only on a full counter, and then the thread wakes up anyway.
            let _ = rustix::io::write(&self.0.event, &1_u64.to_ne_bytes());
        }
    }

    /// Takes a notice without blocking; returns whether one was pending.
    pub(crate) fn take_notice(&self) -> bool {
        let state = &self.0.state;
        // The load keeps the cache line shared while the thread polls. Only its thread takes notices, so the swap finds one.
        state.load(Ordering::Relaxed) == NOTIFIED && state.swap(AWAKE, Ordering::AcqRel) == NOTIFIED
    }

    /// Called before blocking; returns false if a notice is pending, and takes it.
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

    /// Whether both wake the same thread.
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    pub(crate) fn event(&self) -> &OwnedFd {
        &self.0.event
    }
}
