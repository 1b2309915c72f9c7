// SPDX-License-Identifier: MIT OR Apache-2.0
//! What may be asked of a log by whoever holds pages (see `Host::hold`).
//!
//! Invariant: nothing here waits for room or makes it. Who makes room waits for holds, so whoever held a page and
//! waited for room would wait for itself, or for somebody who waits for it. `get`, `put_new`, `settle` and
//! `flush` keep to it too; `put`, `bury`, `drain`, `room` and `work` do not.

use std::ops::{Deref, Range};
use std::sync::atomic::AtomicU64;

use super::error::NotEntered;
use super::host::Host;
use super::paths::{PageLog, Put, ZEROES};
use super::words::{Kind, Mark};
use crate::request::Errno;

/// What became of a burial with the pages held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Burial {
    /// A tombstone is durable.
    Recorded,
    /// No tombstone is needed: the log has no version of the pages, and would have none after a crash.
    Unrecorded,
    /// There is no room for a tombstone: let go of the pages, wait for [`PageLog::room`], and try again.
    NoRoom,
}

impl<H: Host, M: Deref<Target = [AtomicU64]>> PageLog<H, M> {
    /// Puts a tombstone of pages that a crash could bring back, if there is room at once.
    pub(super) async fn entomb_at_once(&self, pages: Range<u64>) -> Result<Burial, Errno> {
        self.unseal().await?;
        let entered = {
            let _guard = self.lock();
            if !self.may_come_back(&pages) {
                return Ok(Burial::Unrecorded);
            }
            self.try_enter(&self.tombstone(&pages))
        };
        match entered {
            Ok(position) => self.settle(position).await.map(|()| Burial::Recorded),
            Err(NotEntered::Lack(_)) => Ok(Burial::NoRoom),
            Err(NotEntered::Failed(errno)) => Err(errno),
        }
    }

    /// As above, of a page that the log has no version of, for a burial that somebody began who died: nobody knows whether
    /// the tombstone counts. Whether it has none.
    pub(super) async fn entomb_absent(&self, page: u64) -> Result<bool, Errno> {
        let entered = {
            let _guard = self.lock();
            let pages = page..page + 1;
            if self.words.find(page).is_some() {
                return Ok(false);
            }
            if !self.may_come_back(&pages) {
                return Ok(true);
            }
            // What is kept for the front's sake will do: deaths are rare.
            self.try_enter(&Put { urgent: true, ..self.tombstone(&pages) })
        };
        match entered {
            Ok(position) => self.settle(position).await.map(|()| true),
            // Without room a crash of the machine may take back what nobody was told of.
            Err(NotEntered::Lack(_)) => Ok(true),
            Err(NotEntered::Failed(errno)) => Err(errno),
        }
    }

    /// Under the lock: whether the log has one of the pages, or would after a crash.
    pub(super) fn may_come_back(&self, pages: &Range<u64>) -> bool {
        let get = |mark| self.words.get(mark);
        // What has left comes back with a crash as long as the front has not durably passed it, and what a tombstone
        // ended as long as that is not durable: it may never be, once flash fails.
        get(Mark::DurableFront) < get(Mark::Left)
            || get(Mark::Durable) < get(Mark::Tombstone)
            || pages.clone().any(|page| self.words.find(page).is_some())
    }

    pub(super) fn tombstone(&self, pages: &Range<u64>) -> Put<'static> {
        let crc = (pages.end - pages.start) as u32;
        Put {
            kind: Kind::Tombstone,
            crc,
            ..Self::page(pages.start, &ZEROES[..self.log.page() as usize], false)
        }
    }

    /// Waits, with no page held, until one can be put at once; others may come first.
    ///
    /// # Errors
    /// If the log has failed.
    pub async fn room(&self) -> Result<(), Errno> {
        loop {
            let mut seen = self.host.changes();
            {
                let _guard = self.lock();
                if let Some(errno) = self.failed() {
                    return Err(errno);
                }
                let open = self.words.open();
                if open.is_some() || self.words.open_batch(&self.log, false).is_ok() {
                    return Ok(());
                }
            }
            if self.want_room() {
                seen = self.host.changes();
            }
            self.wait(seen).await;
        }
    }
}
