// SPDX-License-Identifier: MIT OR Apache-2.0
//! The place for a demo's files: directories for devices, mounts and sockets.
//!
//! Invariants: all of it lies in one temporary directory that goes when [`Place`] does, and what a
//! demo that was killed left behind, processes, mounts and shared memory too, goes when the next one
//! begins. One demo at a time uses a place.
//!
//! Why sockets lie elsewhere: the path of a unix socket may have 107 bytes only.

use std::fs::File;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use larder_io::format_size;
use rustix::fs::FlockOperation;
use tempfile::TempDir;

use super::options::DemoOptions;
use super::postgres::shared;
use super::system::{mounts, processes};

/// The directory below that of the demo's rows.
const WORK: &str = "work";
/// What a disk must have free besides the files.
const SPARE_BYTES: u64 = 64 << 20;
/// How the names of directories begin.
const PREFIX: &str = "larder-demo-";
/// The name of the link from the directory of devices to that of sockets.
const SOCKETS: &str = "sockets";

/// The directories, see the module.
#[derive(Debug)]
pub struct Place {
    devices: TempDir,
    sockets: TempDir,
    /// Locked, so that no other demo takes these files for leftovers.
    _lock: File,
}

impl Place {
    /// Makes the directories of a demo and checks that there is room.
    ///
    /// # Errors
    /// They cannot be made, or the disk is too full.
    pub fn new(options: &DemoOptions, needed_bytes: u64) -> Result<Self> {
        Self::below(&options.dir.join(WORK), needed_bytes)
    }

    fn below(dir: &Path, needed_bytes: u64) -> Result<Self> {
        let make = |what: &Path| format!("cannot make a directory in {}", what.display());
        std::fs::create_dir_all(dir).with_context(|| make(dir))?;
        // Servers get the paths as they are, and messages are clearer with whole ones.
        let dir = std::path::absolute(dir).with_context(|| make(dir))?;
        let lock = claim(&dir)?;
        let stat = rustix::fs::statvfs(&dir).with_context(|| dir.display().to_string())?;
        let free_bytes = stat.f_bavail.saturating_mul(stat.f_frsize);
        ensure!(
            free_bytes >= needed_bytes + SPARE_BYTES,
            "{} has {} free; the demo needs {} there (--dir DIR names another place)",
            dir.display(),
            format_size(free_bytes),
            format_size(needed_bytes + SPARE_BYTES)
        );
        let devices = tempfile::Builder::new().prefix(PREFIX).tempdir_in(&dir);
        let devices = devices.with_context(|| make(&dir))?;
        let sockets = tempfile::Builder::new().prefix(PREFIX).tempdir();
        let sockets = sockets.with_context(|| make(&std::env::temp_dir()))?;
        // So that a command that clears the one finds the other.
        std::os::unix::fs::symlink(sockets.path(), devices.path().join(SOCKETS))?;
        Ok(Self { devices, sockets, _lock: lock })
    }

    /// Where all of it lies but sockets.
    #[must_use]
    pub fn devices(&self) -> &Path {
        self.devices.path()
    }

    /// The file of the slow device.
    #[must_use]
    pub fn origin(&self) -> PathBuf {
        self.devices.path().join("origin")
    }

    /// The file, or the directory, of the flash device.
    #[must_use]
    pub fn flash(&self) -> PathBuf {
        self.devices.path().join("flash")
    }

    /// The file of a device that is flash alone.
    #[must_use]
    pub fn all_flash(&self) -> PathBuf {
        self.devices.path().join("all-flash")
    }

    /// Where a server's volume becomes a file.
    #[must_use]
    pub fn volume(&self) -> PathBuf {
        self.devices.path().join("volume")
    }

    /// Where its file system is mounted.
    #[must_use]
    pub fn mount_point(&self) -> PathBuf {
        self.devices.path().join("mnt")
    }

    /// For sockets and logs.
    #[must_use]
    pub fn sockets(&self) -> &Path {
        self.sockets.path()
    }
}

/// Takes a place for this demo alone and removes what one that was killed left there.
fn claim(dir: &Path) -> Result<File> {
    let failed = || dir.display().to_string();
    let lock = File::open(dir).with_context(failed)?;
    rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive)
        .with_context(|| format!("{}: another demo runs there", dir.display()))?;
    for entry in std::fs::read_dir(dir).with_context(failed)? {
        let entry = entry.with_context(failed)?;
        if entry.file_name().to_string_lossy().starts_with(PREFIX) {
            clear(&entry.path()).with_context(failed)?;
        }
    }
    Ok(lock)
}

/// Removes what a demo that was killed made.
fn clear(devices: &Path) -> Result<()> {
    processes::end_below(devices)?;
    mounts::clear(devices)?;
    shared::clear(devices)?;
    if let Ok(sockets) = std::fs::read_link(devices.join(SOCKETS)) {
        let name = sockets.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with(PREFIX) && sockets.exists() {
            std::fs::remove_dir_all(&sockets)?;
        }
    }
    Ok(std::fs::remove_dir_all(devices)?)
}

/// A path as an argument of `larder serve` or a setting of PostgreSQL must be.
///
/// # Errors
/// It is not UTF-8.
pub fn utf8(path: &Path) -> Result<&str> {
    path.to_str().context("the path of --dir is not UTF-8")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_demo_at_a_time_and_the_next_one_tidies_up() {
        let dir = tempfile::tempdir().unwrap();
        let leftover = dir.path().join("larder-demo-killed");
        std::fs::create_dir(&leftover).unwrap();
        std::fs::write(leftover.join("origin"), "left").unwrap();
        let elsewhere = tempfile::tempdir().unwrap();
        let sockets = elsewhere.path().join("larder-demo-sockets");
        std::fs::create_dir(&sockets).unwrap();
        std::os::unix::fs::symlink(&sockets, leftover.join(SOCKETS)).unwrap();
        std::fs::write(dir.path().join("other"), "not ours").unwrap();
        let place = Place::below(dir.path(), 0).unwrap();
        assert!(!leftover.exists() && dir.path().join("other").exists());
        assert!(!sockets.exists() && elsewhere.path().exists());
        let error = format!("{:#}", Place::below(dir.path(), 0).unwrap_err());
        assert!(error.contains("another demo runs there"), "{error}");
        drop(place);
        Place::below(dir.path(), 0).unwrap();
    }

    #[test]
    fn a_full_disk_is_told_before_it_is_full() {
        let dir = tempfile::tempdir().unwrap();
        let error = Place::below(dir.path(), 1 << 60).unwrap_err().to_string();
        assert!(error.contains("free; the demo needs") && error.contains("--dir"), "{error}");
    }
}
