// SPDX-License-Identifier: MIT OR Apache-2.0
//! The mounted file system: what the kernel asks is done below, and reads, writes and flushes wait for the disk's model.
//!
//! Invariants: every request is answered once; a read returns what is below at the time at which it was asked. No page
//! cache lies above (direct I/O for every open), so what is read here reaches the disk, or did just before (`ahead.rs`,
//! `wanted.rs`). A reader thread waits for the files below (memory, mostly) and never for the model, so the model sees as
//! many requests at a time as there are.
//!
//! Attributes and names are believed for an hour: a change of the directory below that bypasses the mount is not noticed.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use fuser::{
    BsdFileFlags, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation,
    INodeNo, InitFlags, KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate,
    ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs, ReplyWrite, Request,
    TimeOrNow, WriteFlags,
};
use larder_front::fuse::mount::MOST_REQUEST;
use rustix::fs::{AtFlags, FallocateFlags, OFlags, fallocate, fstatvfs};
use rustix::io::Errno as Below;

use super::ahead::Plan;
use super::counts::STATS;
use super::disk::{Disk, Way};
use super::names::{self, Change, Entry, Made};
use super::nodes::{Node, Nodes, Reader};
use super::options::SlowDirOptions;
use super::wanted::Kernel;

const VALID: Duration = Duration::from_secs(3600);
const NOW: Duration = Duration::ZERO;
/// Asynchronous requests that the kernel sends at a time.
const MOST_BACKGROUND: u16 = 256;
/// The number of the file with the counters.
const STATS_INO: INodeNo = INodeNo(2);
/// Flags in the kernel's `open` that ask for a new file.
const EXCLUSIVE: i32 = OFlags::EXCL.bits() as i32;

/// See the module.
pub(super) struct Files {
    pub nodes: Arc<Nodes>,
    pub disk: Disk,
    /// What the disk is.
    pub device: String,
    /// Flush the files below too.
    pub sync: bool,
    /// Bytes that are read ahead.
    pub ahead: u64,
    pub kernel: Kernel,
    listings: Mutex<HashMap<u64, Arc<Vec<Entry>>>>,
    next_listing: AtomicU64,
}

fn errno(error: Below) -> Errno {
    Errno::from_i32(error.raw_os_error())
}

fn answer(reply: ReplyEmpty, result: Result<(), Below>) {
    match result {
        Ok(()) => reply.ok(),
        Err(e) => reply.error(errno(e)),
    }
}

fn direct() -> FopenFlags {
    FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES
}

impl Files {
    pub fn new(nodes: Arc<Nodes>, disk: Disk, kernel: Kernel, options: &SlowDirOptions) -> Self {
        let (listings, next_listing) = (Mutex::default(), AtomicU64::new(1));
        let (device, sync, ahead) = (options.device.clone(), options.sync, options.ahead_bytes);
        Self { nodes, disk, device, sync, ahead, kernel, listings, next_listing }
    }

    fn stats(&self) -> String {
        format!("{}\n", self.nodes.groups.json(&self.device))
    }

    fn stats_attributes(&self) -> FileAttr {
        let now = SystemTime::now();
        FileAttr {
            ino: STATS_INO,
            size: self.stats().len() as u64,
            blocks: 0,
            atime: now,
            mtime: now,
            ctime: now,
            crtime: now,
            kind: FileType::RegularFile,
            perm: 0o444,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        }
    }

    fn listings(&self) -> MutexGuard<'_, HashMap<u64, Arc<Vec<Entry>>>> {
        self.listings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn entry(&self, node: Result<Arc<Node>, Below>, reply: ReplyEntry) {
        match node.and_then(|node| node.attributes()) {
            Ok(attributes) => reply.entry(&VALID, &attributes, Generation(0)),
            Err(e) => reply.error(errno(e)),
        }
    }

    fn opened(&self, ino: INodeNo, write: bool) -> Result<(), Below> {
        let node = self.nodes.get(ino)?;
        let size = node.file(write)?.metadata().map_or(0, |meta| meta.len());
        self.disk.opened(node.key, size);
        Ok(())
    }

    /// Flushes: below, if that is wanted, on a thread of its own, and the model.
    fn make_durable(&self, ino: INodeNo, data_only: bool, reply: ReplyEmpty) {
        let node = match self.nodes.get(ino) {
            Ok(node) => node,
            Err(e) => return reply.error(errno(e)),
        };
        if let Some(counts) = &node.counts {
            counts.flushed();
        }
        let sync = self.sync;
        self.disk.flush(move || match sync {
            true => aside(move || answer(reply, node.sync(data_only))),
            false => reply.ok(),
        });
    }
}

