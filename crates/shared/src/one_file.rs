// SPDX-License-Identifier: MIT OR Apache-2.0
//! An origin that is one file of consecutive pages.

use std::os::fd::OwnedFd;

use larder_core::buf::Buf;
use larder_core::request::Errno;

use crate::file::{errno, read_all, write_pages};
use crate::host::{Member, Origin};

/// A file of consecutive pages.
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
