// SPDX-License-Identifier: MIT OR Apache-2.0
//! A look at a log on a device: what a start would find. Nothing is written.

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

/// A log as it lies there.
pub struct Look<'a> {
    log: PageLog<Reading<'a>, Vec<AtomicU64>>,
    /// What was found.
    pub found: Found,
}

/// Reads from flash.
type Read<'a> = Box<dyn Fn(u64, Buf) -> Result<Buf, Errno> + 'a>;

impl<'a> Look<'a> {
    /// Reads it; `read` fills a buffer from a byte of the device on.
    ///
    /// # Errors
    /// If it cannot be used.
    pub fn new(
        log: Geometry,
        settings: LogSettings,
        read: impl Fn(u64, Buf) -> Result<Buf, Errno> + 'a,
    ) -> Result<Self, OpenError> {
        let memory = (0..words_needed(log.blocks)).map(|_| AtomicU64::new(0)).collect();
        let (log, found) = now(PageLog::look(Reading(Box::new(read)), memory, log, settings))?;
        Ok(Self { log, found })
    }

    /// The valid pages, where on the device they lie, and whether the origin may lack them.
    pub fn pages(&self) -> impl Iterator<Item = (u64, u64, bool)> + '_ {
        self.log.valid_pages()
    }

    /// Blocks between front and rear.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.found.rear - self.found.front
    }

    /// Whether the origin may lack anything that is here, or have what a tombstone says is gone.
    #[must_use]
    pub fn is_dirty(&self) -> bool {
        !self.found.redo.is_empty() || self.pages().any(|(_, _, dirty)| dirty)
    }
}

/// A host that reads, and no more.
struct Reading<'a>(Read<'a>);

impl Host for Reading<'_> {
    type Guard<'b>
        = ()
    where
        Self: 'b;
    type Hold = ();

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
    fn left(&self, _: u64) {}
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
