// SPDX-License-Identifier: MIT OR Apache-2.0
//! Flushes of a file or block device by all drivers of the process, and the failures of flushes of any device.
//!
//! Purpose: after a flush a driver may trust what it wrote. The kernel reports lost writes of an open file to one caller of
//! `fdatasync`: of two calls at the same time one may succeed, although what it covers was lost. So one is in the kernel at
//! a time, and drivers learn of failures before they see the result of a later one. A FUA write through the page cache takes
//! a turn too, since it would consume the error that a concurrent flush must report.
//!
//! Invariants: a failure is counted before the next flush begins. Another driver's flush covers a waiting one only if it
//! began after the waiting one was requested; so a waiting flush ends after two flushes, if they succeed.
//!
//! Limits: with direct I/O the kernel makes a FUA write durable by itself, beside flushes. If it fails, other drivers learn
//! of it when its driver takes the completion. The flush of a driver that is dropped while the kernel does not answer counts as
//! failed, and the next one runs beside it. Exports of NBD servers take no turns.
//!
//! Why not a descriptor for each driver: the lock that keeps other programs from a file belongs to one descriptor, and below
//! the page cache a device may report a loss only once.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::waker::Waker;

/// What a driver does with a flush.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    /// It asks the kernel, and calls [`Flushes::leave`] at the end.
    Begins,
    /// It asks again when its waker is called.
    Waits,
    /// It succeeds: a flush that began later has.
    Covered,
}

/// How a turn ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// Everything that was written before is durable.
    Covers,
    /// Writes may be lost.
    Failed,
    /// It was cancelled, or covered one write alone.
    Other,
}

/// See [`Flushes::enter`].
pub(crate) const NEVER: u64 = u64::MAX;

#[derive(Default)]
struct State {
    running: bool,
    /// Flushes that have begun; each has the next number.
    begun: u64,
    /// The last one that succeeded.
    succeeded: u64,
    waiting: Vec<Waker>,
}

/// The flushes of one device, see the module.
#[derive(Default)]
pub(crate) struct Flushes {
    state: Mutex<State>,
    failures: AtomicU64,
}

impl Flushes {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many have begun when a flush is asked for.
    pub(crate) fn begun(&self) -> u64 {
        self.state().begun
    }

    /// Asks for a turn, for a flush that was requested when so many had begun; [`NEVER`] if no other flush covers it.
    pub(crate) fn enter(&self, begun: u64, waker: &Waker) -> Entry {
        let mut state = self.state();
        if state.succeeded > begun {
            return Entry::Covered;
        }
        if state.running {
            if !state.waiting.iter().any(|other| other.is(waker)) {
                state.waiting.push(waker.clone());
            }
            return Entry::Waits;
        }
        state.running = true;
        state.begun += 1;
        Entry::Begins
    }

    /// The flush that began has ended.
    pub(crate) fn leave(&self, end: End) {
        let mut state = self.state();
        match end {
            End::Covers => state.succeeded = state.begun,
            End::Failed => self.failed(),
            End::Other => {}
        }
        state.running = false;
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        waiting.iter().for_each(Waker::wake);
    }

    /// A flush, or an operation that includes one, has failed. A failure may be counted twice.
    pub(crate) fn failed(&self) {
        self.failures.fetch_add(1, Ordering::AcqRel);
    }

    /// A number that changes with every failure.
    pub(crate) fn failures(&self) -> u64 {
        self.failures.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_flush_runs_and_those_that_wait_share_the_next_one() {
        let (flushes, waker) = (Flushes::default(), Waker::new().unwrap());
        let first = flushes.begun();
        assert_eq!(flushes.enter(first, &waker), Entry::Begins);
        // The one that runs may have begun before what these cover was written.
        let (second, third) = (flushes.begun(), flushes.begun());
        assert_eq!(flushes.enter(second, &waker), Entry::Waits);
        assert_eq!(flushes.enter(third, &waker), Entry::Waits);
        assert_eq!(flushes.state().waiting.len(), 1);
        assert!(!waker.take_notice());
        flushes.leave(End::Covers);
        assert!(waker.take_notice());
        assert_eq!(flushes.enter(second, &waker), Entry::Begins);
        assert_eq!(flushes.enter(third, &waker), Entry::Waits);
        flushes.leave(End::Covers);
        assert_eq!(flushes.enter(NEVER, &waker), Entry::Begins);
        flushes.leave(End::Other);
        assert_eq!(flushes.enter(third, &waker), Entry::Covered);
        assert_eq!(flushes.enter(flushes.begun(), &waker), Entry::Begins);
    }

    #[test]
    fn a_failure_is_counted_before_the_next_flush_begins_and_covers_nothing() {
        let (flushes, waker) = (Flushes::default(), Waker::new().unwrap());
        let before = flushes.failures();
        assert_eq!(flushes.enter(flushes.begun(), &waker), Entry::Begins);
        let later = flushes.begun();
        assert_eq!(flushes.enter(later, &waker), Entry::Waits);
        assert_eq!(flushes.failures(), before);
        flushes.leave(End::Failed);
        assert_ne!(flushes.failures(), before);
        assert_eq!(flushes.enter(later, &waker), Entry::Begins);
    }
}
