// SPDX-License-Identifier: MIT OR Apache-2.0
//! The structures and numbers of `linux/ublk_cmd.h` that Larder uses, by their meaning.

use std::mem::offset_of;

/// A number of `ioctl`: its direction, the size of its argument, and its place in the group of ublk.
const fn encoded(direction: u32, bytes: usize, number: u32) -> u32 {
    direction << 30 | (bytes as u32) << 16 | (b'u' as u32) << 8 | number
}

const READS: u32 = 2;
const READS_AND_WRITES: u32 = 3;

const fn control(direction: u32, number: u32) -> u32 {
    encoded(direction, size_of::<ControlCommand>(), number)
}

/// Commands to `/dev/ublk-control`.
pub mod command {
    use super::{READS, READS_AND_WRITES, control};

    /// Returns a [`DeviceInfo`](super::DeviceInfo).
    pub const INFO: u32 = control(READS, 0x02);
    /// Adds a device.
    pub const ADD: u32 = control(READS_AND_WRITES, 0x04);
    /// Removes a device, and waits until its number is free.
    pub const DELETE: u32 = control(READS_AND_WRITES, 0x05);
    /// Makes the block device, when all queues fetch.
    pub const START: u32 = control(READS_AND_WRITES, 0x06);
    /// Removes the block device.
    pub const STOP: u32 = control(READS_AND_WRITES, 0x07);
    /// Sets [`Params`](super::Params).
    pub const SET_PARAMS: u32 = control(READS_AND_WRITES, 0x08);
    /// Returns [`Params`](super::Params).
    pub const GET_PARAMS: u32 = control(READS, 0x09);
    /// Prepares the queues of a device whose server ended for another one.
    pub const START_RECOVERY: u32 = control(READS_AND_WRITES, 0x10);
    /// Continues with requests, when all queues fetch.
    pub const END_RECOVERY: u32 = control(READS_AND_WRITES, 0x11);
    /// Returns a word with the features of the driver. Linux 6.5.
    pub const FEATURES: u32 = control(READS, 0x13);
    /// Removes a device, and does not wait. Linux 6.9.
    pub const DELETE_LATER: u32 = control(READS, 0x14);
}

/// Commands to a queue: fetch a request; answer one and fetch the next with its tag.
pub const FETCH: u32 = encoded(READS_AND_WRITES, 16, 0x20);
/// See [`FETCH`].
pub const COMMIT_AND_FETCH: u32 = encoded(READS_AND_WRITES, 16, 0x21);

/// Features of the driver, and flags of a device.
pub mod feature {
    /// The device waits for another server when its own ended.
    pub const RECOVERY: u64 = 1 << 3;
    /// That server gets the requests again which were not answered.
    pub const REISSUE: u64 = 1 << 4;
    /// Commands are encoded as `ioctl` numbers.
    pub const ENCODED: u64 = 1 << 6;
    /// The server copies data with `pread` and `pwrite`. Linux 6.5.
    pub const USER_COPY: u64 = 1 << 7;
}

/// States of a device.
pub mod state {
    /// There is no block device: it was not started, or it was stopped.
    pub const DEAD: u16 = 0;
    /// A server serves it.
    pub const LIVE: u16 = 1;
    /// It waits for a server.
    pub const QUIESCED: u16 = 2;
}

/// Attributes of a block device.
pub mod attribute {
    /// Writes are refused.
    pub const READ_ONLY: u32 = 1 << 0;
    /// The device has a volatile write cache: the kernel sends FLUSH.
    pub const VOLATILE_CACHE: u32 = 1 << 2;
    /// The device knows FUA.
    pub const FUA: u32 = 1 << 3;
}

/// Which parts of [`Params`] are given.
pub mod params {
    /// [`Basic`](super::Basic).
    pub const BASIC: u32 = 1 << 0;
    /// [`Discard`](super::Discard).
    pub const DISCARD: u32 = 1 << 1;
}

