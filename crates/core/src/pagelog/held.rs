// SPDX-License-Identifier: MIT OR Apache-2.0
//! Operations for callers that hold pages (see `Host::hold`).
//!
//! Invariant: no function here waits for room or makes it. The keeper, which makes room, waits for holds: a caller that held
//! a page and waited for room would deadlock. `get`, `put_new`, `settle` and `flush` obey this too; `put`, `bury`, `drain`,
//! `room` and `work` do not.

use std::ops::{Deref, Range};
use std::sync::atomic::AtomicU64;

use super::error::NotAppended;
use super::host::Host;
use super::paths::{PageLog, Put, ZEROES};
use super::words::{Kind, Mark};
use crate::request::Errno;

/// The result of a burial with the pages held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Burial {
    /// A tombstone is durable.
    Recorded,
    /// No tombstone is needed: the log has no version of the pages, also after a crash.
    Unrecorded,
    /// There is no room for a tombstone: release the pages, wait for [`PageLog::room`], and retry.
    NoRoom,
}

impl<H: Host, M: Deref<Target = [AtomicU64]>> PageLog<H, M> {
    /// Puts a tombstone of pages that a crash could restore, if there is room at once.
    pub(super) async fn entomb_at_once(&self, pages: Range<u64>) -> Result<Burial, Errno> {
        self.unseal().await?;
        let appended = {
            let _guard = self.lock();
            if !self.may_come_back(&pages) {
                return Ok(Burial::Unrecorded);
            }
            self.try_append(&self.tombstone(&pages))
        };
        match appended {
            Ok(position) => self.settle(position).await.map(|()| Burial::Recorded),
            Err(NotAppended::Lack(_)) => Ok(Burial::NoRoom),
            Err(NotAppended::Failed(errno)) => Err(errno),
        }
    }

    /// Completes the burial of a page by a dead process, whose tombstone may be missing. Returns whether the log has no
    /// version of the page.
    pub(super) async fn entomb_absent(&self, page: u64) -> Result<bool, Errno> {
        let appended = {
            let _guard = self.lock();
            let pages = page..page + 1;
            if self.words.find(page).is_some() {
                return Ok(false);
            }
            if !self.may_come_back(&pages) {
                return Ok(true);
            }
            // Uses the reserve: deaths are rare.
            self.try_append(&Put { urgent: true, ..self.tombstone(&pages) })
        };
        match appended {
            Ok(position) => self.settle(position).await.map(|()| true),
            // Without room a crash of the machine may revert the burial, which was not acknowledged.
            Err(NotAppended::Lack(_)) => Ok(true),
            Err(NotAppended::Failed(errno)) => Err(errno),
        }
    }

    /// Whether the log has one of the pages, or would have it after a crash. The caller holds the lock.
    pub(super) fn may_come_back(&self, pages: &Range<u64>) -> bool {
        let get = |mark| self.words.get(mark);
        // A crash restores evicted pages until the tail has durably passed them, and buried pages until their tombstone is
        // durable, which may never happen once flash fails.
        get(Mark::DurableTail) < get(Mark::Evicted)
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

    /// Waits until a page can be put at once; another caller may take the room. The caller holds no page.
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
                if open.is_some() || self.words.open_batch(&self.log, false, self.epoch()).is_ok() {
                    return Ok(());
                }
            }
            if self.want_room() {
                seen = self.host.changes();
            }
            self.wait(seen, &mut 0).await?;
        }
    }
}
