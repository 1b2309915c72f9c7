// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the control thread of a client and the worker of a queue share.
//!
//! Invariants: the worker's side is dropped once, and then the queue's end is known. After that the worker touches neither
//! the guest's memory nor the client's descriptors of this queue.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use larder_volume::budget::Wake;

/// The client's descriptors of a queue, which it may replace at any time.
#[derive(Debug, Default)]
pub struct Bells {
    /// Signalled when requests were answered.
    pub call: Mutex<Option<Arc<OwnedFd>>>,
    /// Signalled when the queue stops for an error.
    pub error: Mutex<Option<Arc<OwnedFd>>>,
}

/// A mutex's content, whatever became of other holders.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A running queue, see the module.
#[derive(Default)]
pub struct Link {
    /// The client's descriptors.
    pub bells: Arc<Bells>,
    wake: Mutex<Option<Wake>>,
    stops: AtomicBool,
    hurries: AtomicBool,
    rings: AtomicBool,
    /// The next request that the queue would have taken.
    ended: Mutex<Option<u16>>,
    news: Condvar,
}

impl Link {
    /// That of a queue with these descriptors. The first thing it does is to call: an earlier server may have answered
    /// requests without a call.
    #[must_use]
    pub fn new(bells: Arc<Bells>) -> Arc<Self> {
        Arc::new(Self { bells, rings: AtomicBool::new(true), ..Self::default() })
    }

    /// Sets what wakes the worker for the queue.
    pub fn set_wake(&self, wake: Wake) {
        *lock(&self.wake) = Some(wake);
    }

    /// Wakes the worker for the queue.
    pub fn wake(&self) {
        let wake = lock(&self.wake).clone();
        wake.inspect(|wake| wake());
    }

    /// The queue takes no further request and ends when those in flight have ended.
    pub fn stop(&self) {
        self.stops.store(true, Ordering::SeqCst);
        self.wake();
    }

    /// The queue ends without waiting for the client to take its calls.
    pub fn hurry(&self) {
        self.hurries.store(true, Ordering::SeqCst);
        self.wake();
    }

    /// Asks for a call: the client's descriptor was replaced, and a call on the former may be lost.
    pub fn ring(&self) {
        self.rings.store(true, Ordering::SeqCst);
        self.wake();
    }

    /// Whether the queue is to end.
    #[must_use]
    pub fn stops(&self) -> bool {
        self.stops.load(Ordering::SeqCst)
    }

    /// Whether it waits for nothing of the client.
    #[must_use]
    pub fn hurries(&self) -> bool {
        self.hurries.load(Ordering::SeqCst)
    }

    /// Whether a call was asked for since the last question.
    pub fn take_ring(&self) -> bool {
        self.rings.swap(false, Ordering::SeqCst)
    }

    /// Records the end.
    pub fn end(&self, next: u16) {
        *lock(&self.ended) = Some(next);
        self.news.notify_all();
    }

    /// The end, if it comes within `bound`.
    pub fn wait(&self, bound: Duration) -> Option<u16> {
        let waited =
            self.news.wait_timeout_while(lock(&self.ended), bound, |ended| ended.is_none());
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }
}
