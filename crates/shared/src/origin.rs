// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where the pages of a log come from and go to.

use std::os::fd::OwnedFd;

use larder_core::buf::Buf;
use larder_core::request::Errno;

use crate::Member;
use crate::host::{errno, read_all};
use crate::write_pages;

/// An origin: what a page's number means is its own business. Everything blocks.
pub trait Origin {
    /// Reads a page; behind the end there are zeroes.
    ///
    /// # Errors
    /// If it cannot be read.
    fn read(&self, page: u64, into: &mut [u8]) -> Result<(), Errno>;
    /// Writes this page and those behind it, neighbours ([`NEIGHBOURS`](crate::NEIGHBOURS)) that `member` holds.
    ///
    /// # Errors
    /// If one cannot be written.
    fn write(&self, page: u64, pages: &[Buf], member: &Member) -> Result<(), Errno>;
    /// Makes durable what was written, by whichever process.
    ///
    /// # Errors
    /// If it cannot be.
    fn flush(&self, member: &Member) -> Result<(), Errno>;
    /// The same for another thread, if several writes at a time are faster than one after the other.
    fn again(&self) -> Option<Box<dyn Origin + Send>> {
        None
    }
}

/// One file, one page behind the other.
pub struct OneFile(pub OwnedFd);

impl Origin for OneFile {
    fn read(&self, page: u64, into: &mut [u8]) -> Result<(), Errno> {
        let at = page * into.len() as u64;
        read_all(&self.0, into, at)
    }

    fn write(&self, page: u64, pages: &[Buf], _: &Member) -> Result<(), Errno> {
        let at = page * pages.first().map_or(0, |page| page.len() as u64);
        write_pages(&self.0, pages, at)
    }

    fn flush(&self, _: &Member) -> Result<(), Errno> {
        rustix::fs::fdatasync(&self.0).map_err(errno)
    }
}
