// SPDX-License-Identifier: MIT OR Apache-2.0
//! The operations that depend on the write policy: a change, a FLUSH, a stop. A caller asks for these and does not know
//! the policy.
//!
//! | | `through` | `bounded` | `full` |
//! | --- | --- | --- | --- |
//! | a change goes to | the origin, past the log | the log | the log |
//! | a change that is durable when it is answered (FUA) | the origin | the log and the origin | the log, settled |
//! | a FLUSH | flushes the origin | drains the log | settles the log; flushes the origin for changes past the log |
//! | a stop | seals | drains, seals | seals |
//!
//! Why [`PageLog::plan_change`] does not drop the pages itself: processes that share a log hold a page before they drop
//! it, and must not hold it before they put it (`held.rs`).

use std::future::Future;
use std::ops::Deref;
use std::sync::atomic::AtomicU64;

use super::error::ReleaseError;
use super::host::Host;
use super::paths::PageLog;
use super::policy::LogPolicy;
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

impl<H: Host, M: Deref<Target = [AtomicU64]>> PageLog<H, M> {
    /// Decides where a change goes. A `durable` one survives a crash once it is answered.
    pub fn plan_change(&self, durable: bool) -> Change {
        match (self.settings.policy, durable) {
            (LogPolicy::Through, _) => Change::PastLog,
            (LogPolicy::Bounded, true) => Change::AbsorbAndWrite,
            (LogPolicy::Full, true) => Change::AbsorbAndSettle,
            (LogPolicy::Bounded | LogPolicy::Full, false) => Change::Absorb,
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
        let policy = self.settings.policy;
        if policy.drains() {
            // Pages that the origin refuses stay dirty in the log.
            let _ = self.drain().await;
        }
        self.seal().await.map_err(|errno| match policy.holds_dirty() {
            true => ReleaseError::Dirty(errno),
            false => ReleaseError::Cold(errno),
        })
    }
}
