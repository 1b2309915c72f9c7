// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is done with names and attributes: the same below, for every user.
//!
//! Invariants: what is made belongs to who asked, if this process may give things away, and has the permissions that
//! were asked for. None of this costs time on the modelled disk: a file system has it in memory, and a flush of the
//! directory pays for it.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use fuser::{INodeNo, Request, TimeOrNow};
use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Gid, Mode, OFlags, RenameFlags, Timespec, Timestamps, UTIME_NOW,
    UTIME_OMIT, Uid, chmodat, chownat, ftruncate, linkat, mkdirat, mknodat, openat, readlinkat,
    renameat_with, symlinkat, unlinkat, utimensat,
};
use rustix::io::Errno;

use super::nodes::{ITSELF, Node, Nodes, kind};

/// What is made, beside directories and files that are opened.
pub(super) enum Made<'a> {
    Directory,
    Link(&'a Path),
    Special { device: u32, kind: FileType },
    File { exclusive: bool },
}

/// Makes an entry; the reply carries its node.
pub(super) fn make(
    nodes: &Nodes,
    (parent, name): (INodeNo, &OsStr),
    what: &Made<'_>,
    mode: u32,
    request: &Request,
) -> Result<Arc<Node>, Errno> {
    let parent = nodes.get(parent)?;
    let bits = Mode::from_bits_truncate(mode);
    let (mut new, mut opened) = (true, None);
    match what {
        Made::Directory => mkdirat(parent.fd(), name, bits)?,
        Made::Link(target) => symlinkat(target.as_os_str(), parent.fd(), name)?,
        Made::Special { device, kind } => {
            mknodat(parent.fd(), name, *kind, bits, u64::from(*device))?;
        }
        Made::File { exclusive } => {
            let flags =
                OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            match openat(parent.fd(), name, flags, bits) {
                Err(Errno::EXIST) if !exclusive => new = false,
                other => opened = Some(other?),
            }
        }
    }
    let node = nodes.lookup(&parent, name)?;
    if let Some(file) = opened {
        node.keep(file);
    }
    if new {
        give(&node, matches!(what, Made::Link(_)), bits, request)?;
    }
    Ok(node)
}

/// Gives what was made to who asked, with the permissions that were asked for.
fn give(node: &Node, link: bool, mode: Mode, request: &Request) -> Result<(), Errno> {
    if rustix::process::geteuid().is_root() {
        let (uid, gid) = (Uid::from_raw(request.uid()), Gid::from_raw(request.gid()));
        chownat(node.fd(), "", Some(uid), Some(gid), ITSELF)?;
    }
    // After the owner, as that takes some away; this process's umask took others.
    if link { Ok(()) } else { chmodat(CWD, node.path(), mode, AtFlags::empty()) }
}

pub(super) fn remove(
    nodes: &Nodes,
    (parent, name): (INodeNo, &OsStr),
    flags: AtFlags,
) -> Result<(), Errno> {
    unlinkat(nodes.get(parent)?.fd(), name, flags)
}

pub(super) fn rename(
    nodes: &Nodes,
    from: (INodeNo, &OsStr),
    to: (INodeNo, &OsStr),
    flags: u32,
) -> Result<(), Errno> {
    let (old, new) = (nodes.get(from.0)?, nodes.get(to.0)?);
    renameat_with(old.fd(), from.1, new.fd(), to.1, RenameFlags::from_bits_retain(flags))
}

/// Gives a file one more name.
pub(super) fn link(nodes: &Nodes, ino: INodeNo, to: (INodeNo, &OsStr)) -> Result<Arc<Node>, Errno> {
    let (node, parent) = (nodes.get(ino)?, nodes.get(to.0)?);
    linkat(CWD, node.path(), parent.fd(), to.1, AtFlags::SYMLINK_FOLLOW)?;
    nodes.again(ino);
    Ok(node)
}

pub(super) fn target(node: &Node) -> Result<Vec<u8>, Errno> {
    readlinkat(node.fd(), "", Vec::new()).map(std::ffi::CString::into_bytes)
}

/// What attributes are changed to.
pub(super) struct Change {
    pub mode: Option<u32>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    pub size: Option<u64>,
    pub accessed: Option<TimeOrNow>,
    pub modified: Option<TimeOrNow>,
}

pub(super) fn change(node: &Node, change: &Change) -> Result<(), Errno> {
    if let Some(size) = change.size {
        ftruncate(node.file(true)?, size)?;
    }
    if change.uid.is_some() || change.gid.is_some() {
        let (uid, gid) = (change.uid.map(Uid::from_raw), change.gid.map(Gid::from_raw));
        chownat(node.fd(), "", uid, gid, ITSELF)?;
    }
    if let Some(mode) = change.mode {
        chmodat(CWD, node.path(), Mode::from_bits_truncate(mode), AtFlags::empty())?;
    }
    if change.accessed.is_some() || change.modified.is_some() {
        let times = Timestamps {
            last_access: time(change.accessed),
            last_modification: time(change.modified),
        };
        utimensat(node.fd(), "", &times, ITSELF)?;
    }
    Ok(())
}

fn time(given: Option<TimeOrNow>) -> Timespec {
    let nanos = |tv_nsec| Timespec { tv_sec: 0, tv_nsec };
    match given {
        None => nanos(UTIME_OMIT),
        Some(TimeOrNow::Now) => nanos(UTIME_NOW),
        Some(TimeOrNow::SpecificTime(time)) => spec(time),
    }
}

fn spec(time: SystemTime) -> Timespec {
    match time.duration_since(UNIX_EPOCH) {
        Ok(after) => {
            Timespec { tv_sec: after.as_secs() as i64, tv_nsec: i64::from(after.subsec_nanos()) }
        }
        Err(before) => {
            // Seconds downwards, and nanoseconds upwards from there.
            let before = before.duration();
            let more = i64::from(before.subsec_nanos() > 0);
            Timespec {
                tv_sec: -(before.as_secs() as i64) - more,
                tv_nsec: more * (1_000_000_000 - i64::from(before.subsec_nanos())),
            }
        }
    }
}

/// An entry of a directory.
pub(super) struct Entry {
    pub ino: INodeNo,
    pub kind: fuser::FileType,
    pub name: Vec<u8>,
}

impl Entry {
    pub fn name(&self) -> &OsStr {
        OsStr::from_bytes(&self.name)
    }
}

/// All entries of a directory, as they are now.
pub(super) fn entries(node: &Node) -> Result<Vec<Entry>, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = openat(node.fd(), ".", flags, Mode::empty())?;
    let entry = |entry: Result<rustix::fs::DirEntry, Errno>| {
        entry.map(|entry| Entry {
            ino: INodeNo(entry.ino()),
            kind: kind(entry.file_type()),
            name: entry.file_name().to_bytes().to_vec(),
        })
    };
    Dir::new(directory)?.map(entry).collect()
}