/// Operations of a request.
pub mod operation {
    /// Reads.
    pub const READ: u8 = 0;
    /// Writes.
    pub const WRITE: u8 = 1;
    /// Makes acknowledged writes durable.
    pub const FLUSH: u8 = 2;
    /// Trims.
    pub const DISCARD: u8 = 3;
    /// Makes a range read as zeroes.
    pub const WRITE_ZEROES: u8 = 5;
}

/// Flag of a request: durable before the answer.
pub const FUA: u32 = 1 << 13;
/// Flag of a request: zeroes must not be a hole.
pub const NO_UNMAP: u32 = 1 << 15;

/// Where the data of requests begins in the character device; 25 bits of offset, then the tag, then the queue.
const DATA: u64 = 0x8000_0000;
const OFFSET_BITS: u32 = 25;
const TAG_BITS: u32 = 16;
/// The longest request with data.
pub const MOST_IO_BYTES: u32 = 1 << OFFSET_BITS;
/// The most requests of a queue.
pub const MOST_DEPTH: u16 = 4096;

/// The place in the character device of a byte of a request's data.
#[must_use]
pub const fn data_at(queue: u16, tag: u16, at: u64) -> u64 {
    DATA + ((queue as u64) << (OFFSET_BITS + TAG_BITS) | (tag as u64) << OFFSET_BITS | at)
}

/// `struct ublksrv_ctrl_cmd`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ControlCommand {
    pub(super) id: u32,
    pub(super) queue: u16,
    pub(super) len: u16,
    pub(super) address: u64,
    pub(super) data: u64,
    pub(super) path_len: u16,
    pub(super) pad: u16,
    pub(super) reserved: u32,
}

impl ControlCommand {
    /// The bytes of the command, as the kernel reads them.
    pub(super) fn bytes(&self) -> [u8; 80] {
        let mut bytes = [0; 80];
        bytes[..4].copy_from_slice(&self.id.to_ne_bytes());
        bytes[4..6].copy_from_slice(&self.queue.to_ne_bytes());
        bytes[6..8].copy_from_slice(&self.len.to_ne_bytes());
        bytes[8..16].copy_from_slice(&self.address.to_ne_bytes());
        bytes[16..24].copy_from_slice(&self.data.to_ne_bytes());
        bytes
    }
}

/// The arguments of a command to a queue, `struct ublksrv_io_cmd`: the request's tag, and what it returns. An address is
/// not given, since the server copies data itself.
#[must_use]
pub fn queue_arguments(queue: u16, tag: u16, result: i32) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..2].copy_from_slice(&queue.to_ne_bytes());
    bytes[2..4].copy_from_slice(&tag.to_ne_bytes());
    bytes[4..8].copy_from_slice(&result.to_ne_bytes());
    bytes
}

/// `struct ublksrv_ctrl_dev_info`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceInfo {
    /// Queues.
    pub queues: u16,
    /// Requests of a queue.
    pub depth: u16,
    /// See [`state`].
    pub state: u16,
    /// Zero.
    pub pad0: u16,
    /// The longest request with data.
    pub most_io_bytes: u32,
    /// The device's number.
    pub id: u32,
    /// The process of its server.
    pub server_pid: i32,
    /// Zero.
    pub pad1: u32,
    /// See [`feature`].
    pub flags: u64,
    /// A word that the driver keeps for servers.
    pub server_word: u64,
    /// User and group of the device, set by the driver.
    pub owner: [u32; 2],
    /// Zero.
    pub reserved: [u64; 2],
}

/// `struct ublk_param_basic`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Basic {
    /// See [`attribute`].
    pub attributes: u32,
    /// The logical block, as a power of two; as are the next three.
    pub logical_shift: u8,
    /// The physical block.
    pub physical_shift: u8,
    /// The best length of a request.
    pub best_shift: u8,
    /// The least length without a loss of speed.
    pub least_shift: u8,
    /// Sectors of the longest request with data.
    pub most_sectors: u32,
    /// No request with data crosses a multiple of it; zero for no such border.
    pub chunk_sectors: u32,
    /// Sectors of the device.
    pub sectors: u64,
    /// Zero: segments of a request need no alignment.
    pub boundary_mask: u64,
}

