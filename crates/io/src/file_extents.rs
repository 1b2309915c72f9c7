// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where the bytes of a file lie on the block device of its file system (FIEMAP).
//!
//! Only file systems whose extents are places of their one device are accepted: ext2 to ext4, XFS (without a realtime device) and
//! F2FS. Btrfs answers with addresses of its own space. The kernel writes the file's delayed data first; bytes that have no
//! place even then (holes, data inside an inode) are left out.
#![allow(unsafe_code)] // one ioctl

use std::fs::File;
use std::ops::Range;
use std::os::fd::AsRawFd as _;

/// `_IOWR('f', 11, struct fiemap)`.
const FS_IOC_FIEMAP: libc::Ioctl = 0xC020_660B_u32 as libc::Ioctl;
/// The kernel writes delayed data of the file first.
const FLAG_SYNC: u32 = 1;
/// Extents a call.
const EACH: usize = 128;
/// The last extent of the file.
const LAST: u32 = 1;
/// Flags of extents without a place on the device: unknown, delayed, encoded, inside an inode, with other data.
const NO_PLACE: u32 = 0x2 | 0x4 | 0x8 | 0x200 | 0x400;
/// File systems by the number that `statfs` gives.
const KNOWN: [(u64, &str); 3] =
    [(0xEF53, "ext2 to ext4"), (0x5846_5342, "XFS"), (0xF2F5_2010, "F2FS")];

/// `struct fiemap_extent`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Extent {
    logical: u64,
    physical: u64,
    length: u64,
    reserved64: [u64; 2],
    flags: u32,
    reserved: [u32; 3],
}

/// `struct fiemap`, with room for extents.
#[repr(C)]
struct Map {
    start: u64,
    length: u64,
    flags: u32,
    mapped: u32,
    count: u32,
    reserved: u32,
    extents: [Extent; EACH],
}

/// Ranges of bytes of the device that the file has, in the order of the file.
///
/// # Errors
/// The file system is none of those of the module, or it has no map of the file.
pub fn file_extents(file: &File) -> std::io::Result<Vec<Range<u64>>> {
    let kind = rustix::fs::fstatfs(file)?.f_type as u64;
    if !KNOWN.iter().any(|(number, _)| *number == kind) {
        let names = KNOWN.map(|(_, name)| name).join(", ");
        let why = format!("its file system does not name places of its device; accepted: {names}");
        return Err(std::io::Error::new(std::io::ErrorKind::Unsupported, why));
    }
    let (mut found, mut start) = (Vec::new(), 0);
    loop {
        let mut map = Map {
            start,
            length: u64::MAX - start,
            flags: FLAG_SYNC,
            mapped: 0,
            count: EACH as u32,
            reserved: 0,
            extents: [Extent::default(); EACH],
        };
        // SAFETY: the kernel writes at most `count` extents behind the head, for which `extents` has room, and keeps no
        // pointer.
        let done = unsafe { libc::ioctl(file.as_raw_fd(), FS_IOC_FIEMAP, &raw mut map) };
        if done < 0 {
            return Err(std::io::Error::last_os_error());
        }
        let extents = map.extents.get(..map.mapped as usize).unwrap_or_default();
        let placed = extents.iter().filter(|extent| extent.flags & NO_PLACE == 0);
        found.extend(placed.map(|extent| extent.physical..extent.physical + extent.length));
        match extents.last() {
            Some(last) if last.flags & LAST == 0 => start = last.logical + last.length,
            _ => return Ok(found),
        }
    }
}
