// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a log says of itself: its state, its pages, and how it failed.

use std::ops::Deref;
use std::sync::atomic::AtomicU64;

use super::durable::FAILURES_MOST;
use super::host::Host;
use super::paths::PageLog;
use super::words::{DIRTY, Mark, VALID, page_of};
use crate::request::Errno;

/// The state of a log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogStatus {
    /// Blocks of the ring.
    pub blocks: u64,
    /// Blocks between front and rear.
    pub used: u64,
    /// Pages whose newest version it holds.
    pub valid: u64,
    /// Those of them that the origin does not have.
    pub dirty: u64,
    /// Pages put, since it was started.
    pub put: u64,
    /// Batches begun, since it was started: each becomes one write.
    pub batches: u64,
    /// Pages entered once more.
    pub again: u64,
    /// Pages that left.
    pub gone: u64,
    /// Where the rear is.
    pub rear: u64,
    /// How far it has come: its generation, and the rear after the last page that was put.
    pub reached: (u64, u64),
    /// Pages that the open batch has room for.
    pub open_room: u64,
}

impl<H: Host, M: Deref<Target = [AtomicU64]>> PageLog<H, M> {
    /// Its state.
    pub fn status(&self) -> LogStatus {
        let _guard = self.lock();
        let get = |mark| self.words.get(mark);
        LogStatus {
            blocks: u64::from(self.log.blocks),
            used: get(Mark::Rear) - get(Mark::Front),
            valid: get(Mark::Valid),
            dirty: get(Mark::Dirty),
            put: get(Mark::Put),
            batches: get(Mark::Opened),
            again: get(Mark::Again),
            gone: get(Mark::Gone),
            rear: get(Mark::Rear),
            reached: (get(Mark::Generation), get(Mark::Last)),
            open_room: self.words.open_room(&self.log),
        }
    }

    /// The valid pages, where on flash they lie, and whether the origin may lack them.
    pub fn valid_pages(&self) -> impl Iterator<Item = (u64, u64, bool)> + '_ {
        let positions = self.words.get(Mark::Front)..self.words.get(Mark::Last);
        positions.filter_map(|position| {
            let word = self.words.slot(self.log.slot(position));
            let valid = word & VALID != 0;
            valid.then(|| (page_of(word), self.log.block(position), word & DIRTY != 0))
        })
    }

    /// Nothing is put any more; whoever waits hears of it.
    pub fn fail(&self, errno: Errno) {
        let _guard = self.lock();
        self.words.set(Mark::Failed, errno.0 as u64);
        self.host.notify();
    }

    /// Something that is tried again went wrong; too often, and the log fails. Otherwise rests.
    pub(super) async fn stumble(&self, errno: Errno) {
        {
            let _guard = self.lock();
            self.words.add(Mark::Stumbles, 1);
            if self.words.get(Mark::Stumbles) >= FAILURES_MOST {
                self.words.set(Mark::Failed, errno.0 as u64);
                self.host.notify();
            }
        }
        self.host.rest().await;
    }

    /// The origin has everything that was put before this position (policy `Bounded`; see
    /// [`drain`](Self::drain)).
    pub fn drained(&self) -> u64 {
        self.words.get(Mark::Drained)
    }

    /// How the log failed, if it did: nothing is put any more.
    pub fn failed(&self) -> Option<Errno> {
        match self.words.get(Mark::Failed) {
            0 => None,
            errno => Some(Errno(errno as i32)),
        }
    }
}
