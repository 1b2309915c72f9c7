// SPDX-License-Identifier: MIT OR Apache-2.0
//! The epochs of a volume's logs (write policy `ordered`): the one state that its shards share.
//!
//! A change belongs to the epoch in which it was put. A FLUSH, a change with FUA, or a log that needs it ends the current epoch. So
//! of two changes, of which the second one was requested after a FLUSH that covers the first was answered, the second one has the
//! greater epoch, in whatever logs they are. A log replays an epoch once every log has durably replayed all earlier ones.
//!
//! Invariant: `first[log]` is at most the epoch of every change in that log that is not replayed, apart from changes that are being
//! put: those were not answered before any epoch ended that another log may replay meanwhile, so that no FLUSH orders the two.
//!
//! Why atomics and not messages: a put would wait for an answer. Why no clock: two threads read it in another order than they act.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

use crate::mutant;

/// A log has nothing to replay.
const NOTHING: u64 = u64::MAX;

/// See the module.
#[derive(Debug)]
pub struct Epochs {
    current: AtomicU64,
    /// For each log the epoch of its first change that is not replayed. 0 until the log is open.
    first: Box<[AtomicU64]>,
    /// The last epoch that a log waits to replay.
    awaited: AtomicU64,
    /// A log has failed permanently: no other one can replay what comes behind its changes.
    has_ended: AtomicBool,
}

impl Epochs {
    /// Those of so many logs, which are about to be opened.
    #[must_use]
    pub fn of(logs: u32) -> Arc<Self> {
        let first = (0..logs).map(|_| AtomicU64::new(0)).collect();
        let (current, awaited) = (AtomicU64::new(1), AtomicU64::new(0));
        Arc::new(Self { current, first, awaited, has_ended: AtomicBool::new(false) })
    }
}

/// The place of a log among those of its volume.
#[derive(Clone, Debug)]
pub struct Seat {
    epochs: Arc<Epochs>,
    log: usize,
}

impl Seat {
    /// That of a log, counted from 0.
    ///
    /// # Panics
    /// If there are not so many logs.
    #[must_use]
    pub fn new(epochs: &Arc<Epochs>, log: u32) -> Self {
        assert!((log as usize) < epochs.first.len(), "a log of the volume");
        Self { epochs: Arc::clone(epochs), log: log as usize }
    }

    /// That of the only log of a volume.
    #[must_use]
    pub fn alone() -> Self {
        Self::new(&Epochs::of(1), 0)
    }

    /// The epoch of a change that is put now.
    pub(crate) fn current(&self) -> u64 {
        self.epochs.current.load(SeqCst)
    }

    /// The log was opened: the epoch of its first change that is not replayed, and the last epoch in it.
    pub(crate) fn resume(&self, next: Option<u64>, last: u64) {
        self.epochs.current.fetch_max(last + 1, SeqCst);
        self.replayed(next);
    }

    /// A change of this epoch was put. Returns whether it is the first one that is not replayed.
    pub(crate) fn entered(&self, epoch: u64) -> bool {
        self.epochs.first[self.log].fetch_min(epoch, SeqCst) == NOTHING
    }

    /// Everything before this epoch is replayed; `None`: everything.
    pub(crate) fn replayed(&self, next: Option<u64>) {
        self.epochs.first[self.log].store(next.unwrap_or(NOTHING), SeqCst);
    }

    /// Ends the current epoch.
    pub(crate) fn end(&self) {
        self.epochs.current.fetch_add(1, SeqCst);
    }

    /// Ends the current epoch for a FLUSH, which every log gets: the first one does.
    pub(crate) fn end_for_all(&self) {
        if self.log == 0 && !mutant::is_active("ordered-flush-joins") {
            self.end();
        }
    }

    /// Whether all other logs have replayed the epochs before this one, which has ended.
    pub(crate) fn may_replay(&self, epoch: u64) -> bool {
        let others = self.epochs.first.iter().enumerate().filter(|(log, _)| *log != self.log);
        let mut others = others.map(|(_, first)| first.load(SeqCst));
        let may = mutant::is_active("ordered-alone") || others.all(|first| first >= epoch);
        if !may {
            self.epochs.awaited.fetch_max(epoch, SeqCst);
        }
        may
    }

    /// Whether another log waits to replay an epoch behind this one.
    pub(crate) fn is_awaited(&self, epoch: u64) -> bool {
        epoch < self.epochs.awaited.load(SeqCst)
    }

    /// The log has failed permanently.
    pub(crate) fn fail(&self) {
        self.epochs.has_ended.store(true, SeqCst);
    }

    /// Whether any log has.
    pub(crate) fn has_failed(&self) -> bool {
        self.epochs.has_ended.load(SeqCst)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two logs: the later epoch waits for the earlier one of the other log, and a log that is not open holds up all.
    #[test]
    fn an_epoch_waits_for_earlier_ones_of_all_logs() {
        let epochs = Epochs::of(2);
        let [a, b] = [0, 1].map(|log| Seat::new(&epochs, log));
        a.resume(None, 6);
        assert_eq!(b.current(), 7);
        a.entered(7);
        a.end();
        assert!(!a.may_replay(7), "the other log is not open");
        b.resume(Some(3), 5);
        assert!(!a.may_replay(7) && b.may_replay(3));
        b.entered(8);
        b.replayed(Some(8));
        assert!(a.may_replay(7) && !b.may_replay(8));
        a.replayed(None);
        assert!(b.may_replay(8));
        b.end_for_all();
        assert_eq!(a.current(), 8);
        a.end_for_all();
        assert_eq!(b.current(), 9);
    }
}
