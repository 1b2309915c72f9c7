// SPDX-License-Identifier: MIT OR Apache-2.0
//! The operations that depend on the write policy: a start, a change, a burial, a FLUSH, a stop. Callers use these instead
//! of the policy.
//!
//! | | `through` | `bounded` | `full`, `ordered` |
//! | --- | --- | --- | --- |
//! | a start after a crash | is cold | is cold | replays the log |
//! | a start after a stop | is warm | drains the log, is warm | is warm |
//! | a change goes to | the origin, past the log | the log | the log |
//! | a change that is durable when it is answered (FUA) | the origin | the log and the origin | the log, settled |
//! | a burial (before a trim or zeroing) | drops the pages | drops the pages | puts a tombstone, settled |
//! | a clean page that cannot be read | is dropped | is dropped | stays: a crash would bring it back |
//! | a FLUSH | flushes the origin | drains the log | settles the log; flushes the origin for changes past the log |
//! | a stop | seals | drains, seals | seals |
//!
//! `ordered` is `full` in these and differs in what the origin receives (`replay.rs`): only epochs, in their order. So a FLUSH
//! and a durable change end an epoch; a tombstone changes the origin when it is replayed, not with the burial; pages are evicted
//! once they are replayed; nothing goes past a log whose flash fails.
//!
//! Why [`PageLog::plan_change`] does not drop the pages itself: processes that share a log hold a page before they drop
//! it, and must not hold it before they put it (`held.rs`).

use std::future::Future;
use std::ops::{Deref, Range};
use std::sync::atomic::AtomicU64;

use super::error::{OpenError, ReleaseError};
use super::evict::ReadSpan;
use super::held::Burial;
use super::host::Host;
use super::paths::PageLog;
use super::policy::LogPolicy;
use super::recover::{Found, Reader};
use super::words::{Kind, Mark, kind_of, page_of};
use crate::mutant;
use crate::request::Errno;

/// The steps of a caller that changes pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Put the new versions as dirty.
    Absorb,
    /// Put them, and settle the last position before the answer.
    AbsorbAndSettle,
    /// Put them, and write them to the origin durably before the answer.
    AbsorbAndWrite,
    /// The flash fails: change the origin, past the log ([`PageLog::bypassed`]).
    Bypass,
    /// Drop the pages ([`PageLog::drop_pages`]), and change the origin. Then the new versions may be admitted as clean
    /// ([`PageLog::put_new`]).
    PastLog,
}

impl LogPolicy {
    /// A start: recovers the log, or drops its pages.
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
            Self::Full | Self::Ordered => reader.replay(header).await,
        }
    }
}

impl<H: Host, M: Deref<Target = [AtomicU64]>> PageLog<H, M> {
    /// A start, before the log is open: writes dirty pages of a stop to the origin if a crash would lose them.
    pub(super) async fn take_over(&self, found: &Found) -> Result<(), Errno> {
        match self.settings.policy {
            LogPolicy::Bounded if found.head > found.tail => self.drain().await,
            LogPolicy::Through | LogPolicy::Bounded | LogPolicy::Full | LogPolicy::Ordered => {
                Ok(())
            }
        }
    }

    /// A start, before the log is open: the pages of tombstones become zero.
    pub(super) async fn redo(&self, found: &Found) -> Result<(), Errno> {
        if self.settings.policy.is_ordered() {
            let last = found.head.saturating_sub(1);
            found.redo.iter().for_each(|pages| self.bury_until_replay(pages.clone(), last));
            // What was written past the log before: a page that is read from the origin, and then clean in the log, is durable.
            return self.host.flush_origin().await;
        }
        for pages in &found.redo {
            self.host.zero_origin(pages.clone()).await?;
        }
        if found.redo.is_empty() { Ok(()) } else { self.host.flush_origin().await }
    }

    /// Decides where a change goes. A `durable` one survives a crash once it is answered.
    pub fn plan_change(&self, durable: bool) -> Change {
        match (self.settings.policy, durable) {
            (LogPolicy::Through, _) => Change::PastLog,
            _ if self.is_bypassed() => Change::Bypass,
            (LogPolicy::Bounded, true) => Change::AbsorbAndWrite,
            (LogPolicy::Full | LogPolicy::Ordered, true) => Change::AbsorbAndSettle,
            (LogPolicy::Bounded | LogPolicy::Full | LogPolicy::Ordered, false) => Change::Absorb,
        }
    }

    /// Drops pages durably (rule L5), before the caller makes them zero on the origin; a restart makes them zero too. Until
    /// then the host keeps readers from the origin's older bytes. Returns whether a tombstone was recorded. If not, the log
    /// has no version of the pages, also after a crash, and a FLUSH of the origin covers the change.
    ///
    /// # Errors
    /// If the log has failed.
    pub async fn bury(&self, pages: Range<u64>) -> Result<bool, Errno> {
        self.bury_all([pages]).await
    }

    /// Makes pages zero in a log that the origin is behind ([`may_write_early`](Self::may_write_early)): puts a tombstone, which
    /// reads as zero until it is replayed. It survives a crash as a write does, and at once if it is `durable`.
    ///
    /// # Errors
    /// If the log has failed.
    pub async fn bury_in_order(&self, pages: Range<u64>, durable: bool) -> Result<(), Errno> {
        let losses = self.losses();
        let position = self.append(&self.tombstone(&pages)).await?.ok_or(Errno::EIO)?;
        if durable { self.settle_change(position, losses).await } else { Ok(()) }
    }

