// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a log asks of whoever drives it.
//!
//! The paths are the same `async` code everywhere; what differs is here. In a served volume and in virtual
//! time operations are awaited, and background tasks write batches and make room. In memory that processes
//! share every operation blocks, no future here is ever pending, and whoever needs progress makes it.

use std::future::Future;
use std::ops::Range;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use crate::buf::Buf;
use crate::request::Errno;

/// Burials, counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Burials {
    /// Those that ended ...
    pub ended: u64,
    /// ... and those that the origin refused.
    pub refused: u64,
}

/// See the module.
#[allow(async_fn_in_trait)] // Drivers are single-threaded; nobody needs the futures to be `Send`.
pub trait Host {
    /// Keeps others out of the log's memory while it lives.
    type Guard<'a>
    where
        Self: 'a;
    /// Keeps others from changing a page on the origin while it lives.
    type Hold;

    /// Takes the log's memory; whether somebody died who had it.
    fn lock(&self) -> (Self::Guard<'_>, bool);
    /// Copies a page to its place (0 the first) in a batch's buffer.
    fn stage(&self, buffer: usize, place: usize, bytes: &[u8]);
    /// Copies it from there.
    fn staged(&self, buffer: usize, place: usize, into: &mut [u8]);

    /// Reads from flash.
    async fn read_flash(&self, offset: u64, buf: Buf) -> Result<Buf, Errno>;
    /// Writes to flash. A batch: `head` twice, then `pages` pages of the buffer, in one operation.
    async fn write_batch(
        &self,
        offset: u64,
        head: Buf,
        buffer: usize,
        pages: usize,
    ) -> Result<(), Errno>;
    /// Writes a header or a segment.
    async fn write_flash(&self, offset: u64, buf: Buf) -> Result<(), Errno>;
    /// Makes durable what flash was written.
    async fn flush_flash(&self) -> Result<(), Errno>;

    /// Waits until nobody changes the page on the origin, and keeps it so. Whoever waits for room in the log has
    /// no such hold.
    async fn hold(&self, page: u64) -> Self::Hold;
    /// A tombstone of these pages was put, under the lock.
    fn buried(&self, _: Range<u64>) {}
    /// Waits until the origin is as a tombstone says that begins with this page. Whoever buries holds it until then,
    /// unless the host knows better.
    async fn tombstone_done(&self, page: u64) {
        drop(self.hold(page).await);
    }
    /// Burials so far, where one may run beside a drain.
    fn burials(&self) -> Burials {
        Burials::default()
    }
    /// Waits for the burials under way.
    async fn burials_of_now(&self) {}
    /// Writes a page to the origin.
    async fn write_origin(&self, page: u64, buf: Buf) -> Result<(), Errno>;
    /// Writes neighbours to the origin.
    async fn write_origin_run(&self, first: u64, pages: Vec<Buf>) -> Result<(), Errno> {
        for (page, buf) in (first..).zip(pages) {
            self.write_origin(page, buf).await?;
        }
        Ok(())
    }
    /// Brings the newest versions of these pages, in any order, to the origin, where the host knows a better way than one
    /// after the other ([`run_to_origin`](super::PageLog::run_to_origin)); those that could not be.
    fn spread(&self, _: &[u64]) -> Option<Vec<u64>> {
        None
    }
    /// Makes pages of the origin zero.
    async fn zero_origin(&self, pages: Range<u64>) -> Result<(), Errno>;
    /// Makes durable what the origin was written.
    async fn flush_origin(&self) -> Result<(), Errno>;
    /// So many pages that were valid have left.
    fn left(&self, pages: u64);

    /// Whether tasks of the driver call [`write_next`](super::PageLog::write_next) and
    /// [`keep`](super::PageLog::keep); else whoever waits does.
    fn has_tasks(&self) -> bool;
    /// Whether this one makes room before it is needed. Where another does, it does so only when there is none.
    fn keeps_ahead(&self) -> bool {
        true
    }
    /// Waits for a change; may return early.
    async fn changed(&self, seen: u64);
    /// Rests before something that failed is tried again.
    async fn rest(&self) {}
    /// Counts changes.
    fn changes(&self) -> u64;
    /// Something changed.
    fn notify(&self);
    /// Names whoever runs this; never 0.
    fn me(&self) -> u64;
    /// Whether whoever was named so is no more.
    fn is_gone(&self, name: u64) -> bool;
}

/// Runs a future of a host that never waits.
///
/// # Panics
/// If it waits after all: the host is not what it says.
pub fn now<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("a host without tasks never waits"),
    }
}
