// SPDX-License-Identifier: MIT OR Apache-2.0
//! The accepted owners of a file, and the access of other users that is refused.

use std::io::{self, ErrorKind};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Stat};

/// Access of group and others that is refused, as bits of a mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refuse(u32);

impl Refuse {
    /// Reading and writing by group and others.
    pub const ANY: Self = Self(0o066);
    /// Writing by group and others.
    pub const WRITE: Self = Self(0o022);
    /// Reading and writing by others; the group may do both, as with block devices.
    pub const OTHERS: Self = Self(0o006);
    /// Nothing: a directory that all may use, with the sticky bit.
    pub const NOTHING: Self = Self(0);
    /// Writing by others where the sticky bit is not set.
    pub(crate) const EXCHANGE: Self = Self(0o002);
}

/// Why a file or directory is not used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// Another user owns it.
    #[error("{} belongs to the user with id {owner}; accepted: {user} (this user) or 0 (root)", path.display())]
    Owner {
        /// The file.
        path: PathBuf,
        /// Its owner.
        owner: u32,
        /// The user of this process.
        user: u32,
    },
    /// Other users have access.
    #[error(
        "{at} has mode {mode:04o}; accepted: {accepted:04o} (chmod {accepted:o} {at})",
        at = path.display(),
        accepted = mode & !refused
    )]
    Mode {
        /// The file.
        path: PathBuf,
        /// Its mode.
        mode: u32,
        /// The bits that are refused.
        refused: u32,
    },
    /// It is a socket, a FIFO or a character device.
    #[error("{} is neither a file nor a block device", .0.display())]
    Kind(PathBuf),
}

impl From<Refused> for io::Error {
    fn from(refused: Refused) -> Self {
        Self::new(ErrorKind::PermissionDenied, refused)
    }
}

/// Whether an error is a refusal ([`Refused`]), and not one of a call.
#[must_use]
pub fn is_refusal(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|error| error.is::<Refused>())
}

/// Checks an open file, block device or directory. `path` is for the message.
///
/// # Errors
/// It is refused ([`Refused`]), or cannot be inspected.
pub fn check(file: impl AsFd, path: &Path, refuse: Refuse) -> io::Result<()> {
    let stat = rustix::fs::fstat(file)?;
    check_owner(&stat, path)?;
    let (mode, path) = (stat.st_mode & 0o7777, path.to_owned());
    if !matches!(
        FileType::from_raw_mode(stat.st_mode),
        FileType::RegularFile | FileType::Directory | FileType::BlockDevice
    ) {
        return Err(Refused::Kind(path).into());
    }
    match mode & refuse.0 {
        0 => Ok(()),
        refused => Err(Refused::Mode { path, mode, refused }.into()),
    }
}

/// Checks a directory above a file.
pub(crate) fn check_above(stat: &Stat, path: &Path) -> io::Result<()> {
    check_owner(stat, path)?;
    let mode = stat.st_mode & 0o7777;
    match mode & Refuse::EXCHANGE.0 {
        0 => Ok(()),
        _ if mode & 0o1000 != 0 => Ok(()),
        refused => Err(Refused::Mode { path: path.to_owned(), mode, refused }.into()),
    }
}

/// Only root and the user of this process may own it.
pub(crate) fn check_owner(stat: &Stat, path: &Path) -> io::Result<()> {
    let (owner, user) = (stat.st_uid, rustix::process::geteuid().as_raw());
    match owner == user || owner == 0 {
        true => Ok(()),
        false => Err(Refused::Owner { path: path.to_owned(), owner, user }.into()),
    }
}
