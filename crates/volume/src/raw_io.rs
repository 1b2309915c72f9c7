// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads and writes of a flash device outside the engine: before a shard uses it, or after.

use larder_core::buf::Buf;
use larder_core::exec::{DevId, Io, IoId, IoKind};
use larder_core::format::Medium;
use larder_core::format::label::LABEL_BYTES;
use larder_core::request::Errno;
use larder_io::Device;

use super::error::VolumeError;

/// The most bytes of one operation, and of each end of a device that are checked for foreign data.
pub(crate) const LOOK_BYTES: u64 = 1 << 20;

/// Reads up to [`LOOK_BYTES`].
pub(crate) fn read(device: &Device, offset: u64, len: u64) -> Result<Buf, VolumeError> {
    run(device, IoKind::Read, offset, Buf::with_len(len as usize), "reading")
}

/// One operation; `doing` names it in an error.
pub(crate) fn run(
    device: &Device,
    kind: IoKind,
    offset: u64,
    buf: Buf,
    doing: &'static str,
) -> Result<Buf, VolumeError> {
    debug_assert!(buf.len() >= LABEL_BYTES || buf.len() as u64 <= LOOK_BYTES);
    let (id, dev, len) = (IoId(0), DevId(0), buf.len() as u64);
    let mut io = Io { id, dev, kind, offset, len, buf: Some(buf), at: 0 };
    let failed = |errno| VolumeError::Device { device: device.name().to_owned(), doing, errno };
    device.run_blocking(&mut io).map_err(failed)?;
    io.buf.ok_or_else(|| failed(Errno::EIO))
}

/// A device that is inspected.
pub(crate) struct Raw<'a>(pub &'a Device);

impl Medium for Raw<'_> {
    fn fill(&self, at: u64, buf: Buf) -> Result<Buf, Errno> {
        let (id, dev, kind, len) = (IoId(0), DevId(0), IoKind::Read, buf.len() as u64);
        let mut io = Io { id, dev, kind, offset: at, len, buf: Some(buf), at: 0 };
        self.0.run_blocking(&mut io)?;
        io.buf.ok_or(Errno::EIO)
    }

    fn flush(&self) -> Result<(), Errno> {
        let (id, dev, kind) = (IoId(0), DevId(0), IoKind::Flush);
        let mut io = Io { id, dev, kind, offset: 0, len: 0, buf: None, at: 0 };
        self.0.run_blocking(&mut io)
    }
}
