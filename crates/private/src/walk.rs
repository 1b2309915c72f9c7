// SPDX-License-Identifier: MIT OR Apache-2.0
//! From the root to the end of a path, one directory after the other, each opened from the one before and checked.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;

use crate::check::{check_above, check_owner};

/// Links that a path may pass, as in the kernel.
const LINKS_MOST: u32 = 40;

/// A place on the way.
struct Walk {
    at: OwnedFd,
    /// The path of `at`, for messages.
    path: PathBuf,
    /// What follows, the next last.
    rest: Vec<OsString>,
    links: u32,
}

/// What a name is.
enum Entry {
    Missing,
    /// A link that the walk has taken.
    Link,
    Directory(OwnedFd),
    Other,
}

/// The directory at the end of a path, only to be passed through. What is missing is made with the mode `make`.
pub(crate) fn directory(path: &Path, make: Option<Mode>) -> io::Result<OwnedFd> {
    let mut walk = Walk::begin(path)?;
    while let Some(name) = walk.rest.pop() {
        match (walk.step(&name)?, make) {
            (Entry::Directory(next), _) => walk.enter(next, &name),
            (Entry::Missing, Some(mode)) => {
                match rustix::fs::mkdirat(&walk.at, &name, mode) {
                    // Another process may have made it.
                    Ok(()) | Err(Errno::EXIST) => walk.rest.push(name),
                    Err(error) => return Err(error.into()),
                }
            }
            (Entry::Missing, None) => return Err(Errno::NOENT.into()),
            (Entry::Link, _) => {}
            (Entry::Other, _) => return Err(Errno::NOTDIR.into()),
        }
    }
    Ok(walk.at)
}

/// The directory of the file at the end of a path, and the file's name there. It may not exist yet.
pub(crate) fn file(path: &Path) -> io::Result<(OwnedFd, OsString)> {
    let mut walk = Walk::begin(path)?;
    while let Some(name) = walk.rest.pop() {
        match walk.step(&name)? {
            Entry::Link => {}
            Entry::Directory(next) => walk.enter(next, &name),
            Entry::Missing | Entry::Other if walk.rest.is_empty() => return Ok((walk.at, name)),
            Entry::Missing => return Err(Errno::NOENT.into()),
            Entry::Other => return Err(Errno::NOTDIR.into()),
        }
    }
    Err(Errno::ISDIR.into())
}

impl Walk {
    fn begin(path: &Path) -> io::Result<Self> {
        let absolute = std::path::absolute(path)?;
        let mut walk = Self { at: root()?, path: "/".into(), rest: Vec::new(), links: 0 };
        walk.push(&absolute);
        Ok(walk)
    }

    /// Continues with the path of a link, from the root if it is absolute.
    fn follow(&mut self, path: &Path) -> io::Result<()> {
        if path.is_absolute() {
            (self.at, self.path) = (root()?, "/".into());
        }
        self.push(path);
        Ok(())
    }

    fn push(&mut self, path: &Path) {
        for part in path.components().rev() {
            match part {
                Component::Normal(name) => self.rest.push(name.to_owned()),
                Component::ParentDir => self.rest.push("..".into()),
                Component::CurDir | Component::RootDir | Component::Prefix(_) => {}
            }
        }
    }

    fn enter(&mut self, next: OwnedFd, name: &OsStr) {
        self.at = next;
        self.path.push(name);
    }

    /// Looks at the next name without a change of the place, except if it is a link.
    fn step(&mut self, name: &OsStr) -> io::Result<Entry> {
        let path = self.path.join(name);
        let found = match pass(&self.at, name) {
            Err(Errno::NOENT) => return Ok(Entry::Missing),
            found => found?,
        };
        let stat = rustix::fs::fstat(&found)?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => {
                check_above(&stat, &path)?;
                Ok(Entry::Directory(found))
            }
            FileType::Symlink => {
                check_owner(&stat, &path)?;
                self.links += 1;
                if self.links > LINKS_MOST {
                    return Err(Errno::LOOP.into());
                }
                let target = rustix::fs::readlinkat(&found, "", Vec::new())?.into_bytes();
                self.follow(Path::new(&OsString::from_vec(target)))?;
                Ok(Entry::Link)
            }
            _ => Ok(Entry::Other),
        }
    }
}

fn root() -> io::Result<OwnedFd> {
    Ok(pass(rustix::fs::CWD, OsStr::new("/"))?)
}

/// Opens an entry, a link itself too, only to be passed through.
fn pass(at: impl AsFd, name: &OsStr) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(at, name, flags, Mode::empty())
}
