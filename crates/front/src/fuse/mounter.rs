// SPDX-License-Identifier: MIT OR Apache-2.0
//! Mounts of volumes' files, each named by the PATH of its listener: made in this process ([`Direct`]), or by another
//! one that uses `Direct`.
//!
//! Purpose: the process that serves needs no privilege to mount. It gets the descriptor of the kernel's requests, and
//! asks for the unmount.
//!
//! Invariants: only the PATHs that a `Direct` was made with are mounted, on their terms, and only what was mounted
//! here is unmounted. After [`detach`](Mounter::detach) PATH is as it was before. Two processes do not change a PATH
//! at the same time: each locks the directory above. A process whose server is gone unmounts only dead file systems: one
//! that works is that of a later server, although it may have the same device number.

use std::collections::HashMap;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use larder_volume::VolumeError;
use rustix::fs::{FlockOperation, flock};

use super::error::MountError;
use super::mount::{self, Mount, Terms, Unmounted};
use super::place::{Place, is_dead};

/// How long another process may lock the directory. Every user that can read it can lock it, so that the lock must not
/// decide whether a server starts and stops.
const LOCK_BOUND: Duration = Duration::from_secs(2);
/// How long the kernel may take to close the files of a killed server.
const DEATH_BOUND: Duration = Duration::from_secs(1);
/// Time between two attempts.
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
    /// A lock was waited for in vain. No other is waited for: a stop has many files to unmount, and one bound.
    impatient: AtomicBool,
    /// The server whose files these are is gone.
    outlived: AtomicBool,
}

impl Direct {
    /// For these PATHs, and no others.
    pub fn new(places: impl IntoIterator<Item = (PathBuf, Terms)>) -> Self {
        Self {
            terms: places.into_iter().collect(),
            open: Mutex::default(),
            impatient: AtomicBool::default(),
            outlived: AtomicBool::default(),
        }
    }

    /// Locks the directory above PATH until the returned file is dropped. Without a lock after [`LOCK_BOUND`].
    fn lock(&self, path: &Path) -> Option<File> {
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let directory = File::open(parent.unwrap_or(Path::new("."))).ok()?;
        let begin = Instant::now();
        while flock(&directory, FlockOperation::NonBlockingLockExclusive).is_err() {
            if self.impatient.load(Relaxed) || begin.elapsed() > LOCK_BOUND {
                self.impatient.store(true, Relaxed);
                return None;
            }
            std::thread::sleep(POLL);
        }
        Some(directory)
    }

    /// The server is gone: a file system that works is a later server's, and is not unmounted.
    pub fn outlive(&self) {
        self.outlived.store(true, Relaxed);
    }

    fn detach_locked(&self, path: &Path) -> Result<(), MountError> {
        let mut open = self.open();
        let Some((mount, place)) = open.get(path) else { return Ok(()) };
        mount.detach()?;
        place.clean_up();
        open.remove(path);
        Ok(())
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
            let _lock = self.lock(&path);
            if self.outlived.load(Relaxed) && !dies(&path) {
                continue;
            }
            if let Err(e) = self.detach_locked(&path) {
                tracing::warn!("fuse:{}: stays mounted: {e}", path.display());
            }
        }
    }
}

impl Mounter for Direct {
    fn check(&self, path: &Path) -> Result<(), VolumeError> {
        let _lock = self.lock(path);
        Place::prepare(path).map(|place| place.clean_up())
    }

    fn mount(&self, path: &Path) -> Result<Mounted, VolumeError> {
        let usage = |e: MountError| VolumeError::Usage(format!("fuse:{}: {e}", path.display()));
        let unknown = || usage(MountError::Asked("is not a file of this server".to_owned()));
        let terms = *self.terms.get(path).ok_or_else(unknown)?;
        let _lock = self.lock(path);
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
        let _lock = self.lock(path);
        Ok(self.open().get(path).map_or(Unmounted::Done, |(mount, _)| mount.unmount()))
    }

    fn detach(&self, path: &Path) -> Result<(), MountError> {
        let _lock = self.lock(path);
        self.detach_locked(path)
    }
}

/// Waits until the file system at PATH is dead; returns whether it is.
fn dies(path: &Path) -> bool {
    let begin = Instant::now();
    while !is_dead(path) {
        if begin.elapsed() > DEATH_BOUND {
            return false;
        }
        std::thread::sleep(POLL);
    }
    true
}