/// `struct ublk_param_discard`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Discard {
    /// Bytes from the device's beginning to the first discard that is aligned.
    pub alignment: u32,
    /// Bytes of the smallest discard.
    pub granularity: u32,
    /// Sectors of the longest discard; zero: there is none.
    pub most_sectors: u32,
    /// Sectors of the longest write of zeroes.
    pub most_zeroes_sectors: u32,
    /// Ranges of a discard; the driver accepts one.
    pub segments: u16,
    /// Zero.
    pub reserved: u16,
}

/// The beginning of `struct ublk_params`; what follows in newer kernels is not given.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Params {
    pub(super) len: u32,
    /// See [`params`].
    pub types: u32,
    /// Of every device.
    pub basic: Basic,
    /// Of a device with discards or writes of zeroes.
    pub discard: Discard,
}

impl Params {
    /// Bytes without the structure's padding, where another member of the kernel's follows.
    pub(super) const BYTES: usize = offset_of!(Self, discard) + size_of::<Discard>();

    /// Of a device with both parts.
    #[must_use]
    pub const fn new(basic: Basic, discard: Discard) -> Self {
        Self { len: Self::BYTES as u32, types: params::BASIC | params::DISCARD, basic, discard }
    }
}

/// `struct ublksrv_io_desc`: a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Descriptor {
    /// See [`operation`].
    pub operation: u8,
    /// [`FUA`], [`NO_UNMAP`] and others.
    pub flags: u32,
    /// Its length.
    pub sectors: u32,
    /// Its first sector.
    pub sector: u64,
}

impl Descriptor {
    /// Bytes of a descriptor in the memory that the driver shares.
    pub(super) const BYTES: usize = 24;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structures_have_the_sizes_of_the_kernels() {
        let sizes = [size_of::<ControlCommand>(), size_of::<DeviceInfo>(), size_of::<Basic>()];
        assert_eq!(sizes, [32, 64, 32]);
        assert_eq!((size_of::<Discard>(), Params::BYTES), (20, 60));
        assert_eq!((offset_of!(Params, basic), offset_of!(Params, discard)), (8, 40));
        assert_eq!((offset_of!(DeviceInfo, flags), offset_of!(DeviceInfo, server_pid)), (24, 16));
        assert_eq!((offset_of!(Basic, sectors), offset_of!(Basic, chunk_sectors)), (16, 12));
    }

    #[test]
    fn numbers_are_those_of_ioctl() {
        assert_eq!([command::ADD, command::INFO], [0xc020_7504, 0x8020_7502]);
        assert_eq!([command::FEATURES, command::DELETE_LATER], [0x8020_7513, 0x8020_7514]);
        assert_eq!([FETCH, COMMIT_AND_FETCH], [0xc010_7520, 0xc010_7521]);
    }

    #[test]
    fn commands_are_laid_out_as_the_kernel_reads_them() {
        let command =
            ControlCommand { id: 1, queue: 2, len: 3, address: 4, data: 5, ..Default::default() };
        let bytes = command.bytes();
        assert_eq!((bytes[0], bytes[4], bytes[6], bytes[8], bytes[16]), (1, 2, 3, 4, 5));
        assert_eq!(offset_of!(ControlCommand, data), 16);
        let bytes = queue_arguments(1, 2, -5);
        assert_eq!(
            (bytes[0], bytes[2], bytes[4..8].to_vec()),
            (1, 2, (-5_i32).to_ne_bytes().to_vec())
        );
        assert_eq!(data_at(0, 0, 0), 0x8000_0000);
        assert_eq!(data_at(3, 5, 7), 0x8000_0000 + (3 << 41) + (5 << 25) + 7);
    }
}
