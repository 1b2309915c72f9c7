// SPDX-License-Identifier: MIT OR Apache-2.0
//! The guard of a mutex in shared memory.
//!
//! Invariant: the thread that took the mutex releases it, and the memory stays mapped until then.
#![allow(unsafe_code)]

use std::marker::PhantomData;
use std::sync::Arc;

use crate::memory::Memory;
use crate::mutex::Tried;

/// A mutex that is held until this guard is dropped, on the thread that took it.
pub struct Locked {
    memory: Arc<Memory>,
    at: usize,
    not_send: PhantomData<*mut ()>,
}

impl Locked {
    /// Takes the mutex with index `at`; also returns whether its last holder died.
    pub(crate) fn lock(memory: &Arc<Memory>, at: usize) -> (Self, bool) {
        // SAFETY: `create` initialised the mutex before any process could join, and `memory` keeps it mapped.
        let tried = unsafe { memory.mutex(at).lock() };
        (Self::held(memory, at), tried == Tried::HeldAfterDeath)
    }

    /// As [`lock`](Self::lock), without waiting; `None` if another thread holds the mutex.
    pub(crate) fn try_lock(memory: &Arc<Memory>, at: usize) -> Option<Self> {
        // SAFETY: as above.
        let tried = unsafe { memory.mutex(at).try_lock() };
        (tried != Tried::Busy).then(|| Self::held(memory, at))
    }

    fn held(memory: &Arc<Memory>, at: usize) -> Self {
        Self { memory: Arc::clone(memory), at, not_send: PhantomData }
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        // SAFETY: this thread took the mutex, and `Locked` is not `Send`.
        unsafe { self.memory.mutex(self.at).unlock() };
    }
}
