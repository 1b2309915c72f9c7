// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the policy makes of a change, of a FLUSH and of a stop: the operations that a user of a log asks for, so that
//! it need not know the policy.
//!
//! | | `through` | `bounded` | `full` |
//! | --- | --- | --- | --- |
//! | a change goes to | the origin, past the log | the log | the log |
//! | a change that is durable when it is answered (FUA) | the origin | the log and the origin | the log, settled |
//! | a FLUSH | flushes the origin | drains the log | settles the log; flushes the origin for changes past the log |
//! | a stop | seals | drains, seals | seals |
//!
//! Why [`PageLog::plan_change`] does not drop the pages itself: a user that shares the log between processes holds a
//! page between the answer and the drop, and must not hold it where the answer is to put it (`held.rs`).

use std::future::Future;
use std::ops::Deref;
use std::sync::atomic::AtomicU64;

use super::error::ReleaseError;
use super::host::Host;
use super::paths::PageLog;
use super::policy::LogPolicy;
use crate::request::Errno;

/// What a change of pages asks of whoever makes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// To put the new versions as dirty.
    Absorb,
    /// To put them, and to settle the last position before the answer.
    AbsorbAndSettle,
    /// To put them, and to write them to the origin, durably, before the answer.
    AbsorbAndWrite,
    /// To drop the pages ([`PageLog::drop_pages`]), and to change the origin; then the new versions may enter as clean
    /// ([`PageLog::put_new`]).
    PastLog,
}

impl<H: Host, M: Deref<Target = [AtomicU64]>> PageLog<H, M> {
    /// Where a change goes; `durable`: it is to survive a crash once it is answered.
    pub fn plan_change(&self, durable: bool) -> Change {
        match (self.settings.policy, durable) {
            (LogPolicy::Through, _) => Change::PastLog,
            (LogPolicy::Bounded, true) => Change::AbsorbAndWrite,
            (LogPolicy::Full, true) => Change::AbsorbAndSettle,
            (LogPolicy::Bounded | LogPolicy::Full, false) => Change::Absorb,
        }
    }

    /// A FLUSH: makes durable what was answered before. At most one of the futures runs. `origin` flushes an origin that
    /// has every change; `past` flushes it for the changes that went past a log which has the others.
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

    /// A stop: leaves the log as a start should find it, warm under every policy. Whether nothing was changed meanwhile;
    /// otherwise it is not sealed, and may be released again.
    ///
    /// # Errors
    /// If it cannot be sealed.
    pub async fn release(&self) -> Result<bool, ReleaseError> {
        let policy = self.settings.policy;
        if policy.drains() {
            // What the origin does not take stays, and counts as dirty.
            let _ = self.drain().await;
        }
        self.seal().await.map_err(|errno| match policy.holds_dirty() {
            true => ReleaseError::Dirty(errno),
            false => ReleaseError::Cold(errno),
        })
    }
}
