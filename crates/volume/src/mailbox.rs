// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages to a worker thread from other workers, the control thread, and listeners.
//!
//! Invariants: messages to one worker arrive in the order of posting; a post never waits for the
//! worker. The senders bound the number of messages: pieces and wakes by the requests that connections may have in flight,
//! connections by the seats of the volume, calls by the gate of a FUSE file. The control thread and the volume send few others.

use std::collections::VecDeque;
use std::sync::{Mutex, OnceLock, PoisonError};

use larder_io::Waker;

/// A worker's mailbox.
pub(crate) struct Mailbox<M> {
    queue: Mutex<VecDeque<M>>,
    waker: OnceLock<Waker>,
}

impl<M> Default for Mailbox<M> {
    fn default() -> Self {
        Self { queue: Mutex::default(), waker: OnceLock::new() }
    }
}

impl<M> Mailbox<M> {
    /// Names the thread to wake; called once by the worker.
    pub fn open(&self, waker: Waker) {
        let _ = self.waker.set(waker);
    }

    /// Posts a message.
    pub fn post(&self, message: M) {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner).push_back(message);
        if let Some(waker) = self.waker.get() {
            waker.wake();
        }
    }

    /// Takes all messages out, in exchange for an empty queue.
    pub fn take(&self, empty: &mut VecDeque<M>) {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::swap(&mut *queue, empty);
    }
}
