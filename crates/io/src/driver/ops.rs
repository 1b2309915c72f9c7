// SPDX-License-Identifier: MIT OR Apache-2.0
//! Operations on files and block devices through the ring, step by step.
//!
//! Purpose: an operation may need several entries: a short transfer continues, an unsupported way to empty a range is
//! followed by the next, and a sync may follow at the end.
//!
//! Invariants: one entry of an operation is in the kernel at a time, so the table's entry and its buffer are not
//! accessed between `submit` and `advance`. A Zero succeeds only if the range reads as zeroes; a Trim is a hint and may
//! succeed without effect.
//!
//! Why fallocate for block devices too: it runs through the ring, whereas the ioctls would block the thread.

use std::os::fd::AsRawFd;

use io_uring::squeue::Entry;
use io_uring::{opcode, types};
use larder_core::buf::Buf;
use larder_core::exec::{Io, IoKind};
use larder_core::request::Errno;
use rustix::io::ReadWriteFlags;

use super::ring::{Ring, Tag};
use crate::device::file::{FileBase, Way, ZERO_CHUNK};
use crate::device::flushes::{End, Flushes};
use crate::errno::{ECANCELED, from_cqe, is_unsupported};

/// `BLOCK_URING_CMD_DISCARD`, Linux 6.12.
const DISCARD: u32 = 0x12 << 8;
/// How often an interrupted step is retried.
const MAX_TRIES: u8 = 100;
/// The longest transfer of one entry.
const MAX_ENTRY_BYTES: u64 = 1 << 30;

/// What the kernel does for an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Reads or writes.
    Transfer,
    /// Empties the range.
    Empty(Way),
    /// Makes it durable.
    Sync,
}

/// An operation that has not ended.
pub(super) struct Op {
    pub(super) owner: u32,
    pub(super) io: Io,
    /// Index of the attached device.
    pub(super) device: u32,
    /// Number of closed gates; see the module `late`.
    pub(super) gates: u8,
    /// The first error so far.
    pub(super) result: Result<(), Errno>,
    step: Step,
    progress: u64,
    tries: u8,
    /// It has the turn of its device, see `device/flushes.rs`.
    pub(super) syncing: bool,
}

impl Op {
    pub(super) fn new(owner: u32, io: Io, device: u32) -> Self {
        let step = Step::Transfer;
        let (gates, progress, tries, syncing) = (1, 0, 0, false);
        Self { owner, io, device, gates, result: Ok(()), step, progress, tries, syncing }
    }

    /// Sets the first step; false if no way is supported.
    pub(super) fn begin(&mut self, file: &FileBase) -> bool {
        let step = match self.io.kind {
            IoKind::Read | IoKind::Write { .. } => Some(Step::Transfer),
            IoKind::Flush => Some(Step::Sync),
            kind => file.ways(kind).next().map(Step::Empty),
        };
        self.step = step.unwrap_or(Step::Sync);
        step.is_some()
    }

    /// Whether the next step needs a turn that it does not have: a flush, or a FUA write through the page cache.
    pub(super) fn wants_turn(&self, file: &FileBase) -> bool {
        let needs = match self.step {
            Step::Sync => true,
            Step::Transfer => self.fua() && !file.direct,
            Step::Empty(_) => false,
        };
        needs && !self.syncing
    }

    /// Whether another flush that begins later covers the operation.
    pub(super) fn is_sync(&self) -> bool {
        self.step == Step::Sync
    }

    /// Ends its turn, if it has one.
    pub(super) fn leave(&mut self, flushes: &Flushes, result: Result<(), Errno>) {
        if std::mem::take(&mut self.syncing) {
            flushes.leave(match result {
                Ok(()) if self.is_sync() => End::Covers,
                Ok(()) | Err(ECANCELED) => End::Other,
                Err(_) => End::Failed,
            });
        }
    }

    pub(super) fn writes_zeroes(&self) -> bool {
        self.step == Step::Empty(Way::WriteZeroes)
    }

    fn fua(&self) -> bool {
        match self.io.kind {
            IoKind::Write { fua } | IoKind::Trim { fua } | IoKind::Zero { fua, .. } => fua,
            IoKind::Read | IoKind::Flush => false,
        }
    }

