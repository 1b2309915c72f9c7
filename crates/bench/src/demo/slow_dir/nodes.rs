// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files and directories that the kernel knows of.
//!
//! Purpose: a node holds a descriptor of what it stands for, so renames and removals change nothing for a process that has
//! it open, and no path is ever put together.
//!
//! Invariants: one node for each file below, however many names it has; it lives until the kernel has forgotten it as
//! often as it received it. A number is never used again. All that have a file open share one descriptor for
//! reading and writing: permissions were checked by the kernel at their open.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io::ErrorKind;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{FileAttr, FileType, INodeNo};
use rustix::fs::{AtFlags, Mode, OFlags, Stat, fstat, openat};
use rustix::io::Errno;

use super::ahead::{Plan, Stream};
use super::counts::{Counts, Groups};
use super::extents::Key;
use super::wanted::{Kernel, Wanted};

/// A file or directory below.
pub(super) struct Node {
    pub ino: INodeNo,
    pub key: Key,
    /// Names it only (O_PATH).
    at: OwnedFd,
    file: OnceLock<File>,
    read_only: OnceLock<File>,
    /// What is below the same entry at the top; none for the top itself.
    pub counts: Option<Arc<Counts>>,
    stream: Mutex<Stream>,
    wanted: Wanted,
}

/// For whom a read is.
pub(super) enum Reader<'a> {
    Process,
    /// For later reads, see `wanted.rs`.
    PageCache(&'a Kernel),
}

impl Node {
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.at.as_fd()
    }

    /// A name of it for calls that take no such descriptor.
    pub fn path(&self) -> String {
        format!("/proc/self/fd/{}", self.at.as_raw_fd())
    }

    pub fn stat(&self) -> Result<Stat, Errno> {
        fstat(&self.at)
    }

    pub fn attributes(&self) -> Result<FileAttr, Errno> {
        Ok(attributes(self.ino, &self.stat()?))
    }

    /// Keeps the descriptor that the file was made with: its permissions may allow no other one for writing.
    pub fn keep(&self, file: OwnedFd) {
        // A concurrent open may have stored one already.
        let _ = self.file.set(file.into());
    }

    /// The file, for reading and, if it is asked for or can be had, writing.
    pub fn file(&self, write: bool) -> Result<&File, Errno> {
        let had = self.file.get();
        if let Some(file) = if write { had } else { had.or_else(|| self.read_only.get()) } {
            return Ok(file);
        }
        let open =
            |flags| openat(rustix::fs::CWD, self.path(), flags | OFlags::CLOEXEC, Mode::empty());
        match open(OFlags::RDWR) {
            Ok(fd) => Ok(self.file.get_or_init(|| fd.into())),
            Err(error) if write => Err(error),
            Err(_) => {
                let fd = open(OFlags::RDONLY)?;
                Ok(self.read_only.get_or_init(|| fd.into()))
            }
        }
    }

    /// So many bytes from there, or those up to the file's end.
    pub fn read(&self, offset: u64, bytes: usize) -> Result<Vec<u8>, Errno> {
        let file = self.file(false)?;
        let (mut data, mut done) = (vec![0; bytes], 0);
        while let Some(rest) = data.get_mut(done..).filter(|rest| !rest.is_empty()) {
            match file.read_at(rest, offset + done as u64) {
                Ok(0) => break,
                Ok(more) => done += more,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(errno(&e)),
            }
        }
        data.truncate(done);
        Ok(data)
    }

    /// What a read of so many bytes, which were there, waits for.
    pub fn plan(&self, (offset, bytes): (u64, u64), ahead: u64, reader: Reader<'_>) -> Plan {
        if let Reader::PageCache(kernel) = reader {
            let (fetch, old) = self.wanted.begin(offset, bytes);
            old.into_iter().for_each(|part| kernel.used(self.ino, part));
            return Plan::Read(bytes, fetch);
        }
        if let Some((fetch, part)) = self.wanted.take(offset, bytes) {
            return Plan::Wanted(fetch, part);
        }
        let end = || self.stat().map_or(0, |stat| stat.st_size as u64);
        let mut stream = self.stream.lock().unwrap_or_else(PoisonError::into_inner);
        stream.plan(offset, bytes, ahead, end)
    }

    /// Writes all of it.
    pub fn write(&self, offset: u64, data: &[u8]) -> Result<(), Errno> {
        self.file(true)?.write_all_at(data, offset).map_err(|e| errno(&e))?;
        self.wanted.written(offset, data.len() as u64);
        Ok(())
    }

    /// Flushes the file or directory below.
    pub fn sync(&self, data_only: bool) -> Result<(), Errno> {
        let file = self.file(false)?;
        if data_only { rustix::fs::fdatasync(file) } else { rustix::fs::fsync(file) }
    }
}

