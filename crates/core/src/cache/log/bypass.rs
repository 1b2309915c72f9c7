// SPDX-License-Identifier: MIT OR Apache-2.0
//! Changes of the origin past a log whose flash fails, and the record of them off the flash (`pagelog/bypass.rs` has the
//! order of the steps).
//!
//! The driver keeps the record: the shard emits the pages of its log that recovery ignores
//! ([`Event::LogIgnores`](crate::event::Event::LogIgnores)), and waits until they are durable.
//!
//! Invariants: one record is being made at a time; no record is made after the log began its return, until the return has
//! ended.

use std::ops::Range;

use super::OpenLog;
use super::holds::For;
use super::host::ShardHost;
use super::paths::RequestSpan;
use crate::event::Event;
use crate::pagelog::{Host as _, until};
use crate::ranges;
use crate::request::Errno;

/// Pages that are recorded together with one that is bypassed: 1 MiB.
const AROUND: u64 = 256;
/// The most ranges that a log may have ignored; a change that needs more fails.
const MOST_RANGES: usize = 4096;

/// A change that goes past the log; it may not return meanwhile.
pub(super) struct Passing<'a>(&'a ShardHost);

impl Drop for Passing<'_> {
    fn drop(&mut self) {
        let passing = &self.0.bypass.passing;
        passing.set(passing.get() - 1);
        self.0.notify();
    }
}

impl ShardHost {
    /// Begins a change past the log; waits while the log returns.
    pub(super) async fn pass(&self) -> Passing<'_> {
        until(self, || (!self.bypass.returning.get()).then_some(())).await;
        self.bypass.passing.set(self.bypass.passing.get() + 1);
        Passing(self)
    }

    /// Lets no change begin to go past the log, and waits for those in progress.
    pub(super) async fn stop_passing(&self) {
        self.bypass.returning.set(true);
        until(self, || (self.bypass.passing.get() == 0).then_some(())).await;
        // Their tombstones are dropped with the log. They wait for the origin only.
        self.holds.recorded_trims_end().await;
    }

    /// The log has returned, or failed to. If it has returned, nothing is ignored any more, durably.
    pub(super) async fn end_passing(&self, returned: bool) {
        while returned && !self.flash.closed() {
            if self.record(|_| Vec::new()).await.is_ok() {
                break;
            }
            self.rest(1).await;
        }
        self.bypass.returning.set(false);
        self.notify();
    }

    /// Flushes the origin, and records that recovery ignores these pages too.
    pub(super) async fn ignore(&self, pages: Vec<u64>) -> Result<(), Errno> {
        if pages.iter().all(|page| self.bypass.has_ignored(*page)) {
            return Ok(());
        }
        self.flush_origin().await?;
        let pages = pages.into_iter().map(|page| page..page + 1);
        self.record(|ignored| ranges::merged(ignored.iter().cloned().chain(pages).collect())).await
    }

    /// Waits until the driver has recorded what recovery ignores: `change` of what it ignores now.
    async fn record(
        &self,
        change: impl FnOnce(&[Range<u64>]) -> Vec<Range<u64>>,
    ) -> Result<(), Errno> {
        until(self, || (!self.bypass.recording.replace(true)).then_some(())).await;
        let before = self.bypass.ignored();
        let result = match change(&before) {
            same if same == before => Ok(()),
            all if all.len() > MOST_RANGES => Err(Errno::EIO),
            all => self.ask_to_record(all).await,
        };
        self.bypass.recording.set(false);
        self.notify();
        result
    }

    async fn ask_to_record(&self, ignored: Vec<Range<u64>>) -> Result<(), Errno> {
        let device = self.flash.device();
        self.bypass.recorded.set(None);
        device.emit(Event::LogIgnores { dev: device.dev, pages: ignored.clone() });
        let closed = || device.closed().then_some(Err(Errno::ESHUTDOWN));
        until(self, || self.bypass.recorded.take().or_else(closed)).await?;
        *self.bypass.ignored.borrow_mut() = ignored;
        Ok(())
    }

    /// The driver has made the record durable, or failed to.
    pub(super) fn recorded(&self, result: Result<(), Errno>) {
        self.bypass.recorded.set(Some(result));
        self.notify();
    }

    /// The pages around some, unless a trim is in progress there: it changes the origin later.
    pub(super) fn neighbours(&self, pages: &Range<u64>) -> Range<u64> {
        let first = pages.start / AROUND * AROUND;
        let end = pages.end.next_multiple_of(AROUND).min(self.pages()).max(pages.end);
        // And a page that a refused trim lost must stay an error.
        match self.holds.has_trims(&(first..end)) || self.holds.has_lost(&(first..end)) {
            true => pages.clone(),
            false => first..end,
        }
    }
}

impl OpenLog {
    /// The driver has made the record of ignored pages durable, or failed to.
    pub(crate) fn ignores_recorded(&self, result: Result<(), Errno>) {
        self.log.host().recorded(result);
    }

    /// Changes held pages on the origin, past a log whose flash fails. `None` if the log has returned meanwhile: nothing
    /// was done.
    pub(super) async fn change_past_failed(
        &self,
        span: &RequestSpan,
        change: impl AsyncFnOnce() -> Result<(), Errno>,
    ) -> Option<Result<(), Errno>> {
        let host = self.log.host();
        let _passing = host.pass().await;
        if !self.log.is_bypassed() {
            return None;
        }
        let pages = span.pages.clone();
        let in_part = pages.clone().filter(|page| !span.covers(&self.cx, *page));
        if in_part.clone().any(|page| host.holds.is_lost(page)) {
            return Some(Err(Errno::EIO));
        }
        let dirty = in_part.filter(|page| self.log.has_dirty(*page)).collect();
        if let Err(errno) = self.log.bring(dirty).await {
            return Some(Err(errno));
        }
        let _hold = host.holds.take(pages.clone(), For::Origin).await;
        let mut result = change().await;
        self.unrecorded.set(self.unrecorded.get() + 1);
        if result.is_ok() {
            result = self.log.bypassed(pages.clone()).await;
        }
        match result {
            Ok(()) => host.holds.find(&pages),
            // The origin may have the change, and no reader may get it before another change.
            Err(_) => self.log.keep_version(pages),
        }
        Some(result)
    }
}