    /// Pushes the current step to the ring. `zeroes` holds [`ZERO_CHUNK`] zero bytes for writing; it belongs to the
    /// driver and stays valid until this operation ends.
    #[allow(unsafe_code)]
    pub(super) fn submit(&mut self, ring: &mut Ring, file: &FileBase, key: usize, zeroes: &Buf) {
        let fd = types::Fd(file.fd.as_raw_fd());
        let offset = self.io.offset + self.progress;
        let left = self.io.len - self.progress.min(self.io.len);
        let entry = match self.step {
            Step::Transfer => self.transfer(fd, offset, left),
            Step::Sync => opcode::Fsync::new(fd).flags(types::FsyncFlags::DATASYNC).build(),
            Step::Empty(Way::WriteZeroes) => {
                let len = left.min(ZERO_CHUNK) as u32;
                opcode::Write::new(fd, zeroes.as_ptr(), len).offset(offset).build()
            }
            Step::Empty(Way::Discard) => {
                let mut cmd = [0; 16];
                cmd[..8].copy_from_slice(&left.to_ne_bytes());
                opcode::UringCmd16::new(fd, DISCARD).addr(Some(offset)).cmd(cmd).build()
            }
            Step::Empty(Way::Nothing) => opcode::Nop::new().build(),
            Step::Empty(way) => {
                let mode = way.fallocate_flags().map_or(0, |flags| flags.bits());
                opcode::Fallocate::new(fd, left).offset(offset).mode(mode as i32).build()
            }
        };
        // SAFETY: a transfer points into the buffer of this operation, which stays in the driver's table, its pages
        // unmoved, until `advance` gets the completion; `check` has verified that the range is inside. Zeroes are only
        // read, and stay valid until the operation ends.
        unsafe { ring.push(entry.user_data(Tag::Op.with(key))) };
    }

    fn transfer(&mut self, fd: types::Fd, offset: u64, left: u64) -> Entry {
        let start = self.io.at + self.progress as usize;
        let len = left.min(MAX_ENTRY_BYTES) as u32;
        // A checked operation has a buffer; without one the kernel rejects the empty range.
        let memory = match &mut self.io.buf {
            Some(buf) => &mut buf[start..start + len as usize],
            None => &mut [],
        };
        let len = memory.len() as u32;
        match self.io.kind {
            IoKind::Write { fua } => {
                let flags = if fua { ReadWriteFlags::DSYNC.bits() } else { 0 };
                let write = opcode::Write::new(fd, memory.as_ptr(), len);
                write.offset(offset).rw_flags(flags as i32).build()
            }
            _ => opcode::Read::new(fd, memory.as_mut_ptr(), len).offset(offset).build(),
        }
    }

    /// Takes the result of the current step. `None`: the caller submits another step, which cannot happen with
    /// `closing`.
    pub(super) fn advance(
        &mut self,
        file: &FileBase,
        result: i32,
        block: u64,
        closing: bool,
    ) -> Option<Result<(), Errno>> {
        let end = match from_cqe(result) {
            // EINTR, EAGAIN: the step was neither executed nor rejected.
            Err(Errno(4 | 11)) if self.tries < MAX_TRIES => {
                self.tries += 1;
                None
            }
            Err(errno) => self.refused(file, errno),
            Ok(n) => self.moved_on(n as u64, block),
        };
        if end.is_none() && closing { Some(Err(ECANCELED)) } else { end }
    }

    fn refused(&mut self, file: &FileBase, errno: Errno) -> Option<Result<(), Errno>> {
        let Step::Empty(way) = self.step else { return Some(Err(errno)) };
        // Kernels without the discard command return EINVAL; the range was checked, so it has no other cause.
        let unknown = way == Way::Discard && errno == Errno::EINVAL;
        if !unknown && !is_unsupported(errno) {
            return Some(Err(errno));
        }
        file.set_missing(way);
        match file.ways(self.io.kind).next() {
            Some(next) => {
                self.step = Step::Empty(next);
                None
            }
            None => Some(Err(errno)),
        }
    }

