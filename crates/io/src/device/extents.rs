// SPDX-License-Identifier: MIT OR Apache-2.0
//! What of a device is data and what is a hole.
//!
//! Purpose: [`Device::extents`] asks whoever knows: a file's file system (`SEEK_DATA`,
//! `SEEK_HOLE`), or the server of an export (`base:allocation`). Everything else is data.
//!
//! Invariants: bounded work, at most two seeks for each extent that may be returned, or one request
//! to a server; the answer is whole blocks, not empty, and ends within the range. Whatever goes wrong
//! makes data of what was asked about, which is always true: nobody may rely on a hole being told.
//!
//! A write that was answered before the question is data in the answer: the file system, or the
//! server, has it by then. While the question is under way the answer may be from before or after a
//! write. This waits for the device, so it is not for a worker's thread; modelled latency and
//! injected faults do not apply.

use std::os::fd::{AsFd, OwnedFd};

use larder_core::extent::{Extent, in_blocks, push};
use larder_core::request::Errno;
use rustix::fs::SeekFrom;

use super::{Base, Device};
use crate::errno::from_sys;

impl Device {
    /// What a range of whole blocks within the device is: at most `most` extents, from `offset` on,
    /// perhaps not to the range's end. See the module.
    #[must_use]
    pub fn extents(&self, offset: u64, len: u64, most: usize) -> Vec<Extent> {
        let geometry = self.geometry();
        let (block, most) = (u64::from(geometry.block_bytes), most.max(1));
        let end = offset.checked_add(len).filter(|end| *end <= geometry.bytes);
        let Some(end) = end.filter(|_| len > 0 && (offset | len).is_multiple_of(block)) else {
            return vec![Extent::data(len)];
        };
        let found = match self.base() {
            Base::File(file) if !file.is_block => seek(&file.fd, offset, end, most),
            Base::Nbd(nbd) => nbd.extents(offset, len),
            _ => return vec![Extent::data(len)],
        };
        let mut list = match found {
            Ok(list) => in_blocks(&list, block, len),
            Err(errno) => {
                tracing::debug!("{}: what is allocated is not known: {errno}", self.name());
                vec![Extent::data(len)]
            }
        };
        list.truncate(most);
        list
    }
}

/// The extents of a file, not in whole blocks. The file may change meanwhile, so nothing is
/// concluded from two seeks together.
fn seek(fd: &OwnedFd, offset: u64, end: u64, most: usize) -> Result<Vec<Extent>, Errno> {
    let (mut list, mut at) = (Vec::new(), offset);
    for _ in 0..most {
        if at >= end {
            break;
        }
        let data = match rustix::fs::seek(fd.as_fd(), SeekFrom::Data(at)) {
            Ok(data) => data.clamp(at, end),
            // No more data up to the file's end, unless the file was cut short.
            Err(rustix::io::Errno::NXIO) if size(fd)? >= end => end,
            Err(e) => return Err(from_sys(e)),
        };
        push(&mut list, Extent::hole(data - at));
        if data < end {
            let hole = rustix::fs::seek(fd.as_fd(), SeekFrom::Hole(data)).map_err(from_sys)?;
            let hole = hole.clamp(data + 1, end);
            push(&mut list, Extent::data(hole - data));
            at = hole;
        } else {
            at = end;
        }
    }
    Ok(list)
}

fn size(fd: &OwnedFd) -> Result<u64, Errno> {
    Ok(rustix::fs::fstat(fd).map_err(from_sys)?.st_size as u64)
}
