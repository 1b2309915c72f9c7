// SPDX-License-Identifier: MIT OR Apache-2.0
//! The mounted file system: one file, alone or in a directory. The only module that uses `fuser`.
//!
//! Purpose: replies to the kernel. The reader thread replies to requests about names and attributes. Reads, writes,
//! zeroings and flushes go to the volume, and the worker that completes one replies: a reader thread never waits for a
//! device.
//!
//! Invariants: each request gets one reply, also when the gate is closed (EIO) and when the volume drops the request
//! (fuser then replies EIO). The file's size never changes.
//!
//! Every open file uses direct I/O. Without a page cache above the volume, clients of other doors see the file's
//! writes, and data is not held in memory twice. The requests of a loop device with direct I/O are passed on unchanged,
//! many at a time. Writes run in parallel. Shared mappings work on kernels that allow them with direct I/O (6.6 and
//! newer).
//!
//! Why not the kernel's write-back cache: an acknowledged write would exist only in memory.

use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use fuser::{
    AccessFlags, BsdFileFlags, Config, Errno, FileAttr, FileHandle, FileType, Filesystem,
    FopenFlags, Generation, INodeNo, InitFlags, KernelConfig, LockOwner, Notifier, OpenFlags,
    ReplyAttr, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyLseek, ReplyOpen,
    ReplyStatfs, ReplyWrite, Request, Session, SessionACL, TimeOrNow, WriteFlags,
};
use larder_core::request;
use larder_volume::Seek;
use rustix::fs::{FallocateFlags, OFlags};

use super::bytes::Bytes;
use super::gate::{Gate, Ticket};
use super::mount::MOST_REQUEST;

/// How long the kernel may cache attributes and names. They never change; the time is short so that users notice soon
/// when the server is gone.
const VALID: Duration = Duration::from_secs(1);
/// Asynchronous requests that the kernel sends at a time: the queue depth of a loop device.
const MOST_BACKGROUND: u16 = 128;
/// Block size in replies, and the granularity of a loop device's discards.
const BLOCK: u32 = 4096;

/// The kernel's numbers of the two kinds of seek.
const SEEK_DATA: i32 = 3;
const SEEK_HOLE: i32 = 4;

/// The file system.
pub(super) struct Files {
    bytes: Bytes,
    gate: Gate,
    /// The file's name in the directory; `None` if the file is the root.
    name: Option<OsString>,
    /// Changes are refused. The kernel refuses them too, until root mounts it again.
    read_only: bool,
    started: SystemTime,
    uid: u32,
    gid: u32,
}

/// Serves the requests of the descriptor on `threads` threads until it is unmounted.
///
/// # Errors
/// The FUSE handshake with the kernel fails, or a thread cannot be started.
pub(super) fn serve(
    files: Files,
    device: OwnedFd,
    threads: usize,
) -> std::io::Result<JoinHandle<()>> {
    let gate = files.gate.clone();
    Ok(serve_session(files, device, threads, move || gate.is_ending())?.0)
}

/// Serves any file system; `ends` returns whether an unmount is expected. Also returns a handle that sends
/// notifications to the kernel.
pub fn serve_session(
    files: impl Filesystem,
    device: OwnedFd,
    threads: usize,
    ends: impl Fn() -> bool + Send + 'static,
) -> std::io::Result<(JoinHandle<()>, Notifier)> {
    let mut config = Config::default();
    config.n_threads = Some(threads);
    // Cloning the descriptor needs permission to open the device.
    config.clone_fd = std::fs::File::options().read(true).write(true).open("/dev/fuse").is_ok();
    // The kernel checks access by the mount's options. A loop device's requests come from a kernel thread of root.
    let session = Session::from_fd(files, device, SessionACL::All, config)?;
    let notifier = session.notifier();
    let thread = std::thread::Builder::new().name("larder-fuse".to_owned());
    let thread = thread.spawn(move || {
        // The reader threads are its children and inherit the flag.
        larder_io::process::mark_io_thread();
        match session.run() {
            Err(e) => tracing::error!("fuse: reading requests ended: {e}"),
            Ok(()) if ends() => {}
            Ok(()) => tracing::warn!(
                "fuse: another process unmounted the file system; it is no longer served"
            ),
        }
    })?;
    Ok((thread, notifier))
}

