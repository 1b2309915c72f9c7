// SPDX-License-Identifier: MIT OR Apache-2.0
//! Mutexes in shared memory that outlive their holders.
//!
//! Invariant: a mutex is made once, before others see the memory, and its memory is never used for anything else;
//! so the kernel's list of what a thread holds never points at other bytes. `locked.rs` has the guard of one that is
//! held.
//!
//! Nobody sleeps for good: a waiter that was woken and is killed before it takes the mutex takes the wake-up with
//! it, if somebody else was faster. The kernel passes it on only where the mutex is free, and who was faster does
//! not know of waiters. So a lock looks again after a while.
//!
//! Why not a futex of our own: the hand-over at a holder's death (`set_robust_list`) is the C library's; one list a
//! thread, and it owns that.
#![allow(unsafe_code)]

use std::cell::UnsafeCell;
use std::mem::MaybeUninit;

/// A mutex in shared memory.
#[repr(C, align(64))]
pub(crate) struct Mutex(UnsafeCell<libc::pthread_mutex_t>);

/// Bytes between two of them.
pub(crate) const STRIDE: usize = size_of::<Mutex>();

/// How long a lock sleeps before it looks again.
const WAIT_NS: i64 = 10_000_000;

/// What became of a try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tried {
    /// This thread holds it.
    Held,
    /// This thread holds it, and its last holder died with it.
    HeldAfterDeath,
    /// Somebody holds it.
    Busy,
}

fn must(result: i32, what: &str) {
    // All that is left are errors of ours: a mutex that is none, or an unlock of what is not held.
    assert_eq!(result, 0, "{what}");
}

impl Mutex {
    /// Makes it; `again` lets its holder take it once more.
    ///
    /// # Safety
    /// Nobody uses it yet.
    pub(crate) unsafe fn make(&self, again: bool) {
        let kind = if again { libc::PTHREAD_MUTEX_RECURSIVE } else { libc::PTHREAD_MUTEX_NORMAL };
        let mut how = MaybeUninit::<libc::pthread_mutexattr_t>::uninit();
        let how = how.as_mut_ptr();
        // SAFETY: `how` is made by the first call, and used by this thread alone; nobody uses the mutex yet.
        unsafe {
            must(libc::pthread_mutexattr_init(how), "attributes");
            must(libc::pthread_mutexattr_setpshared(how, libc::PTHREAD_PROCESS_SHARED), "shared");
            must(libc::pthread_mutexattr_setrobust(how, libc::PTHREAD_MUTEX_ROBUST), "robust");
            must(libc::pthread_mutexattr_settype(how, kind), "type");
            must(libc::pthread_mutex_init(self.0.get(), how), "mutex");
            must(libc::pthread_mutexattr_destroy(how), "attributes");
        }
    }
    /// Waits until this thread has it.
    ///
    /// # Safety
    /// It was made.
    pub(crate) unsafe fn lock(&self) -> Tried {
        // SAFETY: as the caller says.
        let mut tried = unsafe { self.try_lock() };
        while tried == Tried::Busy {
            let mut until = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
            until.tv_nsec += WAIT_NS;
            until.tv_sec += until.tv_nsec / 1_000_000_000;
            until.tv_nsec %= 1_000_000_000;
            let until = libc::timespec { tv_sec: until.tv_sec, tv_nsec: until.tv_nsec };
            // SAFETY: as the caller says.
            tried = unsafe { self.taken(libc::pthread_mutex_timedlock(self.0.get(), &until)) };
        }
        tried
    }

    /// As [`lock`](Self::lock), without waiting.
    ///
    /// # Safety
    /// It was made.
    pub(crate) unsafe fn try_lock(&self) -> Tried {
        // SAFETY: as the caller says.
        unsafe { self.taken(libc::pthread_mutex_trylock(self.0.get())) }
    }

    /// # Safety
    /// It was made, and this thread has just asked for it.
    unsafe fn taken(&self, result: i32) -> Tried {
        match result {
            libc::EBUSY | libc::ETIMEDOUT => Tried::Busy,
            libc::EOWNERDEAD => {
                // Whoever dies before it has put things in order leaves them to the next as it found them.
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

    /// Gives it back.
    ///
    /// # Safety
    /// This thread holds it.
    pub(crate) unsafe fn unlock(&self) {
        // SAFETY: as the caller says.
        must(unsafe { libc::pthread_mutex_unlock(self.0.get()) }, "unlock");
    }
}
