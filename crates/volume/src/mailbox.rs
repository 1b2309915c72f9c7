// SPDX-License-Identifier: MIT OR Apache-2.0
//! How a worker thread is told something: by other workers, the control thread, and listeners.
//!
//! Invariants: messages to one worker arrive in the order of posting; a post never waits for the
//! worker. What may be posted is bounded by the senders: pieces by the requests that connections
//! may have in flight, everything else by one at a time.

use std::collections::VecDeque;
use std::sync::{Mutex, OnceLock, PoisonError};

use larder_core::request::{Reply, Request};
use larder_io::Waker;

use super::connection::Accepted;
use super::worker::{Call, Worker};

/// Something that a worker is to do.
pub(crate) enum Message {
    /// A piece of a request that another worker holds; the answer goes back to it.
    Piece { tag: u64, request: Request },
    /// The answer to a piece that was sent to another worker.
    Reply(Reply),
    /// A client that has been negotiated with.
    Connection(Accepted),
    /// A request from within the process.
    Call(Call),
    /// Anything else, run on the worker's thread.
    Run(Box<dyn FnOnce(&mut Worker) + Send>),
}

/// A worker's mailbox.
#[derive(Default)]
pub(crate) struct Mailbox {
    queue: Mutex<VecDeque<Message>>,
    waker: OnceLock<Waker>,
}

impl Mailbox {
    /// Names the thread to wake; called once by the worker.
    pub fn open(&self, waker: Waker) {
        let _ = self.waker.set(waker);
    }

    /// Leaves a message.
    pub fn post(&self, message: Message) {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner).push_back(message);
        if let Some(waker) = self.waker.get() {
            waker.wake();
        }
    }

    /// Takes all messages out, in exchange for an empty queue.
    pub fn take(&self, empty: &mut VecDeque<Message>) {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::swap(&mut *queue, empty);
    }
}
