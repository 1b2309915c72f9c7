// SPDX-License-Identifier: MIT OR Apache-2.0
//! The character device of a ublk device: where its queues' requests are described, and their data is copied.
//!
//! Invariants: one process has it open at a time. The memory of descriptors is mapped for reading, as long as its queue
//! exists. The driver fills a tag's descriptor before it completes the fetch of the tag, and does not change it until the
//! request is answered.
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::os::fd::OwnedFd;
use std::ptr::{null_mut, with_exposed_provenance};
use std::sync::Arc;

use larder_core::buf::PAGE;
use larder_core::request::Errno;
use rustix::fs::{Mode, OFlags};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use super::uapi::{Descriptor, MOST_DEPTH, data_at};
use crate::errno::from_sys;

/// The character device.
#[derive(Clone, Debug)]
pub struct Character(Arc<OwnedFd>);

impl Character {
    /// Opens the character device of this number.
    ///
    /// # Errors
    /// EBUSY while another server has it; ENOENT while its node is not there.
    pub fn open(id: u32) -> Result<Self, Errno> {
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        let fd = rustix::fs::open(format!("/dev/ublkc{id}"), flags, Mode::empty());
        Ok(Self(Arc::new(fd.map_err(from_sys)?)))
    }

    /// Maps the descriptors of a queue with this many requests.
    ///
    /// # Errors
    /// The kernel's.
    pub fn queue(&self, queue: u16, depth: u16) -> Result<CharacterQueue, Errno> {
        let pages = |depth: u16| (usize::from(depth) * Descriptor::BYTES).next_multiple_of(PAGE);
        let (bytes, offset) = (pages(depth), u64::from(queue) * pages(MOST_DEPTH) as u64);
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        // SAFETY: a new mapping at an address that the kernel chooses aliases nothing.
        let memory = unsafe { mmap(null_mut(), bytes, ProtFlags::READ, flags, &*self.0, offset) };
        let memory = memory.map_err(from_sys)?.expose_provenance();
        Ok(CharacterQueue { device: self.clone(), queue, depth, memory, bytes })
    }

    /// Whether no queue has it any more.
    #[must_use]
    pub fn is_alone(&self) -> bool {
        Arc::strong_count(&self.0) == 1
    }
}

/// A queue of a character device.
#[derive(Debug)]
pub struct CharacterQueue {
    device: Character,
    queue: u16,
    depth: u16,
    /// The address of the mapping, and its length.
    memory: usize,
    bytes: usize,
}

impl CharacterQueue {
    /// The descriptor for commands.
    #[must_use]
    pub fn device(&self) -> &Arc<OwnedFd> {
        &self.device.0
    }

    /// Its number.
    #[must_use]
    pub fn number(&self) -> u16 {
        self.queue
    }

    /// The most requests in flight; tags are below it.
    #[must_use]
    pub fn depth(&self) -> u16 {
        self.depth
    }

    /// The request of a tag that was fetched and not answered. Of another tag it is any value.
    #[must_use]
    pub fn descriptor(&self, tag: u16) -> Descriptor {
        if tag >= self.depth {
            return Descriptor::default();
        }
        let at = self.memory + usize::from(tag) * Descriptor::BYTES;
        let word = |offset: usize| {
            // SAFETY: the mapping has `depth` descriptors of 24 bytes, is aligned to a page, and exists as long as this
            // value; any bytes are a valid number. The read is volatile because the kernel writes the memory.
            unsafe { with_exposed_provenance::<u32>(at + offset).read_volatile() }
        };
        let (operation, sectors) = (word(0), word(4));
        let sector = if cfg!(target_endian = "little") {
            u64::from(word(12)) << 32 | u64::from(word(8))
        } else {
            u64::from(word(8)) << 32 | u64::from(word(12))
        };
        Descriptor { operation: operation as u8, flags: operation & !0xff, sectors, sector }
    }

    /// Copies data of a write, from byte `at` of the request on.
    ///
    /// # Errors
    /// The kernel's; EIO if the request has less data.
    pub fn take(&self, tag: u16, at: u64, into: &mut [u8]) -> Result<(), Errno> {
        let mut done = 0;
        while done < into.len() {
            let place = data_at(self.queue, tag, at + done as u64);
            match rustix::io::pread(&*self.device.0, &mut into[done..], place) {
                Ok(0) => return Err(Errno::EIO),
                Ok(n) => done += n,
                Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(from_sys(errno)),
            }
        }
        Ok(())
    }

    /// Copies data for a read, from byte `at` of the request on.
    ///
    /// # Errors
    /// The kernel's; EIO if the request asks for less.
    pub fn give(&self, tag: u16, at: u64, data: &[u8]) -> Result<(), Errno> {
        let mut done = 0;
        while done < data.len() {
            let place = data_at(self.queue, tag, at + done as u64);
            match rustix::io::pwrite(&*self.device.0, &data[done..], place) {
                Ok(0) => return Err(Errno::EIO),
                Ok(n) => done += n,
                Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(from_sys(errno)),
            }
        }
        Ok(())
    }
}

impl Drop for CharacterQueue {
    fn drop(&mut self) {
        let memory = with_exposed_provenance::<c_void>(self.memory).cast_mut();
        // SAFETY: the mapping was made by `queue` with this length, and only this value reads it.
        let _ = unsafe { munmap(memory, self.bytes) };
    }
}
