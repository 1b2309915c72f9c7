// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a device is opened for, how large it is, and what tells it from others.

/// Bytes of a block of devices that need no particular one.
pub(super) const SMALL_BLOCK: u32 = 512;

/// What a device is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reads only; everything else fails with `EROFS`. Takes no lock.
    ReadOnly,
    /// Everything, and nobody else may open it so at the same time.
    ReadWrite,
}

/// Size and shape of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Bytes that can be used: whole blocks.
    pub bytes: u64,
    /// Offsets and lengths must be multiples of this.
    pub block_bytes: u32,
    /// What the device itself writes at the least; smaller writes may cost it a read.
    pub physical_block_bytes: u32,
    /// Whether Trim does anything.
    pub can_trim: bool,
    /// Whether it is a disk that turns, where that is known.
    pub rotational: Option<bool>,
}

/// What tells one device from another, for fencing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The number of the file system's device, or of the block device itself.
    pub dev: u64,
    /// The inode on that file system; 0 for block devices.
    pub inode: u64,
    /// When a file was last modified, in nanoseconds since 1970; 0 for block devices.
    pub mtime_ns: i128,
    /// Its size, not rounded.
    pub bytes: u64,
}

/// Of memory, or of nothing.
pub(super) fn memory_geometry(bytes: u64, can_trim: bool) -> Geometry {
    Geometry {
        bytes: bytes - bytes % u64::from(SMALL_BLOCK),
        block_bytes: SMALL_BLOCK,
        physical_block_bytes: larder_core::buf::PAGE as u32,
        can_trim,
        rotational: Some(false),
    }
}