/// Runs work that may wait for the files below on a thread of its own. Without a thread the reply is dropped, which
/// answers EIO.
fn aside(work: impl FnOnce() + Send + 'static) {
    let _ = std::thread::Builder::new().name("larder-sync".to_owned()).spawn(work);
}

impl Filesystem for Files {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        // A kernel that lacks an option works without it.
        let _ = config.set_max_write(MOST_REQUEST);
        let _ = config.set_max_background(MOST_BACKGROUND);
        let _ = config.set_congestion_threshold(MOST_BACKGROUND);
        let _ = config.add_capabilities(InitFlags::FUSE_ASYNC_DIO);
        let _ = config.add_capabilities(InitFlags::FUSE_PARALLEL_DIROPS);
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        if parent == INodeNo::ROOT && name == STATS {
            return reply.entry(&NOW, &self.stats_attributes(), Generation(0));
        }
        let found = self.nodes.get(parent).and_then(|parent| self.nodes.lookup(&parent, name));
        self.entry(found, reply);
    }

    fn forget(&self, _: &Request, ino: INodeNo, times: u64) {
        if let Some(node) = self.nodes.forget(ino, times)
            && node.stat().is_ok_and(|stat| stat.st_nlink == 0)
        {
            self.disk.gone(node.key);
        }
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        if ino == STATS_INO {
            return reply.attr(&NOW, &self.stats_attributes());
        }
        match self.nodes.get(ino).and_then(|node| node.attributes()) {
            Ok(attributes) => reply.attr(&VALID, &attributes),
            Err(e) => reply.error(errno(e)),
        }
    }

    fn setattr(
        &self,
        _: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        accessed: Option<TimeOrNow>,
        modified: Option<TimeOrNow>,
        _: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let change = Change { mode, uid, gid, size, accessed, modified };
        let changed = self.nodes.get(ino).and_then(|node| {
            names::change(&node, &change)?;
            node.attributes()
        });
        match changed {
            Ok(attributes) => reply.attr(&VALID, &attributes),
            Err(e) => reply.error(errno(e)),
        }
    }

    fn readlink(&self, _: &Request, ino: INodeNo, reply: ReplyData) {
        match self.nodes.get(ino).and_then(|node| names::target(&node)) {
            Ok(target) => reply.data(&target),
            Err(e) => reply.error(errno(e)),
        }
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _: u32,
        device: u32,
        reply: ReplyEntry,
    ) {
        let kind = rustix::fs::FileType::from_raw_mode(mode);
        let what = Made::Special { device, kind };
        self.entry(names::make(&self.nodes, (parent, name), &what, mode, request), reply);
    }

    fn mkdir(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _: u32,
        reply: ReplyEntry,
    ) {
        self.entry(
            names::make(&self.nodes, (parent, name), &Made::Directory, mode, request),
            reply,
        );
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        answer(reply, names::remove(&self.nodes, (parent, name), AtFlags::empty()));
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        answer(reply, names::remove(&self.nodes, (parent, name), AtFlags::REMOVEDIR));
    }

    fn symlink(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        self.entry(
            names::make(&self.nodes, (parent, name), &Made::Link(target), 0, request),
            reply,
        );
    }

    fn rename(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let (from, to) = ((parent, name), (new_parent, new_name));
        answer(reply, names::rename(&self.nodes, from, to, flags.bits()));
    }

    fn link(&self, _: &Request, ino: INodeNo, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        self.entry(names::link(&self.nodes, ino, (parent, name)), reply);
    }

    fn open(&self, _: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let write = flags.0 & OFlags::ACCMODE.bits() as i32 != OFlags::RDONLY.bits() as i32;
        let opened = match ino {
            STATS_INO if write => Err(Below::ACCESS),
            STATS_INO => Ok(()),
            _ => self.opened(ino, write),
        };
        match opened {
            Ok(()) => reply.opened(FileHandle(0), direct()),
            Err(e) => reply.error(errno(e)),
        }
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let what = Made::File { exclusive: flags & EXCLUSIVE != 0 };
        let made = names::make(&self.nodes, (parent, name), &what, mode, request);
        let created = made.and_then(|node| {
            let opened = node.file(true).map(drop);
            opened
                .and_then(|()| node.attributes())
                .inspect_err(|_| self.forget(request, node.ino, 1))
        });
        match created {
            Ok(attributes) => {
                reply.created(&VALID, &attributes, Generation(0), FileHandle(0), direct());
            }
            Err(e) => reply.error(errno(e)),
        }
    }

    fn read(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        if ino == STATS_INO {
            let text = self.stats();
            let from = usize::try_from(offset).unwrap_or(usize::MAX).min(text.len());
            let to = from.saturating_add(size as usize).min(text.len());
            return reply.data(text.as_bytes().get(from..to).unwrap_or_default());
        }
        let read = self.nodes.get(ino).and_then(|node| {
            let data = node.read(offset, size as usize)?;
            Ok((node, data))
        });
        let (node, data) = match read {
            Ok((_, data)) if data.is_empty() => return reply.data(&[]),
            Ok(read) => read,
            Err(e) => return reply.error(errno(e)),
        };
        let bytes = data.len() as u64;
        let reader = owner.map_or(Reader::PageCache(&self.kernel), |_| Reader::Process);
        match node.plan((offset, bytes), self.ahead, reader) {
            Plan::Ahead(fetch) => fetch.wait(move || reply.data(&data)),
            Plan::Wanted(fetch, part) => {
                let kernel = self.kernel.clone();
                fetch.wait(move || {
                    reply.data(&data);
                    kernel.used(ino, part);
                });
            }
            Plan::Read(len, fetch) => {
                self.disk.transfer(node.key, Way::Read, offset, len, move || {
                    if let Some(counts) = &node.counts {
                        counts.read(len);
                    }
                    reply.data(&data);
                    fetch.finish();
                });
            }
        }
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
        let written = self.nodes.get(ino).and_then(|node| {
            node.write(offset, data)?;
            Ok(node)
        });
        let node = match written {
            Ok(node) => node,
            Err(e) => return reply.error(errno(e)),
        };
        let fua = OFlags::from_bits_retain(flags.0 as u32).contains(OFlags::DSYNC);
        let (bytes, key, sync) = (data.len() as u64, node.key, self.sync && fua);
        self.disk.transfer(key, Way::Write { fua }, offset, bytes, move || {
            if let Some(counts) = &node.counts {
                counts.written(bytes);
            }
            let end = move |done| match done {
                Ok(()) => reply.written(bytes as u32),
                Err(e) => reply.error(errno(e)),
            };
            if sync { aside(move || end(node.sync(true))) } else { end(Ok(())) }
        });
    }

    /// A file is closed. Nothing is kept here that would have to go out.
    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn fsync(&self, _: &Request, ino: INodeNo, _: FileHandle, data_only: bool, reply: ReplyEmpty) {
        self.make_durable(ino, data_only, reply);
    }

    fn fsyncdir(&self, _: &Request, ino: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        self.make_durable(ino, false, reply);
    }

    /// Space costs nothing on the modelled disk: a file system does it by its map.
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
        let node = self.nodes.get(ino);
        answer(reply, node.and_then(|node| fallocate(node.file(true)?, mode, offset, length)));
    }

    fn opendir(&self, _: &Request, ino: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        match self.nodes.get(ino).and_then(|node| names::entries(&node)) {
            Ok(entries) => {
                let handle = self.next_listing.fetch_add(1, Relaxed);
                self.listings().insert(handle, Arc::new(entries));
                reply.opened(FileHandle(handle), FopenFlags::empty());
            }
            Err(e) => reply.error(errno(e)),
        }
    }

    fn readdir(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let Some(entries) = self.listings().get(&handle.0).map(Arc::clone) else {
            return reply.error(Errno::EBADF);
        };
        for (next, entry) in (1..).zip(entries.iter()).skip(offset as usize) {
            if reply.add(entry.ino, next, entry.kind, entry.name()) {
                break;
            }
        }
        reply.ok();
    }

    fn releasedir(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        reply: ReplyEmpty,
    ) {
        self.listings().remove(&handle.0);
        reply.ok();
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        match self.nodes.get(INodeNo::ROOT).and_then(|top| fstatvfs(top.fd())) {
            Ok(s) => reply.statfs(
                s.f_blocks,
                s.f_bfree,
                s.f_bavail,
                s.f_files,
                s.f_ffree,
                s.f_bsize as u32,
                s.f_namemax as u32,
                s.f_frsize as u32,
            ),
            Err(e) => reply.error(errno(e)),
        }
    }
}
