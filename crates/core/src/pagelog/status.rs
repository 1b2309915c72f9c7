// SPDX-License-Identifier: MIT OR Apache-2.0
//! The state of a log, its pages, and its failure.

use std::ops::{Deref, Range};
use std::sync::atomic::AtomicU64;

use super::host::Host;
use super::paths::PageLog;
use super::words::{DIRTY, Kind, Mark, VALID, kind_of, page_of};
use crate::mutant;
use crate::request::Errno;

/// The state of a log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogStatus {
    /// Blocks of the ring.
    pub blocks: u64,
    /// Blocks between tail and head.
    pub used: u64,
    /// Valid pages.
    pub valid: u64,
    /// Dirty pages.
    pub dirty: u64,
    /// Pages put since the start.
    pub put: u64,
    /// Batches opened since the start: each becomes one write.
    pub batches: u64,
    /// Pages appended again since the start.
    pub appended_again: u64,
    /// Pages evicted since the start.
    pub evicted: u64,
    /// The head.
    pub head: u64,
    /// Its generation, and the position up to which a start after a stop finds it.
    pub reached: (u64, u64),
    /// Free pages of the open batch.
    pub open_room: u64,
}

impl<H: Host, M: Deref<Target = [AtomicU64]>> PageLog<H, M> {
    /// Its state.
    pub fn status(&self) -> LogStatus {
        let _guard = self.lock();
        let get = |mark| self.words.get(mark);
        // What flash that fails did not take is not in the log of the next start.
        let end = if self.is_bypassed() { Mark::Durable } else { Mark::Last };
        LogStatus {
            blocks: u64::from(self.log.blocks),
            used: get(Mark::Head) - get(Mark::Tail),
            valid: get(Mark::Valid),
            dirty: get(Mark::Dirty),
            put: get(Mark::Put),
            batches: get(Mark::Opened),
            appended_again: get(Mark::AppendedAgain),
            evicted: get(Mark::Evictions),
            head: get(Mark::Head),
            reached: (get(Mark::Generation), get(end)),
            open_room: self.words.open_room(&self.log),
        }
    }

    /// The valid pages: page, first byte on flash, whether it is dirty.
    pub fn valid_pages(&self) -> impl Iterator<Item = (u64, u64, bool)> + '_ {
        self.valid_in(self.all_positions())
    }

    /// The positions that the log has.
    pub fn all_positions(&self) -> Range<u64> {
        self.words.get(Mark::Tail)..self.words.get(Mark::Last)
    }

    /// As [`valid_pages`](Self::valid_pages), at some positions.
    pub fn valid_in(&self, positions: Range<u64>) -> impl Iterator<Item = (u64, u64, bool)> + '_ {
        positions.filter_map(|position| {
            let word = self.words.slot(self.log.slot(position));
            let valid = word & VALID != 0;
            valid.then(|| (page_of(word), self.log.block(position), word & DIRTY != 0))
        })
    }

    /// The pages whose only copy is lost: reads of them get EIO.
    pub fn lost_pages(&self) -> impl Iterator<Item = u64> + '_ {
        let positions = self.words.get(Mark::Tail)..self.words.get(Mark::Last);
        let words = positions.map(|position| self.words.slot(self.log.slot(position)));
        words.filter(|word| word & VALID != 0 && kind_of(*word) == Kind::Lost).map(page_of)
    }

    /// Fails the log permanently: every later put and every waiting task gets this error.
    pub fn fail(&self, errno: Errno) {
        let _guard = self.lock();
        self.words.set(Mark::Ended, 1);
        self.words.set(Mark::Failed, errno.0 as u64);
        self.host.notify();
    }

    /// Fails the log until its device works again, if tasks try that; else permanently. The caller holds the lock.
    pub(super) fn give_up(&self, errno: Errno) {
        if !self.host.has_tasks() || mutant::is_active("page-log-fails-for-good") {
            self.words.set(Mark::Ended, 1);
        }
        self.words.set(Mark::Failed, errno.0 as u64);
        self.host.notify();
    }

    /// Whether nothing keeps the log from working. The caller holds the lock.
    pub(super) fn is_sound(&self) -> bool {
        let get = |mark| self.words.get(mark);
        let idle =
            [Mark::Ended, Mark::Doubted, Mark::Evacuating].iter().all(|mark| get(*mark) == 0);
        idle && !self.words.has_failed_batch()
    }

    /// An operation succeeded: the log no longer fails, unless another operation does. The caller holds the lock.
    pub(super) fn works_again(&self) {
        let get = |mark| self.words.get(mark);
        if get(Mark::Failed) != 0 && self.is_sound() && self.host.may_continue() {
            self.words.set(Mark::Stumbles, 0);
            self.words.set(Mark::Failed, 0);
            self.host.notify();
        }
    }

    /// Counts an error of a step that is retried: too many in a row fail the log. Rests before the retry.
    pub(super) async fn stumble(&self, errno: Errno) {
        if self.host.is_abandoned(errno) {
            return;
        }
        let failures = {
            let _guard = self.lock();
            self.words.add(Mark::Stumbles, 1);
            let failures = self.words.get(Mark::Stumbles);
            if self.host.gives_up(failures) {
                self.give_up(errno);
            }
            failures
        };
        self.host.rest(failures).await;
    }

    /// The origin has all pages before this position (policy `Bounded`; see [`drain`](Self::drain)).
    pub fn drained(&self) -> u64 {
        self.words.get(Mark::Drained)
    }

    /// Whether it has failed permanently.
    pub(super) fn has_ended(&self) -> bool {
        self.words.get(Mark::Ended) != 0
    }

    /// The error that failed the log, permanently or until its device works again.
    pub fn failed(&self) -> Option<Errno> {
        match self.words.get(Mark::Failed) {
            0 => None,
            errno => Some(Errno(errno as i32)),
        }
    }
}
