// SPDX-License-Identifier: MIT OR Apache-2.0
//! The database's log, which has a device of its own that is not modelled: the changes that recovery repeats.
//!
//! Invariant: changes are kept from the begin of the last checkpoint that ended.

use std::collections::VecDeque;

/// A change of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Change {
    pub(super) page: u64,
    /// The version that it makes.
    pub(super) version: u32,
    /// The page was made, so that there is nothing to read.
    pub(super) makes: bool,
}

/// The log, see the module.
#[derive(Default)]
pub(super) struct Journal {
    /// Whether changes are kept.
    keeps: bool,
    changes: VecDeque<Change>,
    /// Changes that came before those that are kept.
    dropped: u64,
    /// Where the last checkpoint began, and whether it is in progress.
    began: u64,
    open: bool,
}

impl Journal {
    /// Keeps changes from now on.
    pub(super) fn keep(&mut self) {
        self.keeps = true;
    }

    pub(super) fn add(&mut self, change: Change) {
        if self.keeps {
            self.changes.push_back(change);
        }
    }

    /// A checkpoint begins.
    pub(super) fn begin(&mut self) {
        self.began = self.dropped + self.changes.len() as u64;
        self.open = true;
    }

    /// It ended: changes from before its begin are not needed.
    pub(super) fn end(&mut self) {
        let passed = self.began.saturating_sub(self.dropped) as usize;
        self.changes.drain(..passed.min(self.changes.len()));
        self.dropped = self.began;
        self.open = false;
    }

    /// The changes that must be made again.
    pub(super) fn take(&mut self) -> VecDeque<Change> {
        std::mem::take(&mut self.changes)
    }

    /// Whether no checkpoint is in progress.
    pub(super) fn is_between(&self) -> bool {
        !self.open
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_kept_from_the_begin_of_the_last_whole_checkpoint() {
        let mut journal = Journal::default();
        let change = |version| Change { page: 1, version, makes: false };
        journal.add(change(1));
        journal.keep();
        (2..5).for_each(|version| journal.add(change(version)));
        journal.begin();
        journal.add(change(5));
        journal.end();
        journal.begin();
        journal.add(change(6));
        assert_eq!(journal.take(), [change(5), change(6)]);
    }
}