    fn moved_on(&mut self, n: u64, block: u64) -> Option<Result<(), Errno>> {
        let by_bytes = matches!(self.step, Step::Transfer | Step::Empty(Way::WriteZeroes));
        if by_bytes {
            self.progress += n;
            if self.progress < self.io.len {
                // Nothing, or no whole block: the file was truncated while open.
                let cut = n == 0 || !self.progress.is_multiple_of(block);
                return cut.then_some(Err(Errno::EIO));
            }
        }
        let wants_sync = self.fua() && matches!(self.step, Step::Empty(_));
        if wants_sync {
            self.step = Step::Sync;
            return None;
        }
        Some(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use larder_core::exec::{DevId, IoId};

    use super::*;
    use crate::device::Base;
    use crate::{Access, DevSpec, Device, Driver};

    const BYTES: usize = 8 << 20;

    /// Runs one operation, within a time limit.
    fn run(driver: &mut Driver, kind: IoKind, len: usize, buf: Option<Buf>) -> Option<Buf> {
        let io = Io { id: IoId(1), dev: DevId(0), kind, offset: 0, len: len as u64, buf, at: 0 };
        driver.start(0, io);
        for _ in 0..1000 {
            if let Some(done) = driver.next_done() {
                done.result.unwrap();
                return done.buf;
            }
            driver.turn(Some(driver.now() + 20_000_000)).unwrap();
        }
        panic!("the operation did not end")
    }

    #[test]
    fn without_holes_a_zero_writes_zeroes_and_a_trim_does_nothing() {
        let file = tempfile::NamedTempFile::new_in("/tmp").unwrap();
        file.as_file().set_len(BYTES as u64).unwrap();
        let spec = DevSpec::Path(file.path().to_owned());
        let device = Device::open(&spec, Access::ReadWrite).unwrap();
        let Base::File(base) = device.base() else { panic!("a file is a file") };
        for way in [Way::Punch, Way::ZeroRange] {
            base.set_missing(way);
        }
        let mut driver = Driver::new().unwrap();
        driver.attach(DevId(0), device.clone());
        let seven = || Some(Buf::copy_of(&[7; BYTES]));
        let read =
            |driver: &mut Driver| run(driver, IoKind::Read, BYTES, Some(Buf::with_len(BYTES)));
        for may_unmap in [false, true] {
            run(&mut driver, IoKind::Write { fua: false }, BYTES, seven());
            run(&mut driver, IoKind::Trim { fua: true }, BYTES, None);
            assert!(read(&mut driver).unwrap().iter().all(|b| *b == 7));
            // Not a multiple of the chunk.
            let len = 3 * ZERO_CHUNK as usize + 4096;
            run(&mut driver, IoKind::Zero { fua: true, may_unmap }, len, None);
            let back = read(&mut driver).unwrap();
            assert!(back[..len].iter().all(|b| *b == 0) && back[len..].iter().all(|b| *b == 7));
        }
    }

    #[test]
    fn an_unsupported_way_is_remembered_and_the_next_one_used() {
        let file = tempfile::NamedTempFile::new_in("/tmp").unwrap();
        file.as_file().set_len(BYTES as u64).unwrap();
        let spec = DevSpec::Path(file.path().to_owned());
        let device = Device::open(&spec, Access::ReadWrite).unwrap();
        let Base::File(base) = device.base() else { panic!("a file is a file") };
        let kind = IoKind::Zero { fua: true, may_unmap: true };
        let io = Io { id: IoId(1), dev: DevId(0), kind, offset: 0, len: 8192, buf: None, at: 0 };
        let mut op = Op::new(0, io, 0);
        assert!(op.begin(base));
        let unsupported = -Errno::EOPNOTSUPP.0;
        for way in [Way::Punch, Way::ZeroRange] {
            assert_eq!(op.step, Step::Empty(way));
            assert_eq!(op.advance(base, unsupported, 512, false), None);
            assert!(base.is_missing(way));
        }
        assert!(op.writes_zeroes());
        assert_eq!(op.advance(base, 4096, 512, false), None); // half of it
        assert_eq!(op.advance(base, -4, 512, false), None); // interrupted
        assert_eq!(op.advance(base, 4096, 512, false), None);
        assert_eq!(op.step, Step::Sync);
        assert_eq!(op.advance(base, 0, 512, false), Some(Ok(())));
    }
}
