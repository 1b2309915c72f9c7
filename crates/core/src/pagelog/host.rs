// SPDX-License-Identifier: MIT OR Apache-2.0
//! The interface of a log to its driver.
//!
//! The paths are the same `async` code for every driver. In a served volume and in virtual time operations are awaited, and
//! background tasks write batches and make room. In memory that processes share every operation blocks, no future is ever
//! pending, and a process that needs room makes it.

use std::future::Future;
use std::ops::Range;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use super::order::Order;
use super::words::PAGES_MOST;
use crate::buf::Buf;
use crate::exec::Nanos;
use crate::request::Errno;

/// Consecutive failures of one operation that fail a log by default.
pub(super) const FAILURES_MOST: u64 = 8;

/// Numbers of burials.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Burials {
    /// Burials that ended.
    pub ended: u64,
    /// Burials that the origin failed.
    pub refused: u64,
}

/// The driver of a log.
#[allow(async_fn_in_trait)] // Drivers are single-threaded: no future must be `Send`.
pub trait Host {
    /// Keeps others out of the log's memory while it lives.
    type Guard<'a>
    where
        Self: 'a;
    /// Keeps others from changing a page on the origin while it lives.
    type Hold;

    /// Pages of the origin. Recovery refuses entries of pages beyond.
    fn pages(&self) -> u64 {
        PAGES_MOST
    }

