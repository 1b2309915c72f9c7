// SPDX-License-Identifier: MIT OR Apache-2.0
//! A mutex of a memory that is held.
//!
//! Invariant: the thread that took it gives it back, and the memory stays mapped until then.
#![allow(unsafe_code)]

use std::marker::PhantomData;
use std::sync::Arc;

use crate::memory::Memory;
use crate::mutex::Tried;

/// A mutex that is held until this is dropped, on the thread that took it.
pub struct Locked {
    memory: Arc<Memory>,
    at: usize,
    not_send: PhantomData<*mut ()>,
}

impl Locked {
    /// Takes the mutex at this place of the memory; whether its last holder died.
    pub(crate) fn lock(memory: &Arc<Memory>, at: usize) -> (Self, bool) {
        // SAFETY: the mutex was made before the memory could be joined, and stays mapped while `memory` lives.
        let tried = unsafe { memory.mutex(at).lock() };
        (Self::held(memory, at), tried == Tried::HeldAfterDeath)
    }

    /// As [`lock`](Self::lock), without waiting; nothing if somebody holds it.
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
        // SAFETY: this thread took it, and `Locked` cannot leave the thread.
        unsafe { self.memory.mutex(self.at).unlock() };
    }
}
