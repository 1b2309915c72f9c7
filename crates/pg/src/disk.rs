// SPDX-License-Identifier: MIT OR Apache-2.0
//! The data directory as the log's origin: where a page goes that leaves flash, or is drained.
//!
//! # Invariants
//! 1. Nothing is written to a file that is being cut or dropped: whoever does that has the latch of its number, and
//!    takes its pages out of the log first; whoever writes a page has the latch too, and looks again.
//! 2. No file grows by this: the log takes changed pages below the end of a file alone.
//! 3. What is written here is the server's to make durable, as what it writes itself is: its checkpoints flush each file
//!    that had writes. Before recovery, and at the end, nobody else would: then a `sync` disk flushes what it wrote.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use larder_core::request::Errno;
use larder_shared::{Member, Origin};
use rustix::fs::{Mode, OFlags};

use crate::area::{Area, Mark};
use crate::names::Number;

/// Files that are kept open.
const OPEN_MOST: usize = 16;

/// See the module.
pub struct Disk {
    /// What is shared.
    pub area: Area,
    /// The data directory.
    pub data: PathBuf,
    /// The server's directory in a tablespace.
    pub version: String,
    /// Blocks of a segment.
    pub segment_blocks: u64,
    /// See invariant 3.
    pub sync: bool,
    /// The newest last.
    pub open: RefCell<Vec<(Number, u64, OwnedFd)>>,
    /// Segments that were written and are to be flushed.
    pub written: RefCell<BTreeSet<PathBuf>>,
}

fn errno(error: rustix::io::Errno) -> Errno {
    Errno(error.raw_os_error())
}

impl Disk {
    fn path(&self, number: Number, segment: u64) -> Option<PathBuf> {
        let fork = self.area.names().fork_of(number)?;
        Some(self.data.join(fork.path(segment, &self.version)))
    }

    /// Runs something with a segment's file, opened or kept open; nothing if there is no such file.
    fn with_file(
        &self,
        number: Number,
        segment: u64,
        run: impl FnOnce(&OwnedFd) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let mut open = self.open.borrow_mut();
        let kept = open.iter().position(|(n, s, _)| (*n, *s) == (number, segment));
        let kept = kept.map(|at| open.remove(at).2);
        // A segment may have been made anew under the same number.
        let is_there = |file: &OwnedFd| rustix::fs::fstat(file).is_ok_and(|stat| stat.st_nlink > 0);
        let file = match kept.filter(is_there) {
            Some(file) => file,
            None => {
                let Some(path) = self.path(number, segment) else { return Ok(()) };
                let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
                match rustix::fs::open(&path, flags, Mode::empty()) {
                    Err(rustix::io::Errno::NOENT) => return Ok(()),
                    other => other.map_err(errno)?,
                }
            }
        };
        let done = run(&file);
        if open.len() == OPEN_MOST {
            open.remove(0);
        }
        open.push((number, segment, file));
        done
    }
}

fn write_all(file: &OwnedFd, mut bytes: &[u8], mut at: u64) -> Result<(), Errno> {
    let size = rustix::fs::fstat(file).map_err(errno)?.st_size as u64;
    if at + bytes.len() as u64 > size {
        return Err(Errno::EIO); // invariant 2
    }
    while !bytes.is_empty() {
        match rustix::io::pwrite(file, bytes, at) {
            Ok(0) => return Err(Errno::EIO),
            Ok(written) => {
                bytes = &bytes[written..];
                at += written as u64;
            }
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(errno(error)),
        }
    }
    Ok(())
}

impl Origin for Disk {
    fn read(&self, _: u64, _: &mut [u8]) -> Result<(), Errno> {
        Err(Errno::EIO) // the server reads its files itself
    }

    fn write(&self, page: u64, bytes: &[u8], member: &Member) -> Result<(), Errno> {
        let (number, block) = Number::of_page(page);
        let segment = block / self.segment_blocks;
        let _latch = member.latch(number.latch());
        if self.area.names().fork_of(number).is_none() || !member.log_has(page) {
            return Ok(());
        }
        let at = block % self.segment_blocks * bytes.len() as u64;
        self.with_file(number, segment, |file| write_all(file, bytes, at))?;
        self.area.count(Mark::WrittenBack);
        if self.sync
            && let Some(path) = self.path(number, segment)
        {
            self.written.borrow_mut().insert(path);
        }
        Ok(())
    }

    fn flush(&self) -> Result<(), Errno> {
        let written = std::mem::take(&mut *self.written.borrow_mut());
        for path in written {
            match rustix::fs::open(&path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()) {
                Err(rustix::io::Errno::NOENT) => {}
                file => rustix::fs::fsync(file.map_err(errno)?).map_err(errno)?,
            }
        }
        Ok(())
    }
}
