// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads a log on a device as a start would, and writes nothing.

use std::ops::Range;
use std::sync::atomic::AtomicU64;

use super::error::OpenError;
use super::geometry::Geometry;
use super::host::{Host, now};
use super::paths::PageLog;
use super::policy::LogSettings;
use super::recover::Found;
use super::words::words_needed;
use crate::buf::Buf;
use crate::request::Errno;

/// A log that was read.
pub struct Inspection<'a> {
    log: PageLog<Reading<'a>, Vec<AtomicU64>>,
    /// The recovered state.
    pub found: Found,
}

/// Reads from flash.
type Read<'a> = Box<dyn Fn(u64, Buf) -> Result<Buf, Errno> + 'a>;

impl<'a> Inspection<'a> {
    /// Reads the log of an origin of so many pages; `read` fills a buffer from a byte of the device.
    ///
    /// # Errors
    /// If it cannot be used.
    pub fn new(
        log: Geometry,
        settings: LogSettings,
        pages: u64,
        read: impl Fn(u64, Buf) -> Result<Buf, Errno> + 'a,
    ) -> Result<Self, OpenError> {
        Self::ignoring(log, settings, pages, Vec::new(), read)
    }

    /// As [`new`](Self::new); a start would ignore some pages ([`Event::LogIgnores`](crate::event::Event::LogIgnores)).
    ///
    /// # Errors
    /// If it cannot be used.
    pub fn ignoring(
        log: Geometry,
        settings: LogSettings,
        pages: u64,
        ignored: Vec<Range<u64>>,
        read: impl Fn(u64, Buf) -> Result<Buf, Errno> + 'a,
    ) -> Result<Self, OpenError> {
        let memory = (0..words_needed(log.blocks)).map(|_| AtomicU64::new(0)).collect();
        let (log, found) =
            now(PageLog::inspect(Reading(Box::new(read), pages, ignored), memory, log, settings))?;
        Ok(Self { log, found })
    }

    /// The valid pages: page, first byte on the device, whether it is dirty.
    pub fn pages(&self) -> impl Iterator<Item = (u64, u64, bool)> + '_ {
        self.log.valid_pages()
    }

    /// The pages whose only copy is lost.
    pub fn lost(&self) -> impl Iterator<Item = u64> + '_ {
        self.log.lost_pages()
    }

    /// Blocks between tail and head.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.found.head - self.found.tail
    }

    /// Whether it holds dirty pages, or tombstones that the origin may lack.
    #[must_use]
    pub fn is_dirty(&self) -> bool {
        !self.found.redo.is_empty() || self.pages().any(|(_, _, dirty)| dirty)
    }
}

/// A host that only reads.
struct Reading<'a>(Read<'a>, u64, Vec<Range<u64>>);

impl Host for Reading<'_> {
    type Guard<'b>
        = ()
    where
        Self: 'b;
    type Hold = ();

    fn pages(&self) -> u64 {
        self.1
    }
    fn ignores(&self) -> Vec<Range<u64>> {
        self.2.clone()
    }
    fn lock(&self) -> ((), bool) {
        ((), false)
    }
    fn stage(&self, _: usize, _: usize, _: &[u8]) {}
    fn staged(&self, _: usize, _: usize, _: &mut [u8]) {}
    async fn read_flash(&self, offset: u64, buf: Buf) -> Result<Buf, Errno> {
        (self.0)(offset, buf)
    }
    async fn write_batch(&self, _: u64, _: Buf, _: usize, _: usize) -> Result<(), Errno> {
        Err(Errno::EIO)
    }
    async fn write_flash(&self, _: u64, _: Buf) -> Result<(), Errno> {
        Err(Errno::EIO)
    }
    async fn flush_flash(&self) -> Result<(), Errno> {
        Err(Errno::EIO)
    }
    async fn hold(&self, _: u64) {}
    async fn write_origin(&self, _: u64, _: Buf) -> Result<(), Errno> {
        Err(Errno::EIO)
    }
    async fn zero_origin(&self, _: Range<u64>) -> Result<(), Errno> {
        Err(Errno::EIO)
    }
    async fn flush_origin(&self) -> Result<(), Errno> {
        Err(Errno::EIO)
    }
    fn evicted(&self, _: u64) {}
    fn has_tasks(&self) -> bool {
        false
    }
    async fn changed(&self, _: u64) {}
    fn changes(&self) -> u64 {
        0
    }
    fn notify(&self) {}
    fn me(&self) -> u64 {
        1
    }
    fn is_gone(&self, _: u64) -> bool {
        false
    }
}
