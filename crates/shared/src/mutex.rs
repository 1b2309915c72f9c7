// SPDX-License-Identifier: MIT OR Apache-2.0
//! Mutexes in shared memory that outlive their holders.
//!
//! Invariant: a mutex is made once, before others see the memory, and its memory is never used for anything else;
//! so the kernel's list of what a thread holds never points at other bytes.
//!
//! Nobody sleeps for good: a waiter that was woken and is killed before it takes the mutex takes the wake-up with
//! it, if somebody else was faster. The kernel passes it on only where the mutex is free, and who was faster does
//! not know of waiters. So a lock looks again after a while.
//!
//! Why not a futex of our own: the hand-over at a holder's death (`set_robust_list`) is the C library's; one list a
//! thread, and it owns that.
#![allow(unsafe_code)]

use std::cell::UnsafeCell;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::sync::Arc;

use crate::memory::Memory;

/// A mutex in shared memory.
#[repr(C, align(64))]
pub(crate) struct Mutex(UnsafeCell<libc::pthread_mutex_t>);

/// Bytes between two of them.
pub(crate) const STRIDE: usize = size_of::<Mutex>();

/// A mutex that is held until this is dropped, on the thread that took it.
pub struct Locked {
    memory: Arc<Memory>,
    at: usize,
    not_send: PhantomData<*mut ()>,
}

/// How long a lock sleeps before it looks again.
const WAIT_NS: i64 = 10_000_000;

/// What became of a try.
pub(crate) enum Tried {
    /// It is held now; whether its last holder died.
    Held(Locked, bool),
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
}

impl Locked {
    /// Takes the mutex at this place of the memory; whether its last holder died.
    pub(crate) fn lock(memory: &Arc<Memory>, at: usize) -> (Self, bool) {
        if let Tried::Held(locked, died) = Self::try_lock(memory, at) {
            return (locked, died);
        }
        loop {
            let mut until = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
            until.tv_nsec += WAIT_NS;
            until.tv_sec += until.tv_nsec / 1_000_000_000;
            until.tv_nsec %= 1_000_000_000;
            let until = libc::timespec { tv_sec: until.tv_sec, tv_nsec: until.tv_nsec };
            // SAFETY: the mutex was made before the memory could be joined, and stays mapped while `memory` lives.
            let result = unsafe { libc::pthread_mutex_timedlock(memory.mutex(at).0.get(), &until) };
            if result == libc::ETIMEDOUT {
                continue;
            }
            if let Tried::Held(locked, died) = Self::taken(memory, at, result) {
                return (locked, died);
            }
        }
    }

    /// As [`lock`](Self::lock), without waiting.
    pub(crate) fn try_lock(memory: &Arc<Memory>, at: usize) -> Tried {
        // SAFETY: as above.
        let result = unsafe { libc::pthread_mutex_trylock(memory.mutex(at).0.get()) };
        Self::taken(memory, at, result)
    }

    fn taken(memory: &Arc<Memory>, at: usize, result: i32) -> Tried {
        if result == libc::EBUSY {
            return Tried::Busy;
        }
        let died = result == libc::EOWNERDEAD;
        if died {
            // Whoever dies before it has put things in order leaves them to the next as it found them.
            // SAFETY: as above, and this thread holds it.
            must(unsafe { libc::pthread_mutex_consistent(memory.mutex(at).0.get()) }, "consistent");
        } else {
            must(result, "lock");
        }
        let locked = Self { memory: Arc::clone(memory), at, not_send: PhantomData };
        Tried::Held(locked, died)
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        // SAFETY: this thread took it, and `Locked` cannot leave the thread.
        must(unsafe { libc::pthread_mutex_unlock(self.memory.mutex(self.at).0.get()) }, "unlock");
    }
}
