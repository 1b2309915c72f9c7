// SPDX-License-Identifier: MIT OR Apache-2.0
//! The operations that depend on the write policy: a start, a change, a burial, a FLUSH, a stop. A caller asks for these
//! and does not know the policy.
//!
//! | | `through` | `bounded` | `full` |
//! | --- | --- | --- | --- |
//! | a start after a crash | is cold | is cold | replays the log |
//! | a start after a stop | is warm | drains the log, is warm | is warm |
//! | a change goes to | the origin, past the log | the log | the log |
//! | a change that is durable when it is answered (FUA) | the origin | the log and the origin | the log, settled |
//! | a burial | drops the pages | drops the pages | puts a tombstone, settled |
//! | a clean page that cannot be read | is dropped | is dropped | stays: a crash would bring it back |
//! | a FLUSH | flushes the origin | drains the log | settles the log; flushes the origin for changes past the log |
//! | a stop | seals | drains, seals | seals |
//!
//! Why [`PageLog::plan_change`] does not drop the pages itself: processes that share a log hold a page before they drop
//! it, and must not hold it before they put it (`held.rs`).

use std::future::Future;
use std::ops::{Deref, Range};
use std::sync::atomic::AtomicU64;

use super::error::{OpenError, ReleaseError};
use super::held::Burial;
use super::host::Host;
use super::paths::PageLog;
use super::policy::LogPolicy;
use super::recover::{Found, Reader};
use crate::mutant;
use crate::request::Errno;

/// What the caller has to do to change pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Put the new versions as dirty.
    Absorb,
    /// Put them, and settle the last position before the answer.
    AbsorbAndSettle,
    /// Put them, and write them to the origin durably before the answer.
    AbsorbAndWrite,
    /// Drop the pages ([`PageLog::drop_pages`]), and change the origin. Then the new versions may be admitted as clean
    /// ([`PageLog::put_new`]).
    PastLog,
}

impl LogPolicy {
    /// A start: what of a log on flash counts.
    pub(super) async fn find<H: Host, M: Deref<Target = [AtomicU64]>>(
        self,
        reader: &mut Reader<'_, H, M>,
    ) -> Result<Found, OpenError> {
        let header = reader.header().await?;
        if let Some(found) = reader.sealed(header).await? {
            return Ok(found);
        }
        match self {
            Self::Through | Self::Bounded => Ok(reader.cold(header)),
            Self::Full => reader.replay(header).await,
        }
    }
}

impl<H: Host, M: Deref<Target = [AtomicU64]>> PageLog<H, M> {
    /// A start, before the log is open: the origin gets what a stop left dirty and a crash would lose.
    pub(super) async fn take_over(&self, found: &Found) -> Result<(), Errno> {
        match self.settings.policy {
            LogPolicy::Bounded if found.rear > found.front => self.drain().await,
            LogPolicy::Through | LogPolicy::Bounded | LogPolicy::Full => Ok(()),
        }
    }

    /// Decides where a change goes. A `durable` one survives a crash once it is answered.
    pub fn plan_change(&self, durable: bool) -> Change {
        match (self.settings.policy, durable) {
            (LogPolicy::Through, _) => Change::PastLog,
            (LogPolicy::Bounded, true) => Change::AbsorbAndWrite,
            (LogPolicy::Full, true) => Change::AbsorbAndSettle,
            (LogPolicy::Bounded | LogPolicy::Full, false) => Change::Absorb,
        }
    }

    /// The pages are gone, durably (rule L5), and the origin is about to become zero there: a restart makes it so.
    /// Until it is the host lets nobody read the origin's older bytes. Whether it was recorded; if not, the log has no
    /// version of these pages, and would have none after a crash, and the next FLUSH is the origin's business.
    ///
    /// # Errors
    /// If the log has failed.
    pub async fn bury(&self, pages: Range<u64>) -> Result<bool, Errno> {
        self.bury_all([pages]).await
    }

    /// As above, of several ranges that become durable together.
    ///
    /// # Errors
    /// If the log has failed.
    pub async fn bury_all(
        &self,
        ranges: impl IntoIterator<Item = Range<u64>>,
    ) -> Result<bool, Errno> {
        let mut last = None;
        for pages in ranges {
            match self.settings.policy {
                LogPolicy::Full if !mutant::is_active("page-log-no-tombstone") => {
                    last = self.entomb(&pages).await?.or(last);
                }
                LogPolicy::Through | LogPolicy::Bounded | LogPolicy::Full => {
                    self.drop_pages(pages).await?;
                }
            }
        }
        let Some(last) = last else { return Ok(false) };
        if !mutant::is_active("page-log-tombstone-late") {
            self.settle(last).await?;
        }
        Ok(true)
    }

    /// As [`bury`](Self::bury), with the pages held.
    ///
    /// # Errors
    /// If the log has failed.
    pub async fn bury_at_once(&self, pages: Range<u64>) -> Result<Burial, Errno> {
        match self.settings.policy {
            LogPolicy::Through | LogPolicy::Bounded => {
                self.drop_pages(pages).await.map(|()| Burial::Unrecorded)
            }
            LogPolicy::Full => self.entomb_at_once(pages).await,
        }
    }

    /// Ends a burial of a page that somebody began who died, with the page held. Whether the log has no version of the
    /// page, so that the origin is to be made zero. If it has one, that is older than a burial which never counted, or
    /// newer.
    ///
    /// # Errors
    /// If the log has failed.
    pub async fn bury_absent(&self, page: u64) -> Result<bool, Errno> {
        self.unseal().await?;
        match self.settings.policy {
            LogPolicy::Through | LogPolicy::Bounded => Ok(!self.has(page)),
            LogPolicy::Full => self.entomb_absent(page).await,
        }
    }

    /// Under the lock: a clean version cannot be read, and the origin has the page.
    pub(super) fn drop_unreadable(&self, slot: u32) {
        match self.settings.policy {
            LogPolicy::Through | LogPolicy::Bounded => self.words.drop_valid(slot),
            LogPolicy::Full => {}
        }
    }

    /// A FLUSH: makes durable every change that was answered before. At most one of the futures runs: `origin` flushes an
    /// origin that has every change, `past` flushes one that has the changes which went past the log.
    ///
    /// # Errors
    /// If a device fails, or a page is lost.
    pub async fn barrier(
        &self,
        origin: impl Future<Output = Result<(), Errno>>,
        past: impl Future<Output = Result<(), Errno>>,
    ) -> Result<(), Errno> {
        match self.settings.policy {
            LogPolicy::Through => origin.await,
            LogPolicy::Bounded => self.drain().await,
            LogPolicy::Full => {
                past.await?;
                self.flush().await
            }
        }
    }

    /// A stop: seals the log, so that the next start is warm under every policy. Returns false if a change came meanwhile;
    /// then the log is not sealed, and the caller may try again.
    ///
    /// # Errors
    /// If it cannot be sealed.
    pub async fn release(&self) -> Result<bool, ReleaseError> {
        let failed = match self.settings.policy {
            LogPolicy::Through => ReleaseError::Cold,
            LogPolicy::Bounded => {
                // Pages that the origin refuses stay dirty in the log.
                let _ = self.drain().await;
                ReleaseError::Dirty
            }
            LogPolicy::Full => ReleaseError::Dirty,
        };
        self.seal().await.map_err(failed)
    }
}
