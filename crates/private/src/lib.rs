// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files and directories that no other user can change: checked, and opened relative to what was checked.
//!
//! Purpose: a process that trusts a file (flash, state) must not get one that another user made, may write, or may
//! exchange. A check of a path before it is opened can be outrun; so every directory of a path is
//! opened from the one before, without following links, and checked as it is open (`walk.rs`).
//!
//! # Invariants
//! 1. *Trusted* are root and the user of this process.
//! 2. Directories above a file belong to trusted users, and other users cannot write to them, except where the sticky
//!    bit keeps other users from exchanging entries (`/tmp`, `/dev/shm`). Links in a path belong to trusted users.
//! 3. A [`Directory`] also gives no access that its opener refuses, and neither does a file (see [`Refuse`]).
//! 4. Nothing that is refused is changed.
//!
//! Group access to a directory above is not refused: groups of one user are common, and a group with more members was
//! chosen by the administrator.
//!
//! Why not `openat2` with `RESOLVE_NO_SYMLINKS`: administrators link directories, and devices have links
//! (`/dev/disk/by-id`).
#![forbid(unsafe_code)]

mod check;
mod walk;

use std::ffi::{OsStr, OsString};
use std::io::{self, ErrorKind, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Mode, OFlags};

pub use self::check::{Refuse, Refused, check, is_refusal};

/// An open directory, whose path and mode were checked.
pub struct Directory {
    fd: OwnedFd,
    path: PathBuf,
}

impl Directory {
    /// Opens a directory. `refuse`: access of group and others that is refused.
    ///
    /// # Errors
    /// It does not exist, is not a directory, or is refused ([`Refused`]).
    pub fn open(path: &Path, refuse: Refuse) -> io::Result<Self> {
        Self::at_end_of(path, refuse, None)
    }

    /// As [`open`](Self::open), and makes what is missing, with this mode.
    ///
    /// # Errors
    /// As for [`open`](Self::open), or it cannot be made.
    pub fn create(path: &Path, refuse: Refuse, mode: u32) -> io::Result<Self> {
        Self::at_end_of(path, refuse, Some(Mode::from_raw_mode(mode)))
    }

    fn at_end_of(path: &Path, refuse: Refuse, make: Option<Mode>) -> io::Result<Self> {
        let end = walk::directory(path, make)?;
        check(&end, path, refuse)?;
        // What was walked can only be passed through.
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(&end, ".", flags, Mode::empty())?;
        Ok(Self { fd, path: path.to_owned() })
    }

    /// Its path, for messages.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Opens a file in it: never a link, and only if it is not refused. A file that `flags` create gets `mode`.
    ///
    /// # Errors
    /// The file cannot be opened, or is refused ([`Refused`]).
    pub fn file(
        &self,
        name: impl AsRef<OsStr>,
        flags: OFlags,
        mode: u32,
        refuse: Refuse,
    ) -> io::Result<OwnedFd> {
        let name = name.as_ref();
        open_at(self.fd.as_fd(), name, &self.path.join(name), (flags, mode), refuse)
    }

    /// The content of a file that gives others no access; none if there is no such file.
    ///
    /// # Errors
    /// As for [`file`](Self::file).
    pub fn read(&self, name: impl AsRef<OsStr>) -> io::Result<Option<Vec<u8>>> {
        let mut bytes = Vec::new();
        match self.file(name, OFlags::RDONLY, 0, Refuse::ANY) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            file => {
                std::fs::File::from(file?).read_to_end(&mut bytes)?;
                Ok(Some(bytes))
            }
        }
    }

    /// The names in it.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn names(&self) -> io::Result<Vec<OsString>> {
        let mut names = Vec::new();
        for entry in rustix::fs::Dir::read_from(&self.fd)? {
            names.push(OsString::from_vec(entry?.file_name().to_bytes().to_vec()));
        }
        names.retain(|name| name != "." && name != "..");
        Ok(names)
    }

    /// Renames a file in it.
    ///
    /// # Errors
    /// Those of the call.
    pub fn rename(&self, from: impl AsRef<OsStr>, to: impl AsRef<OsStr>) -> io::Result<()> {
        Ok(rustix::fs::renameat(&self.fd, from.as_ref(), &self.fd, to.as_ref())?)
    }

    /// Removes a file in it, if it exists.
    ///
    /// # Errors
    /// Those of the call.
    pub fn remove(&self, name: impl AsRef<OsStr>) -> io::Result<()> {
        match rustix::fs::unlinkat(&self.fd, name.as_ref(), AtFlags::empty()) {
            Err(rustix::io::Errno::NOENT) => Ok(()),
            other => Ok(other?),
        }
    }

    /// Makes changes of its entries durable.
    ///
    /// # Errors
    /// Those of the call.
    pub fn sync(&self) -> io::Result<()> {
        Ok(rustix::fs::fsync(&self.fd)?)
    }
}

impl AsFd for Directory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Opens the file or the block device of a path. Links are followed if they belong to trusted users. A file that
/// `flags` create gets `mode`.
///
/// # Errors
/// It cannot be opened, or is refused ([`Refused`]).
pub fn open(path: &Path, flags: OFlags, mode: u32, refuse: Refuse) -> io::Result<OwnedFd> {
    let (directory, name) = walk::file(path)?;
    open_at(directory.as_fd(), &name, path, (flags, mode), refuse)
}

fn open_at(
    directory: BorrowedFd<'_>,
    name: &OsStr,
    path: &Path,
    (flags, mode): (OFlags, u32),
    refuse: Refuse,
) -> io::Result<OwnedFd> {
    // A FIFO without a writer would block the open, and a file that is refused must keep its content.
    let safe = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let safe = safe.difference(OFlags::TRUNC);
    let file = rustix::fs::openat(directory, name, safe, Mode::from_raw_mode(mode))?;
    check(&file, path, refuse)?;
    if flags.contains(OFlags::TRUNC) {
        rustix::fs::ftruncate(&file, 0)?;
    }
    if !flags.contains(OFlags::NONBLOCK) {
        let now = rustix::fs::fcntl_getfl(&file)?;
        rustix::fs::fcntl_setfl(&file, now.difference(OFlags::NONBLOCK))?;
    }
    Ok(file)
}
