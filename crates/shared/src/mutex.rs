// SPDX-License-Identifier: MIT OR Apache-2.0
//! Robust mutexes in shared memory, which survive the death of their holder.
//!
//! Invariant: a mutex is initialised once, before other processes see the memory, and its memory is never used for
//! anything else. So the kernel's list of the mutexes that a thread holds never points at other data. `locked.rs` has
//! the guard.
//!
//! No waiter sleeps indefinitely. A waiter that is woken and then killed before it takes the mutex loses the wake-up if
//! another thread took the mutex first: the kernel passes the wake-up on only while the mutex is free, and the new
//! holder does not know of further waiters. So a lock retries after a while.
//!
//! Why not an own futex: the kernel's hand-over at a holder's death (`set_robust_list`) has one list a thread, and the
//! C library owns it.
#![allow(unsafe_code)]

use std::cell::UnsafeCell;
use std::mem::MaybeUninit;

/// A mutex in shared memory.
#[repr(C, align(64))]
pub(crate) struct Mutex(UnsafeCell<libc::pthread_mutex_t>);

/// Bytes between two mutexes.
pub(crate) const STRIDE: usize = size_of::<Mutex>();

/// How long a lock sleeps before it retries.
const WAIT_NS: i64 = 10_000_000;

/// The result of an attempt to lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tried {
    /// This thread holds it.
    Held,
    /// This thread holds it, and its last holder died holding it.
    HeldAfterDeath,
    /// Another thread holds it.
    Busy,
}

fn must(result: i32, what: &str) {
    // The remaining errors are bugs: not a mutex, or an unlock by a thread that does not hold it.
    assert_eq!(result, 0, "{what}");
}

impl Mutex {
    /// Initialises the mutex; a recursive one can be taken repeatedly by its holder.
    ///
    /// # Safety
    /// No thread uses the mutex yet.
    pub(crate) unsafe fn make(&self, recursive: bool) {
        let kind =
            if recursive { libc::PTHREAD_MUTEX_RECURSIVE } else { libc::PTHREAD_MUTEX_NORMAL };
        let mut how = MaybeUninit::<libc::pthread_mutexattr_t>::uninit();
        let how = how.as_mut_ptr();
        // SAFETY: the first call initialises `how`, which only this thread uses; by contract no thread uses the mutex
        // yet.
        unsafe {
            must(libc::pthread_mutexattr_init(how), "attributes");
            must(libc::pthread_mutexattr_setpshared(how, libc::PTHREAD_PROCESS_SHARED), "shared");
            must(libc::pthread_mutexattr_setrobust(how, libc::PTHREAD_MUTEX_ROBUST), "robust");
            must(libc::pthread_mutexattr_settype(how, kind), "type");
            must(libc::pthread_mutex_init(self.0.get(), how), "mutex");
            must(libc::pthread_mutexattr_destroy(how), "attributes");
        }
    }
    /// Waits until this thread holds the mutex.
    ///
    /// # Safety
    /// The mutex is initialised.
    pub(crate) unsafe fn lock(&self) -> Tried {
        // SAFETY: the caller's contract.
        let mut tried = unsafe { self.try_lock() };
        while tried == Tried::Busy {
            let mut until = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
            until.tv_nsec += WAIT_NS;
            until.tv_sec += until.tv_nsec / 1_000_000_000;
            until.tv_nsec %= 1_000_000_000;
            let until = libc::timespec { tv_sec: until.tv_sec, tv_nsec: until.tv_nsec };
            // SAFETY: the caller's contract.
            tried = unsafe { self.taken(libc::pthread_mutex_timedlock(self.0.get(), &until)) };
        }
        tried
    }

    /// As [`lock`](Self::lock), without waiting.
    ///
    /// # Safety
    /// The mutex is initialised.
    pub(crate) unsafe fn try_lock(&self) -> Tried {
        // SAFETY: the caller's contract.
        unsafe { self.taken(libc::pthread_mutex_trylock(self.0.get())) }
    }

    /// # Safety
    /// The mutex is initialised, and `result` is that of this thread's attempt to lock it.
    unsafe fn taken(&self, result: i32) -> Tried {
        match result {
            libc::EBUSY | libc::ETIMEDOUT => Tried::Busy,
            libc::EOWNERDEAD => {
                // A thread that dies before it has repaired the state passes that duty to the next holder.
                // SAFETY: this thread holds it.
                must(unsafe { libc::pthread_mutex_consistent(self.0.get()) }, "consistent");
                Tried::HeldAfterDeath
            }
            result => {
                must(result, "lock");
                Tried::Held
            }
        }
    }

    /// Releases the mutex.
    ///
    /// # Safety
    /// This thread holds the mutex.
    pub(crate) unsafe fn unlock(&self) {
        // SAFETY: the caller's contract.
        must(unsafe { libc::pthread_mutex_unlock(self.0.get()) }, "unlock");
    }
}
