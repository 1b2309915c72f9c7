// SPDX-License-Identifier: MIT OR Apache-2.0
//! Write-back in the background: the queue of a cache's dirty slots.
//!
//! Invariants: at most so many blocks are on their way at once; slots go down in the order in which
//! they became dirty; under a periodic policy what became dirty after a tick waits for the next.

use std::collections::VecDeque;

use super::WriteBack;

/// The queue of one medium of one host.
pub(super) struct Queue {
    pub(super) policy: WriteBack,
    slots: VecDeque<u32>,
    /// How many of the oldest may be written.
    may_go: usize,
    writing: u32,
    writers: u32,
}

impl Queue {
    pub(super) fn new(policy: WriteBack, writers: u32) -> Self {
        Self { policy, slots: VecDeque::new(), may_go: 0, writing: 0, writers: writers.max(1) }
    }

    /// A slot became dirty. A slot that is never written by the syncer is not queued.
    pub(super) fn push(&mut self, slot: u32) {
        match self.policy {
            WriteBack::None | WriteBack::Sync => {}
            WriteBack::Async => {
                self.slots.push_back(slot);
                self.may_go += 1;
            }
            WriteBack::Periodic(_) => self.slots.push_back(slot),
        }
    }

    /// The syncer wakes.
    pub(super) fn tick(&mut self) {
        self.may_go = self.slots.len();
    }

    /// The next slot that may go down now.
    pub(super) fn pop(&mut self) -> Option<u32> {
        if self.may_go == 0 || self.writing >= self.writers {
            return None;
        }
        self.may_go -= 1;
        self.slots.pop_front()
    }

    pub(super) fn began(&mut self) {
        self.writing += 1;
    }

    pub(super) fn ended(&mut self) {
        self.writing -= 1;
    }
}
