// SPDX-License-Identifier: MIT OR Apache-2.0
//! Mounts of volumes' files, each named by the PATH of its listener: made in this process ([`Direct`]), or by another
//! one that uses `Direct`.
//!
//! Purpose: the process that serves needs no privilege to mount. It gets the descriptor of the kernel's requests, and
//! asks for the unmount.
//!
//! Invariants: only the PATHs that a `Direct` was made with are mounted, on their terms, and only what was mounted
//! here is unmounted. After [`detach`](Mounter::detach) PATH is as it was before. Two processes do not change a PATH
//! at the same time: each locks the directory above. So a process that unmounts the file of a killed server does not
//! unmount that of the next one, which mounts meanwhile.

use std::collections::HashMap;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use larder_volume::VolumeError;
use rustix::fs::{FlockOperation, flock};

use super::error::MountError;
use super::mount::{self, Mount, Terms, Unmounted};
use super::place::Place;

/// How long another process may lock the directory. Every user that can read it can lock it, so that the lock must not
/// decide whether a server starts and stops.
const LOCK_BOUND: Duration = Duration::from_secs(2);
/// Time between two attempts to lock.
const POLL: Duration = Duration::from_millis(5);

/// Mounts and unmounts files.
pub trait Mounter: Send + Sync {
    /// Checks that PATH can be mounted; removes the mount of a dead server.
    ///
    /// # Errors
    /// PATH cannot be used.
    fn check(&self, path: &Path) -> Result<(), VolumeError>;

    /// Mounts at PATH.
    ///
    /// # Errors
    /// PATH cannot be used, or the mount is not permitted.
    fn mount(&self, path: &Path) -> Result<Mounted, VolumeError>;

    /// Unmounts PATH, unless its file system is in use.
    ///
    /// # Errors
    /// The process that mounts does not answer.
    fn unmount(&self, path: &Path) -> Result<Unmounted, MountError>;

    /// Detaches the mount from PATH, if it is still mounted; users continue until the descriptor is closed.
    ///
    /// # Errors
    /// The file system cannot be unmounted.
    fn detach(&self, path: &Path) -> Result<(), MountError>;
}

/// A mounted file system.
pub struct Mounted {
    /// The descriptor that receives the kernel's requests.
    pub device: OwnedFd,
    /// The mount point, without symbolic links.
    pub path: PathBuf,
    /// Whether the mount point is a directory.
    pub is_dir: bool,
}

/// Mounts in this process.
pub struct Direct {
    terms: HashMap<PathBuf, Terms>,
    open: Mutex<HashMap<PathBuf, (Mount, Place)>>,
}

impl Direct {
    /// For these PATHs, and no others.
    pub fn new(places: impl IntoIterator<Item = (PathBuf, Terms)>) -> Self {
        Self { terms: places.into_iter().collect(), open: Mutex::default() }
    }

    fn open(&self) -> MutexGuard<'_, HashMap<PathBuf, (Mount, Place)>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is still mounted is detached.
impl Drop for Direct {
    fn drop(&mut self) {
        let paths: Vec<PathBuf> = self.open().keys().cloned().collect();
        for path in paths {
            if let Err(e) = self.detach(&path) {
                tracing::warn!("fuse:{}: stays mounted: {e}", path.display());
            }
        }
    }
}

impl Mounter for Direct {
    fn check(&self, path: &Path) -> Result<(), VolumeError> {
        let _lock = lock(path);
        Place::prepare(path).map(|place| place.clean_up())
    }

    fn mount(&self, path: &Path) -> Result<Mounted, VolumeError> {
        let usage = |e: MountError| VolumeError::Usage(format!("fuse:{}: {e}", path.display()));
        let unknown = || usage(MountError::Asked("is not a file of this server".to_owned()));
        let terms = *self.terms.get(path).ok_or_else(unknown)?;
        let _lock = lock(path);
        let place = Place::prepare(path)?;
        let mounted = mount::mount(&place, "larder", terms);
        let (device, mount) = mounted.map_err(|e| {
            place.clean_up();
            usage(e)
        })?;
        let mounted = Mounted { device, path: place.path.clone(), is_dir: place.is_dir };
        self.open().insert(path.to_owned(), (mount, place));
        Ok(mounted)
    }

    fn unmount(&self, path: &Path) -> Result<Unmounted, MountError> {
        let _lock = lock(path);
        Ok(self.open().get(path).map_or(Unmounted::Done, |(mount, _)| mount.unmount()))
    }

    fn detach(&self, path: &Path) -> Result<(), MountError> {
        let _lock = lock(path);
        let mut open = self.open();
        let Some((mount, place)) = open.get(path) else { return Ok(()) };
        mount.detach()?;
        place.clean_up();
        open.remove(path);
        Ok(())
    }
}

/// Locks the directory above PATH until the returned file is dropped. Without a lock after [`LOCK_BOUND`].
fn lock(path: &Path) -> Option<File> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let directory = File::open(parent.unwrap_or(Path::new("."))).ok()?;
    let begin = Instant::now();
    while flock(&directory, FlockOperation::NonBlockingLockExclusive).is_err() {
        if begin.elapsed() > LOCK_BOUND {
            return None;
        }
        std::thread::sleep(POLL);
    }
    Some(directory)
}