    /// As [`bury`](Self::bury), for several ranges that become durable together.
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
                LogPolicy::Full | LogPolicy::Ordered
                    if !mutant::is_active("page-log-no-tombstone") =>
                {
                    last = self.entomb(&pages).await?.or(last);
                }
                LogPolicy::Through | LogPolicy::Bounded | LogPolicy::Full | LogPolicy::Ordered => {
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
            LogPolicy::Full | LogPolicy::Ordered => self.entomb_at_once(pages).await,
        }
    }

    /// Completes the burial of a page that a dead process began, with the page held. Returns whether the log has no version
    /// of the page: then the caller makes it zero on the origin. Else the burial was never recorded, or a newer version
    /// followed.
    ///
    /// # Errors
    /// If the log has failed.
    pub async fn bury_absent(&self, page: u64) -> Result<bool, Errno> {
        self.unseal().await?;
        match self.settings.policy {
            LogPolicy::Through | LogPolicy::Bounded => Ok(!self.has(page)),
            LogPolicy::Full | LogPolicy::Ordered => self.entomb_absent(page).await,
        }
    }

    /// A clean version cannot be read: drops it if a crash cannot restore it. The caller holds the lock.
    pub(super) fn drop_unreadable(&self, slot: u32) {
        match self.settings.policy {
            LogPolicy::Through | LogPolicy::Bounded => self.words.drop_valid(slot),
            LogPolicy::Full | LogPolicy::Ordered => {}
        }
    }

    /// The first position that must not be evicted. The caller holds the lock.
    pub(super) fn evictable(&self) -> u64 {
        let written = self.words.get(Mark::Written);
        match self.settings.policy {
            LogPolicy::Through | LogPolicy::Bounded | LogPolicy::Full => written,
            LogPolicy::Ordered if mutant::is_active("ordered-evicts") => written,
            LogPolicy::Ordered => written.min(self.words.get(Mark::Replayed)),
        }
    }

    /// Writes pages that are evicted to the origin, if it lacks them. Returns those that stay.
    pub(super) async fn write_evicted(&self, slots: &[u32], span: &ReadSpan) -> Vec<u64> {
        let pages = |of: &[u32]| of.iter().map(|slot| page_of(self.words.slot(*slot))).collect();
        match self.settings.policy {
            LogPolicy::Through | LogPolicy::Bounded | LogPolicy::Full => {
                self.to_origin(pages(slots), span).await
            }
            LogPolicy::Ordered if mutant::is_active("ordered-evicts-newest") => {
                self.to_origin(pages(slots), span).await
            }
            // All are replayed, except for lost ones. A newer version has its own epoch.
            LogPolicy::Ordered => {
                let _guard = self.lock();
                let lost = |slot: &u32| kind_of(self.words.slot(*slot)) == Kind::Lost;
                pages(&slots.iter().copied().filter(lost).collect::<Vec<_>>())
            }
        }
    }

    /// What a log header records of the replay. The caller holds the lock.
    pub(super) fn replayed_mark(&self) -> Option<u64> {
        let replayed = || self.words.get(Mark::Replayed).min(self.words.get(Mark::Durable));
        self.settings.policy.is_ordered().then(replayed)
    }

    /// Writes all dirty pages to the origin, and flushes it, whatever an earlier call achieved.
    ///
    /// # Errors
    /// If a page is lost, or a device fails.
    pub async fn empty(&self) -> Result<(), Errno> {
        match self.settings.policy {
            LogPolicy::Through | LogPolicy::Bounded | LogPolicy::Full => {
                self.drain_from_tail().await
            }
            LogPolicy::Ordered => self.replay_all().await,
        }
    }

    /// Whether a change may be written to the origin although the log has older ones.
    pub fn may_write_early(&self) -> bool {
        !self.settings.policy.is_ordered()
    }

    /// The first position that a crash loses. The caller holds the lock.
    pub(super) fn first_volatile(&self) -> u64 {
        let tail = self.words.get(Mark::Tail);
        match self.settings.policy {
            LogPolicy::Full | LogPolicy::Ordered => self.words.get(Mark::Durable).max(tail),
            LogPolicy::Through | LogPolicy::Bounded => tail,
        }
    }

    /// A FLUSH: makes every acknowledged change durable. At most one of the futures runs: `origin` flushes the origin if it
    /// has every change, `past` if it has only the changes that bypassed the log.
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
                self.flush_all().await
            }
            LogPolicy::Ordered => {
                past.await?;
                self.flush_ends_epoch();
                self.flush_all().await
            }
        }
    }

    /// A stop: seals the log, so that the next start is warm under every policy. Returns false, without a seal, if a page
    /// changed meanwhile; the caller may retry.
    ///
    /// # Errors
    /// If it cannot be sealed.
    pub async fn release(&self) -> Result<bool, ReleaseError> {
        let failed = match self.settings.policy {
            LogPolicy::Through => ReleaseError::Cold,
            LogPolicy::Bounded => {
                // Pages whose write to the origin fails stay dirty in the log.
                let _ = self.drain().await;
                ReleaseError::Dirty
            }
            LogPolicy::Full | LogPolicy::Ordered => ReleaseError::Dirty,
        };
        self.seal().await.map_err(failed)
    }
}
