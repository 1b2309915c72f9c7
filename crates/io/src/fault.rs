// SPDX-License-Identifier: MIT OR Apache-2.0
//! Injected faults: a device fails, hangs, vanishes or slows down on command
//! ([`Device::with_fault`](crate::Device::with_fault)).
//!
//! Purpose: tests of everything that must survive a bad device, in this crate and in others.
//!
//! Invariants: an operation that a rule fails does not reach the device. Neither does a held operation; it runs when it
//! is released, late, or fails if the device vanishes meanwhile. An operation in flight when the device vanishes fails
//! too, and may or may not have been executed. Rules are checked in the order in which they were added, and the first
//! match applies.
//!
//! Why not behind `cfg(test)`: integration tests of other crates see only the library.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use larder_core::exec::{Io, IoKind, Nanos};
use larder_core::request::Errno;

use crate::waker::Waker;

/// The operations to which a fault applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// All operations.
    All,
    /// Reads.
    Reads,
    /// Writes.
    Writes,
    /// Flushes.
    Flushes,
    /// Trims and zeroes.
    Trims,
}

impl Target {
    fn fits(self, kind: IoKind) -> bool {
        match self {
            Self::All => true,
            Self::Reads => matches!(kind, IoKind::Read),
            Self::Writes => matches!(kind, IoKind::Write { .. }),
            Self::Flushes => matches!(kind, IoKind::Flush),
            Self::Trims => matches!(kind, IoKind::Trim { .. } | IoKind::Zero { .. }),
        }
    }
}

struct Rule {
    target: Target,
    /// A flush has no range and matches only the whole device.
    range: Range<u64>,
    left: Option<u64>,
    errno: Errno,
}

impl Rule {
    fn fits(&self, io: &Io) -> bool {
        let whole = self.range == WHOLE;
        let overlaps = io.offset < self.range.end && io.offset + io.len > self.range.start;
        self.target.fits(io.kind) && self.left != Some(0) && (whole || overlaps)
    }
}

const WHOLE: Range<u64> = 0..u64::MAX;

#[derive(Default)]
struct State {
    rules: Vec<Rule>,
    hang: Option<Target>,
    vanished: bool,
    delay: Nanos,
    held: usize,
    wakers: Vec<Waker>,
}

#[derive(Default)]
struct Shared {
    /// Whether any fault is active; a healthy device costs one load of this.
    on: AtomicBool,
    vanished: AtomicBool,
    state: Mutex<State>,
}

/// The fate of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It runs; its completion is delayed by this.
    Run(Nanos),
    /// It fails at once.
    Fail(Errno),
    /// It is held.
    Hold,
}

/// The handle of a device's faults.
#[derive(Clone, Default)]
pub struct Fault(Arc<Shared>);

impl std::fmt::Debug for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Fault")
    }
}

impl Fault {
    /// A handle without faults.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state and wakes the drivers, which check their held operations again.
    fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.state();
        change(&mut state);
        let on =
            !state.rules.is_empty() || state.hang.is_some() || state.vanished || state.delay > 0;
        self.0.on.store(on, Ordering::Release);
        self.0.vanished.store(state.vanished, Ordering::Release);
        state.wakers.iter().for_each(Waker::wake);
    }

    /// Fails all such operations from now on.
    pub fn fail(&self, target: Target, errno: Errno) {
        self.change(|s| s.rules.push(Rule { target, range: WHOLE, left: None, errno }));
    }

    /// Fails such operations that touch the range, from now on.
    pub fn fail_range(&self, target: Target, range: Range<u64>, errno: Errno) {
        self.change(|s| s.rules.push(Rule { target, range, left: None, errno }));
    }

    /// Fails the next `count` such operations.
    pub fn fail_next(&self, target: Target, count: u64, errno: Errno) {
        self.change(|s| s.rules.push(Rule { target, range: WHOLE, left: Some(count), errno }));
    }

    /// Holds such operations until [`release`](Self::release).
    pub fn hang(&self, target: Target) {
        self.change(|s| s.hang = Some(target));
    }

    /// Runs all held operations, and holds no more.
    pub fn release(&self) {
        self.change(|s| s.hang = None);
    }

    /// Fails all operations with `ENXIO`, including held ones, until [`return_`](Self::return_).
    pub fn vanish(&self) {
        self.change(|s| s.vanished = true);
    }

    /// Returns a vanished device.
    pub fn return_(&self) {
        self.change(|s| s.vanished = false);
    }

    /// Delays the completion of every operation.
    pub fn slow(&self, delay: Duration) {
        let delay = u64::try_from(delay.as_nanos()).unwrap_or(u64::MAX);
        self.change(|s| s.delay = delay);
    }

    /// Removes every fault, and runs all held operations.
    pub fn heal(&self) {
        self.change(|s| {
            s.rules.clear();
            s.hang = None;
            s.vanished = false;
            s.delay = 0;
        });
    }

    /// Number of operations held by all drivers.
    #[must_use]
    pub fn held(&self) -> usize {
        self.state().held
    }

    /// Registers a driver's thread to be woken on changes.
    pub(crate) fn subscribe(&self, waker: Waker) {
        self.state().wakers.push(waker);
    }

    pub(crate) fn is_vanished(&self) -> bool {
        self.0.vanished.load(Ordering::Acquire)
    }

    /// The fate of an operation that is being started. A held one is counted from here on.
    pub(crate) fn judge(&self, io: &Io) -> Verdict {
        let verdict = self.verdict(io);
        if verdict == Verdict::Hold {
            self.state().held += 1;
        }
        verdict
    }

    /// The fate of an operation.
    pub(crate) fn verdict(&self, io: &Io) -> Verdict {
        if !self.0.on.load(Ordering::Acquire) {
            return Verdict::Run(0);
        }
        let mut state = self.state();
        if state.vanished {
            return Verdict::Fail(Errno::ENXIO);
        }
        if let Some(rule) = state.rules.iter_mut().find(|rule| rule.fits(io)) {
            rule.left = rule.left.map(|left| left - 1);
            return Verdict::Fail(rule.errno);
        }
        if state.hang.is_some_and(|target| target.fits(io.kind)) {
            return Verdict::Hold;
        }
        Verdict::Run(state.delay)
    }

    /// The fate of a held operation.
    pub(crate) fn judge_held(&self, io: &Io) -> Verdict {
        let mut state = self.state();
        if !state.vanished && state.hang.is_some_and(|target| target.fits(io.kind)) {
            return Verdict::Hold;
        }
        state.held -= 1;
        if state.vanished { Verdict::Fail(Errno::ENXIO) } else { Verdict::Run(state.delay) }
    }

    /// A driver that holds an operation is dropped.
    pub(crate) fn forget_held(&self) {
        self.state().held -= 1;
    }
}
