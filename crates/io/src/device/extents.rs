// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which ranges of a device are data and which are holes.
//!
//! Purpose: [`Device::extents`] asks the file system of a file (`SEEK_DATA`, `SEEK_HOLE`) or the server of an export
//! (`base:allocation`). All other devices are data.
//!
//! Invariants: the work is bounded by two seeks for each returned extent, or one request to a server. The result
//! consists of whole blocks, is not empty, and ends within the range. On any error the range is reported as data, which
//! is always correct: callers must not rely on holes being reported.
//!
//! A write that completed before the call is reported as data, because the file system or the server has it. A
//! concurrent write may or may not be reported. The call waits for the device, so a worker's thread must not make it.
//! Modelled latency and injected faults do not apply.

use std::os::fd::{AsFd, OwnedFd};

use larder_core::extent::{Extent, in_blocks, push};
use larder_core::request::Errno;
use rustix::fs::SeekFrom;

use super::{Base, Device};
use crate::errno::from_sys;

impl Device {
    /// The extents of a range of whole blocks: at most `most`, from `offset` on, possibly not to the range's end.
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
                tracing::debug!("{}: cannot determine the allocated ranges: {errno}", self.name());
                vec![Extent::data(len)]
            }
        };
        list.truncate(most);
        list
    }
}

/// The extents of a file, not rounded to blocks. The file may change between two seeks, so no conclusion combines them.
fn seek(fd: &OwnedFd, offset: u64, end: u64, most: usize) -> Result<Vec<Extent>, Errno> {
    let (mut list, mut at) = (Vec::new(), offset);
    for _ in 0..most {
        if at >= end {
            break;
        }
        let data = match rustix::fs::seek(fd.as_fd(), SeekFrom::Data(at)) {
            Ok(data) => data.clamp(at, end),
            // No more data up to the file's end, unless the file was truncated.
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