impl Files {
    /// The volume as the file `name` in a directory, or as the root itself.
    pub fn new(bytes: Bytes, gate: Gate, name: Option<OsString>, read_only: bool) -> Self {
        let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
        let started = SystemTime::now();
        Self { bytes, gate, name, read_only, started, uid: uid.as_raw(), gid: gid.as_raw() }
    }

    /// The inode of the volume's file.
    fn file(&self) -> INodeNo {
        if self.name.is_some() { INodeNo(2) } else { INodeNo::ROOT }
    }

    fn attributes(&self, ino: INodeNo) -> Option<FileAttr> {
        let (kind, perm, size) = match ino {
            ino if ino == self.file() => (FileType::RegularFile, 0o600, self.bytes.size()),
            INodeNo::ROOT => (FileType::Directory, 0o700, 0),
            _ => return None,
        };
        let (atime, nlink) = (self.started, if kind == FileType::Directory { 2 } else { 1 });
        Some(FileAttr {
            ino,
            size,
            blocks: size / 512,
            atime,
            mtime: atime,
            ctime: atime,
            crtime: atime,
            kind,
            perm,
            nlink,
            uid: self.uid,
            gid: self.gid,
            rdev: 0,
            blksize: BLOCK,
            flags: 0,
        })
    }

    /// Admits a request to the file through the gate, or returns why not.
    fn enter(&self, ino: INodeNo, bytes: u64) -> Result<Ticket, Errno> {
        if ino != self.file() {
            return Err(Errno::EISDIR);
        }
        self.gate.enter(bytes).ok_or(Errno::EIO)
    }

    /// As [`enter`](Self::enter), for a change.
    fn enter_to_change(&self, ino: INodeNo, bytes: u64) -> Result<Ticket, Errno> {
        if self.read_only { Err(Errno::EROFS) } else { self.enter(ino, bytes) }
    }
}

/// The kernel's error for a request error; ESHUTDOWN has a meaning only between servers and becomes EIO.
fn errno(error: request::Errno) -> Errno {
    match error {
        request::Errno::ESHUTDOWN => Errno::EIO,
        request::Errno(number) => Errno::from_i32(number),
    }
}

/// Replies to a request whose reply has no data.
fn answer(reply: ReplyEmpty, result: Result<(), request::Errno>) {
    match result {
        Ok(()) => reply.ok(),
        Err(e) => reply.error(errno(e)),
    }
}

impl Filesystem for Files {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        // A kernel without a capability works without it.
        let _ = config.set_max_write(MOST_REQUEST);
        let _ = config.set_max_background(MOST_BACKGROUND);
        let _ = config.set_congestion_threshold(MOST_BACKGROUND);
        let _ = config.add_capabilities(InitFlags::FUSE_ASYNC_DIO);
        let _ = config.add_capabilities(InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP);
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let found = parent == INodeNo::ROOT && self.name.as_deref() == Some(name);
        match self.attributes(self.file()).filter(|_| found) {
            Some(attributes) => reply.entry(&VALID, &attributes, Generation(0)),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.attributes(ino) {
            Some(attributes) => reply.attr(&VALID, &attributes),
            None => reply.error(Errno::ENOENT),
        }
    }

    /// Setting times succeeds without effect; size, owner and permissions cannot be changed.
    fn setattr(
        &self,
        _: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        _: Option<TimeOrNow>,
        _: Option<TimeOrNow>,
        _: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let Some(attributes) = self.attributes(ino) else { return reply.error(Errno::ENOENT) };
        let resized = size.is_some_and(|size| size != attributes.size);
        if resized || mode.is_some() || uid.is_some() || gid.is_some() {
            return reply.error(Errno::EPERM);
        }
        reply.attr(&VALID, &attributes);
    }

    fn open(&self, _: &Request, ino: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        if ino != self.file() {
            return reply.error(Errno::EISDIR);
        }
        let flags = FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES;
        reply.opened(FileHandle(0), flags);
    }

    fn read(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let range = self.bytes.within(offset, u64::from(size));
        if range.is_empty() {
            return reply.data(&[]);
        }
        let ticket = match self.enter(ino, range.end - range.start) {
            Ok(ticket) => ticket,
            Err(e) => return reply.error(e),
        };
        self.bytes.read(range, move |result| {
            match result {
                Ok(data) => data.with(|data| reply.data(data)),
                Err(e) => reply.error(errno(e)),
            }
            drop(ticket);
        });
    }

