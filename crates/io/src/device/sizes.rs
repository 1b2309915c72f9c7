// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sizes that change while a device is open.
//!
//! Operations are checked against the size that was taken last, so a caller stops using what lies beyond before a device becomes
//! smaller. Memory and exports keep the size that they were opened with.

use std::sync::atomic::Ordering;

use larder_core::request::Errno;

use super::{Base, Device};

impl Device {
    /// Takes the size that a file or block device has now; returns it, in whole blocks.
    ///
    /// # Errors
    /// The system call fails, or nothing is left of the device (`ENOSPC`).
    pub fn remeasure(&self) -> Result<u64, Errno> {
        let Base::File(file) = self.base() else { return Ok(self.geometry().bytes) };
        let block = u64::from(self.geometry().block_bytes);
        let bytes = file.identity()?.bytes / block * block;
        if bytes == 0 {
            return Err(Errno::ENOSPC);
        }
        self.0.bytes.store(bytes, Ordering::Release);
        Ok(bytes)
    }

    /// Whether it is a file, whose size a program may set.
    #[must_use]
    pub fn is_file(&self) -> bool {
        matches!(self.base(), Base::File(file) if !file.is_block)
    }

    /// Makes a file longer, with blocks that read as zeroes, or shorter; returns its new size.
    ///
    /// # Errors
    /// The system call fails, or this is no file (`EINVAL`).
    pub fn set_file_size(&self, bytes: u64) -> Result<u64, Errno> {
        match self.base() {
            Base::File(file) if !file.is_block => file.set_size(bytes)?,
            _ => return Err(Errno::EINVAL),
        }
        self.remeasure()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a test stops at the first failure

    use larder_core::buf::Buf;
    use larder_core::exec::{DevId, Io, IoId, IoKind};

    use super::*;
    use crate::{Access, DevSpec};

    #[test]
    fn a_file_grows_and_shrinks_for_all_handles_of_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("flash");
        std::fs::write(&path, vec![7; 1 << 20]).unwrap();
        let device = Device::open(&DevSpec::Path(path), Access::ReadWrite).unwrap();
        let other = device.clone();
        let read = |at| {
            let (kind, buf) = (IoKind::Read, Some(Buf::with_len(4096)));
            let (id, dev) = (IoId(0), DevId(0));
            other.run_blocking(&mut Io { id, dev, kind, offset: at, len: 4096, buf, at: 0 })
        };
        assert!(read(1 << 20).is_err());
        assert_eq!(device.set_file_size(2 << 20), Ok(2 << 20));
        assert_eq!((read(1 << 20), other.geometry().bytes), (Ok(()), 2 << 20));
        assert_eq!(device.set_file_size(512 << 10), Ok(512 << 10));
        assert!(read(512 << 10).is_err() && read(0).is_ok());
        assert_eq!(device.set_file_size(0), Err(Errno::ENOSPC));
        assert_eq!(Device::mem(1 << 20).set_file_size(1 << 21), Err(Errno::EINVAL));
        assert_eq!(Device::mem(1 << 20).remeasure(), Ok(1 << 20));
    }
}
