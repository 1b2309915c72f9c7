// SPDX-License-Identifier: MIT OR Apache-2.0
//! Complete reads and writes of a file: short and interrupted calls are continued.

use std::io::IoSlice;
use std::os::fd::{AsFd, OwnedFd};

use larder_core::buf::Buf;
use larder_core::request::Errno;

pub(crate) fn errno(error: rustix::io::Errno) -> Errno {
    Errno(error.raw_os_error())
}

/// Writes pages to consecutive places of a file.
///
/// # Errors
/// A write fails.
pub fn write_pages(file: impl AsFd, pages: &[Buf], offset: u64) -> Result<(), Errno> {
    let mut parts: Vec<IoSlice<'_>> = pages.iter().map(|page| IoSlice::new(page)).collect();
    write_all(file, &mut parts, offset)
}

pub(crate) fn write_all(
    file: impl AsFd,
    mut parts: &mut [IoSlice<'_>],
    mut offset: u64,
) -> Result<(), Errno> {
    while !parts.is_empty() {
        match rustix::io::pwritev(&file, parts, offset) {
            Ok(0) => return Err(Errno::EIO),
            Ok(written) => {
                offset += written as u64;
                IoSlice::advance_slices(&mut parts, written);
            }
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(errno(error)),
        }
    }
    Ok(())
}

pub(crate) fn read_all(file: &OwnedFd, buf: &mut [u8], offset: u64) -> Result<(), Errno> {
    let mut done = 0;
    while done < buf.len() {
        match rustix::io::pread(file, &mut buf[done..], offset + done as u64) {
            // Beyond the end of the file the page is zero.
            Ok(0) => {
                buf[done..].fill(0);
                return Ok(());
            }
            Ok(read) => done += read,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(errno(error)),
        }
    }
    Ok(())
}
