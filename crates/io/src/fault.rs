// SPDX-License-Identifier: MIT OR Apache-2.0
//! Faults on demand: a device fails, hangs, vanishes or crawls when told
//! ([`Device::with_fault`](crate::Device::with_fault)).
//!
//! Purpose: tests of everything that must survive a bad device, in this crate and in others.
//!
//! Invariants: an operation that a rule fails did not reach the device. A held operation has not
//! run either; it really runs when it is released (late), or fails if the device vanishes
//! meanwhile. What is under way when the device vanishes fails too, and may have been done or not.
//! Rules are looked at in the order in which they were made, and the first that fits counts.
//!
//! Why not behind `cfg(test)`: integration tests of other crates see only the library.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use larder_core::exec::{Io, IoKind, Nanos};
use larder_core::request::Errno;

use crate::waker::Waker;

/// Which operations a fault is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// Every one.
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
    /// A flush has no range and fits only the whole device.
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
    /// Any fault is on; a healthy device costs one look at this.
    on: AtomicBool,
    vanished: AtomicBool,
    state: Mutex<State>,
}

/// What becomes of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It runs; its end is told so much later.
    Run(Nanos),
    /// It fails at once.
    Fail(Errno),
    /// It waits.
    Hold,
}

/// The handle on a device's faults, see the module.
#[derive(Clone, Default)]
pub struct Fault(Arc<Shared>);

impl std::fmt::Debug for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Fault")
    }
}

impl Fault {
    /// A handle with nothing wrong yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state; whoever holds operations looks at them again.
    fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.state();
        change(&mut state);
        let on =
            !state.rules.is_empty() || state.hang.is_some() || state.vanished || state.delay > 0;
        self.0.on.store(on, Ordering::Release);
        self.0.vanished.store(state.vanished, Ordering::Release);
        state.wakers.iter().for_each(Waker::wake);
    }

    /// From now on, fails such operations.
    pub fn fail(&self, target: Target, errno: Errno) {
        self.change(|s| s.rules.push(Rule { target, range: WHOLE, left: None, errno }));
    }

    /// From now on, fails such operations that touch the range.
    pub fn fail_range(&self, target: Target, range: Range<u64>, errno: Errno) {
        self.change(|s| s.rules.push(Rule { target, range, left: None, errno }));
    }

    /// Fails the next `count` such operations.
    pub fn fail_next(&self, target: Target, count: u64, errno: Errno) {
        self.change(|s| s.rules.push(Rule { target, range: WHOLE, left: Some(count), errno }));
    }

    /// From now on, holds such operations until [`release`](Self::release).
    pub fn hang(&self, target: Target) {
        self.change(|s| s.hang = Some(target));
    }

    /// Lets everything held run, and holds no more.
    pub fn release(&self) {
        self.change(|s| s.hang = None);
    }

    /// Fails everything with `ENXIO`, what is held too, until [`return_`](Self::return_).
    pub fn vanish(&self) {
        self.change(|s| s.vanished = true);
    }

    /// Brings a vanished device back.
    pub fn return_(&self) {
        self.change(|s| s.vanished = false);
    }

    /// Tells of the end of every operation so much later.
    pub fn slow(&self, delay: Duration) {
        let delay = u64::try_from(delay.as_nanos()).unwrap_or(u64::MAX);
        self.change(|s| s.delay = delay);
    }

    /// Takes every fault away, letting everything held run.
    pub fn heal(&self) {
        self.change(|s| {
            s.rules.clear();
            s.hang = None;
            s.vanished = false;
            s.delay = 0;
        });
    }

    /// How many operations are held at the moment, by all drivers.
    #[must_use]
    pub fn held(&self) -> usize {
        self.state().held
    }

    /// Whose thread to wake when something changes.
    pub(crate) fn subscribe(&self, waker: Waker) {
        self.state().wakers.push(waker);
    }

    pub(crate) fn is_vanished(&self) -> bool {
        self.0.vanished.load(Ordering::Acquire)
    }

    /// What becomes of an operation that is just being started. One that is to be held counts as
    /// held from here on.
    pub(crate) fn judge(&self, io: &Io) -> Verdict {
        let verdict = self.verdict(io);
        if verdict == Verdict::Hold {
            self.state().held += 1;
        }
        verdict
    }

    /// What is to become of an operation.
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

    /// What becomes of an operation that is held.
    pub(crate) fn judge_held(&self, io: &Io) -> Verdict {
        let mut state = self.state();
        if !state.vanished && state.hang.is_some_and(|target| target.fits(io.kind)) {
            return Verdict::Hold;
        }
        state.held -= 1;
        if state.vanished { Verdict::Fail(Errno::ENXIO) } else { Verdict::Run(state.delay) }
    }

    /// A driver that holds an operation goes away.
    pub(crate) fn forget_held(&self) {
        self.state().held -= 1;
    }
}