    /// Locks the log's memory. Returns whether the previous holder died.
    fn lock(&self) -> (Self::Guard<'_>, bool);
    /// Copies a page to its place (from 0) in a batch's buffer.
    fn stage(&self, buffer: usize, place: usize, bytes: &[u8]);
    /// Copies a page from its place in a batch's buffer.
    fn staged(&self, buffer: usize, place: usize, into: &mut [u8]);

    /// Reads from flash.
    async fn read_flash(&self, offset: u64, buf: Buf) -> Result<Buf, Errno>;
    /// Reads from several places on flash, at the same time if the host can.
    async fn read_flash_each(&self, wanted: Vec<(u64, Buf)>) -> Vec<Result<Buf, Errno>> {
        let mut read = Vec::with_capacity(wanted.len());
        for (offset, buf) in wanted {
            read.push(self.read_flash(offset, buf).await);
        }
        read
    }
    /// Writes a batch to flash in one operation: `header` twice, then `pages` pages of the buffer.
    async fn write_batch(
        &self,
        offset: u64,
        header: Buf,
        buffer: usize,
        pages: usize,
    ) -> Result<(), Errno>;
    /// Writes a header or a segment.
    async fn write_flash(&self, offset: u64, buf: Buf) -> Result<(), Errno>;
    /// Flushes flash.
    async fn flush_flash(&self) -> Result<(), Errno>;

    /// Waits until no other task or process changes the page on the origin, and holds it. A task that waits for room in the
    /// log has no hold.
    async fn hold(&self, page: u64) -> Self::Hold;
    /// A tombstone of these pages was put. The caller holds the lock.
    fn buried(&self, _: Range<u64>) {}
    /// What the log keeps for the order of its changes (policy `Ordered`).
    fn order(&self) -> Option<&Order> {
        None
    }
    /// The time, for that.
    fn clock(&self) -> Nanos {
        0
    }
    /// Makes pages of the origin zero, which may become a hole.
    async fn unmap_origin(&self, pages: Range<u64>) -> Result<(), Errno> {
        self.zero_origin(pages).await
    }
    /// Waits until the origin is zero in the pages of the tombstone that begins with this page. By default the burial holds
    /// that page until then.
    async fn tombstone_done(&self, page: u64) {
        drop(self.hold(page).await);
    }
    /// Numbers of burials, if one may run concurrently with a drain.
    fn burials(&self) -> Burials {
        Burials::default()
    }
    /// Waits for the burials in progress.
    async fn burials_end(&self) {}
    /// Writes a page to the origin.
    async fn write_origin(&self, page: u64, buf: Buf) -> Result<(), Errno>;
    /// Reads a page from the origin; beyond its end it is zero. Only a host with tasks needs it.
    async fn read_origin(&self, _: u64) -> Result<Buf, Errno> {
        Err(Errno::EOPNOTSUPP)
    }
    /// The pages that recovery ignores: they were changed past the log, see [`bypass`](Self::bypass).
    fn ignores(&self) -> Vec<Range<u64>> {
        Vec::new()
    }
    /// Whether recovery ignores the page.
    fn has_ignored(&self, _: u64) -> bool {
        false
    }
    /// The pages around some that are about to be bypassed, which will probably be bypassed too.
    fn around(&self, pages: &Range<u64>) -> Range<u64> {
        pages.clone()
    }
    /// Flushes the origin, and then makes it durable off the flash that recovery ignores these pages, unless it does
    /// already.
    async fn bypass(&self, _: Vec<u64>) -> Result<(), Errno> {
        Err(Errno::EOPNOTSUPP)
    }
    /// Whether a log whose flash works again may continue: no page is ignored or about to be.
    fn may_continue(&self) -> bool {
        true
    }
    /// Waits until no change goes past the log and no trim is on its way whose tombstone the log has, and lets none begin.
    async fn stop_bypass(&self) {}
    /// Lets changes go past the log again; before, if the log is `renewed`, makes it durable that recovery ignores no page.
    async fn end_bypass(&self, _renewed: bool) {}
    /// Writes neighbours to the origin.
    async fn write_origin_run(&self, first: u64, pages: Vec<Buf>) -> Result<(), Errno> {
        for (page, buf) in (first..).zip(pages) {
            self.write_origin(page, buf).await?;
        }
        Ok(())
    }
    /// Writes the newest versions of these pages to the origin concurrently, in any order
    /// ([`run_to_origin`](super::PageLog::run_to_origin)). Returns the pages that failed; `None` if the host does not do it.
    fn spread(&self, _: &[u64]) -> Option<Vec<u64>> {
        None
    }
    /// Makes pages of the origin zero.
    async fn zero_origin(&self, pages: Range<u64>) -> Result<(), Errno>;
    /// Flushes the origin.
    async fn flush_origin(&self) -> Result<(), Errno>;
    /// Whether a page is appended again when it is due for eviction. The caller holds the lock. These pages must be a small part
    /// of the log, since they make no room.
    fn keeps(&self, _page: u64) -> bool {
        false
    }
    /// Counts valid pages that were evicted.
    fn evicted(&self, pages: u64);

    /// Whether tasks of the driver call [`write_next`](super::PageLog::write_next) and [`keep`](super::PageLog::keep); else
    /// the waiting process does.
    fn has_tasks(&self) -> bool;
    /// Whether this process writes batches, if it has no tasks; else another one does.
    fn writes_batches(&self) -> bool {
        true
    }
    /// Whether operations that only save time later may be abandoned when flash is slow. Returns the previous answer.
    fn hurry(&self, _: bool) -> bool {
        false
    }
    /// Why this process must not wait any longer, if it must not. `since` is that of a wait for flash, which begins with 0; the
    /// host keeps the time there.
    fn stops_waiting(&self, _since: &mut u64) -> Option<Errno> {
        None
    }
    /// Whether changes go past the log at this moment: until each ends, the log still has the version before it.
    fn passes(&self) -> bool {
        false
    }
    /// Whether this is the error of an operation that was abandoned. It may still be carried out, and no device has failed.
    fn is_abandoned(&self, _: Errno) -> bool {
        false
    }
    /// A version of this page was read from flash under load, and is not as it was written.
    /// `dirty`: only flash had the page.
    fn damaged(&self, _page: u64, _dirty: bool) {}
    /// Whether this process makes room before it is needed; else only when there is none.
    fn keeps_ahead(&self) -> bool {
        true
    }
    /// Waits for a change; may return early.
    async fn changed(&self, seen: u64);
    /// Rests before a retry, after this number of failures.
    async fn rest(&self, _: u64) {}
    /// Whether this number of consecutive failures of one operation fails the log.
    fn gives_up(&self, failures: u64) -> bool {
        failures >= FAILURES_MOST
    }
    /// The number of changes.
    fn changes(&self) -> u64;
    /// Counts a change and wakes waiting tasks or processes.
    fn notify(&self);
    /// The name of this process; never 0.
    fn me(&self) -> u64;
    /// Whether the process of this name is dead.
    fn is_gone(&self, name: u64) -> bool;
}

/// Repeats an operation that fails, until the host gives it up or its device is closed.
pub(super) async fn insist<T>(
    host: &impl Host,
    mut attempt: impl AsyncFnMut() -> Result<T, Errno>,
) -> Result<T, Errno> {
    let mut failures = 0;
    loop {
        let errno = match attempt().await {
            Err(errno) if errno != Errno::ESHUTDOWN && !host.is_abandoned(errno) => errno,
            result => return result,
        };
        failures += 1;
        if host.gives_up(failures) {
            return Err(errno);
        }
        host.rest(failures).await;
    }
}

/// Waits until something is ready, which a change makes it.
pub async fn until<T>(host: &impl Host, mut ready: impl FnMut() -> Option<T>) -> T {
    loop {
        let seen = host.changes();
        if let Some(found) = ready() {
            return found;
        }
        host.changed(seen).await;
    }
}

/// As [`until`]; fails if the host must not wait any longer.
pub(super) async fn until_ready(
    host: &impl Host,
    mut ready: impl FnMut() -> bool,
) -> Result<(), Errno> {
    until(host, || if ready() { Some(Ok(())) } else { host.stops_waiting(&mut 0).map(Err) }).await
}

/// Runs a future of a host whose operations block.
///
/// # Panics
/// If the future is pending.
pub fn now<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("a host without tasks never waits"),
    }
}
