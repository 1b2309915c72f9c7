// SPDX-License-Identifier: MIT OR Apache-2.0
//! Access mode, size and identity of a device.

/// Block size of devices that do not require a particular one.
pub(super) const SMALL_BLOCK: u32 = 512;

/// The access mode of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reads only; everything else fails with `EROFS`. The device is not locked.
    ReadOnly,
    /// All operations; the device is locked against a second opening for writing.
    ReadWrite,
}

/// Who else may use a file or block device that is opened. Devices of other kinds are not checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Privacy {
    /// Any user.
    Any,
    /// Root and the user of this process; of a block device also its group. Others are refused, as is a path on which
    /// other users could exchange the file.
    Private,
}

/// Size and shape of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Usable size: a multiple of the block size.
    pub bytes: u64,
    /// Offsets and lengths must be multiples of this.
    pub block_bytes: u32,
    /// The device's internal write unit; smaller writes may cost it a read.
    pub physical_block_bytes: u32,
    /// Whether Trim has an effect.
    pub can_trim: bool,
    /// Whether the device is a rotating disk, if known.
    pub rotational: Option<bool>,
}

/// Distinguishes a device from others, for fencing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The device number of the file system, or of the block device itself.
    pub dev: u64,
    /// The inode on that file system; 0 for block devices.
    pub inode: u64,
    /// The modification time of a file, in nanoseconds since 1970; 0 for block devices.
    pub mtime_ns: i128,
    /// The size, not rounded.
    pub bytes: u64,
}

/// The geometry of memory and null devices.
pub(super) fn memory_geometry(bytes: u64, can_trim: bool) -> Geometry {
    Geometry {
        bytes: bytes - bytes % u64::from(SMALL_BLOCK),
        block_bytes: SMALL_BLOCK,
        physical_block_bytes: larder_core::buf::PAGE as u32,
        can_trim,
        rotational: Some(false),
    }
}