    fn write(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        flags: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let range = self.bytes.within(offset, data.len() as u64);
        let written = range.end - range.start;
        if written == 0 {
            let full = !data.is_empty();
            return if full { reply.error(Errno::ENOSPC) } else { reply.written(0) };
        }
        let ticket = match self.enter_to_change(ino, written) {
            Ok(ticket) => ticket,
            Err(e) => return reply.error(e),
        };
        // For a file opened with O_DSYNC the kernel sends no fsync after a direct write.
        let fua = OFlags::from_bits_retain(flags.0 as u32).contains(OFlags::DSYNC);
        let data = data.get(..written as usize).unwrap_or_default();
        self.bytes.write(offset, data, fua, move |result| {
            match result {
                Ok(()) => reply.written(written as u32),
                Err(e) => reply.error(errno(e)),
            }
            drop(ticket);
        });
    }

    /// A file is closed. Nothing is buffered here, so there is nothing to write.
    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn fsync(&self, _: &Request, ino: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        match self.enter(ino, 0) {
            Ok(ticket) => self.bytes.flush(move |result| {
                answer(reply, result);
                drop(ticket);
            }),
            Err(e) => reply.error(e),
        }
    }

    /// Punched and zeroed ranges read as zeroes; space is always allocated.
    fn fallocate(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let mode = FallocateFlags::from_bits_retain(mode as u32);
        let may_unmap = mode.contains(FallocateFlags::PUNCH_HOLE);
        let zeroes = may_unmap || mode.contains(FallocateFlags::ZERO_RANGE);
        let known =
            FallocateFlags::PUNCH_HOLE | FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE;
        if !known.contains(mode) {
            return reply.error(Errno::EOPNOTSUPP);
        }
        let grows = offset.saturating_add(length) > self.bytes.size();
        if grows && !mode.contains(FallocateFlags::KEEP_SIZE) {
            return reply.error(Errno::ENOSPC);
        }
        let range = self.bytes.within(offset, length);
        if !zeroes || range.is_empty() {
            return reply.ok();
        }
        match self.enter_to_change(ino, 0) {
            Ok(ticket) => self.bytes.zero(range, may_unmap, move |result| {
                answer(reply, result);
                drop(ticket);
            }),
            Err(e) => reply.error(e),
        }
    }

    /// Finds data and holes; the kernel handles other kinds of seek itself.
    fn lseek(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        let what = match whence {
            SEEK_DATA => Seek::Data,
            SEEK_HOLE => Seek::Hole,
            _ => return reply.error(Errno::EINVAL),
        };
        let from = u64::try_from(offset).ok().filter(|from| *from < self.bytes.size());
        let Some(from) = from else { return reply.error(Errno::ENXIO) };
        match self.enter(ino, 0) {
            Ok(ticket) => self.bytes.seek(from, what, move |found| {
                match found.and_then(|at| i64::try_from(at).ok()) {
                    Some(at) => reply.offset(at),
                    None => reply.error(Errno::ENXIO),
                }
                drop(ticket);
            }),
            Err(e) => reply.error(e),
        }
    }

    fn readdir(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let Some(name) = self.name.as_deref().filter(|_| ino == INodeNo::ROOT) else {
            return reply.error(Errno::ENOTDIR);
        };
        let entries = [
            (INodeNo::ROOT, FileType::Directory, OsStr::new(".")),
            (INodeNo::ROOT, FileType::Directory, OsStr::new("..")),
            (self.file(), FileType::RegularFile, name),
        ];
        for (next, (ino, kind, name)) in (1..).zip(entries).skip(offset as usize) {
            if reply.add(ino, next, kind, name) {
                break;
            }
        }
        reply.ok();
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        reply.statfs(self.bytes.size() / u64::from(BLOCK), 0, 0, 1, 0, BLOCK, 255, BLOCK);
    }

    /// The kernel has already checked the permissions.
    fn access(&self, _: &Request, _: INodeNo, _: AccessFlags, reply: ReplyEmpty) {
        reply.ok();
    }
}