fn errno(error: &std::io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

/// The attributes that the kernel receives of a file.
pub(super) fn attributes(ino: INodeNo, stat: &Stat) -> FileAttr {
    let time = |seconds: i64, nanos: u64| {
        let nanos = Duration::from_nanos(nanos);
        match u64::try_from(seconds) {
            Ok(seconds) => UNIX_EPOCH + Duration::from_secs(seconds) + nanos,
            Err(_) => UNIX_EPOCH - Duration::from_secs(seconds.unsigned_abs()) + nanos,
        }
    };
    FileAttr {
        ino,
        size: stat.st_size as u64,
        blocks: stat.st_blocks as u64,
        atime: time(stat.st_atime, stat.st_atime_nsec),
        mtime: time(stat.st_mtime, stat.st_mtime_nsec),
        ctime: time(stat.st_ctime, stat.st_ctime_nsec),
        crtime: SystemTime::UNIX_EPOCH,
        kind: kind(rustix::fs::FileType::from_raw_mode(stat.st_mode)),
        perm: (stat.st_mode & 0o7777) as u16,
        nlink: stat.st_nlink as u32,
        uid: stat.st_uid,
        gid: stat.st_gid,
        rdev: stat.st_rdev as u32,
        blksize: 4096,
        flags: 0,
    }
}

/// The kind of an entry, for the kernel.
pub(super) fn kind(kind: rustix::fs::FileType) -> FileType {
    match kind {
        rustix::fs::FileType::Directory => FileType::Directory,
        rustix::fs::FileType::Symlink => FileType::Symlink,
        rustix::fs::FileType::Fifo => FileType::NamedPipe,
        rustix::fs::FileType::Socket => FileType::Socket,
        rustix::fs::FileType::CharacterDevice => FileType::CharDevice,
        rustix::fs::FileType::BlockDevice => FileType::BlockDevice,
        _ => FileType::RegularFile,
    }
}

struct Known {
    node: Arc<Node>,
    /// How often the kernel received it.
    lookups: u64,
}

#[derive(Default)]
struct Table {
    by_number: HashMap<u64, Known>,
    by_key: HashMap<Key, u64>,
    next: u64,
}

/// All nodes.
pub(super) struct Nodes {
    table: Mutex<Table>,
    pub groups: Groups,
}

impl Nodes {
    /// With a directory as the top.
    pub fn new(top: OwnedFd) -> Result<Self, Errno> {
        let nodes = Self { table: Mutex::default(), groups: Groups::default() };
        // The first two numbers are the top's and that of the file with the counters.
        nodes.table().next = 3;
        let stat = fstat(&top)?;
        let key = (stat.st_dev, stat.st_ino);
        let (file, read_only) = (OnceLock::new(), OnceLock::new());
        let ino = INodeNo::ROOT;
        let node = Arc::new(Node {
            ino,
            key,
            at: top,
            file,
            read_only,
            counts: None,
            stream: Mutex::default(),
            wanted: Wanted::default(),
        });
        nodes.table().by_number.insert(ino.0, Known { node, lookups: 1 });
        nodes.table().by_key.insert(key, ino.0);
        Ok(nodes)
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn get(&self, ino: INodeNo) -> Result<Arc<Node>, Errno> {
        let known = self.table().by_number.get(&ino.0).map(|known| Arc::clone(&known.node));
        known.ok_or(Errno::NOENT)
    }

    /// The node of an entry of a directory, which the kernel receives.
    pub fn lookup(&self, parent: &Node, name: &OsStr) -> Result<Arc<Node>, Errno> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let at = openat(parent.fd(), name, flags, Mode::empty())?;
        let stat = fstat(&at)?;
        let key = (stat.st_dev, stat.st_ino);
        let mut table = self.table();
        if let Some(number) = table.by_key.get(&key).copied()
            && let Some(known) = table.by_number.get_mut(&number)
        {
            known.lookups += 1;
            return Ok(Arc::clone(&known.node));
        }
        let counts = parent.counts.clone().unwrap_or_else(|| self.groups.named(name));
        let ino = INodeNo(table.next);
        table.next += 1;
        let (file, read_only) = (OnceLock::new(), OnceLock::new());
        let node = Arc::new(Node {
            ino,
            key,
            at,
            file,
            read_only,
            counts: Some(counts),
            stream: Mutex::default(),
            wanted: Wanted::default(),
        });
        table.by_key.insert(key, ino.0);
        table.by_number.insert(ino.0, Known { node: Arc::clone(&node), lookups: 1 });
        Ok(node)
    }

    /// The kernel received a node once more.
    pub fn again(&self, ino: INodeNo) {
        if let Some(known) = self.table().by_number.get_mut(&ino.0) {
            known.lookups += 1;
        }
    }

    /// The kernel has forgotten a node so many times; what was its, if it was the last time.
    pub fn forget(&self, ino: INodeNo, times: u64) -> Option<Arc<Node>> {
        let mut table = self.table();
        let known = table.by_number.get_mut(&ino.0)?;
        known.lookups = known.lookups.saturating_sub(times);
        if known.lookups > 0 || ino == INodeNo::ROOT {
            return None;
        }
        let known = table.by_number.remove(&ino.0)?;
        table.by_key.remove(&known.node.key);
        Some(known.node)
    }
}

/// Flags of calls on a node's descriptor itself.
pub(super) const ITSELF: AtFlags = AtFlags::EMPTY_PATH;
