// SPDX-License-Identifier: MIT OR Apache-2.0
//! The files that stand for devices.
//!
//! Purpose: makes the origin, filled with the initial version of every page, and the flash, filled
//! with zeroes (so that its file system has nothing left to allocate); reads the origin back.
//!
//! Invariants: all of it lies in one temporary directory that goes when [`Files`] does, and what a
//! demo that was killed left behind, mounts and shared memory too, goes when the next one begins. One
//! demo at a time uses a place. What is made is on the disk and out of the page cache before anything
//! is measured.
//!
//! Why sockets lie elsewhere: the path of a unix socket may have 107 bytes only.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use larder_io::format_size;
use rustix::fs::{Advice, FlockOperation};
use tempfile::TempDir;

use super::book::Book;
use super::content::{self, PAGE_BYTES};
use super::oltp::mounts;
use super::postgres::cluster::end_below;
use super::postgres::shared;

/// Bytes written or read at once.
const CHUNK_BYTES: usize = 1 << 20;
const CHUNK_PAGES: usize = CHUNK_BYTES / PAGE_BYTES;
/// What a disk must have free besides the files.
const SPARE_BYTES: u64 = 64 << 20;
/// How the names of directories begin.
const PREFIX: &str = "larder-demo-";
/// The name of the link from the directory of devices to that of sockets.
const SOCKETS: &str = "sockets";

/// The files, see the module.
#[derive(Debug)]
pub struct Files {
    devices: TempDir,
    sockets: TempDir,
    /// Locked, so that no other demo takes these files for leftovers.
    _place: File,
}

impl Files {
    /// Makes the directories below `dir` and checks that there is room.
    ///
    /// # Errors
    /// They cannot be made, or the disk is too full.
    pub fn new(dir: &Path, needed_bytes: u64) -> Result<Self> {
        let make = |what: &Path| format!("cannot make a directory in {}", what.display());
        std::fs::create_dir_all(dir).with_context(|| make(dir))?;
        // Servers get the paths as they are, and messages are clearer with whole ones.
        let dir = std::path::absolute(dir).with_context(|| make(dir))?;
        let place = claim(&dir)?;
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
        // So that who clears the one knows the other.
        std::os::unix::fs::symlink(sockets.path(), devices.path().join(SOCKETS))?;
        Ok(Self { devices, sockets, _place: place })
    }

    /// The file of the slow device.
    #[must_use]
    pub fn origin(&self) -> PathBuf {
        self.devices.path().join("origin")
    }

    /// The file of the flash device.
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
    let place = File::open(dir).with_context(failed)?;
    rustix::fs::flock(&place, FlockOperation::NonBlockingLockExclusive)
        .with_context(|| format!("{}: another demo runs there", dir.display()))?;
    for entry in std::fs::read_dir(dir).with_context(failed)? {
        let entry = entry.with_context(failed)?;
        if entry.file_name().to_string_lossy().starts_with(PREFIX) {
            clear(&entry.path()).with_context(failed)?;
        }
    }
    Ok(place)
}

/// Removes what a demo that was killed made.
fn clear(devices: &Path) -> Result<()> {
    end_below(devices)?;
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

/// Makes a file of `bytes` (whole pages), whose content `fill` writes page by page.
///
/// # Errors
/// The disk's, or that of `stopped`, which is asked now and then.
pub fn make(
    path: &Path,
    bytes: u64,
    fill: impl Fn(u32, &mut [u8]),
    stopped: impl Fn() -> Result<()>,
) -> Result<()> {
    let failed = || format!("cannot write {}", path.display());
    let mut file =
        OpenOptions::new().write(true).create_new(true).open(path).with_context(failed)?;
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut page = 0;
    let mut left = bytes;
    while left > 0 {
        stopped()?;
        let used = left.min(CHUNK_BYTES as u64) as usize;
        for into in chunk[..used].chunks_exact_mut(PAGE_BYTES) {
            fill(page, into);
            page += 1;
        }
        file.write_all(&chunk[..used]).with_context(failed)?;
        left -= used as u64;
    }
    file.sync_all().with_context(failed)?;
    forget(&file).with_context(failed)
}

/// Takes a file out of the page cache, where it would be a cache that nobody asked for.
fn forget(file: &File) -> std::io::Result<()> {
    Ok(rustix::fs::fadvise(file, 0, None, Advice::DontNeed)?)
}

/// Reads a file that no server has open and checks that every page holds its last version; the
/// number of pages.
///
/// # Errors
/// One does not, or the file cannot be read, or `stopped` says so.
pub fn verify(path: &Path, book: &Book, stopped: impl Fn() -> Result<()>) -> Result<u64> {
    let failed = || format!("cannot read {}", path.display());
    let file = File::open(path).with_context(failed)?;
    // What a server wrote past the page cache may lie behind what is in it.
    forget(&file).with_context(failed)?;
    let pages = (file.metadata().with_context(failed)?.len() / PAGE_BYTES as u64) as usize;
    let mut chunk = vec![0; CHUNK_BYTES];
    for first in (0..pages).step_by(CHUNK_PAGES) {
        stopped()?;
        let count = CHUNK_PAGES.min(pages - first);
        let chunk = &mut chunk[..count * PAGE_BYTES];
        file.read_exact_at(chunk, (first * PAGE_BYTES) as u64).with_context(failed)?;
        let versions = book.completed(first, count);
        for (at, (data, version)) in chunk.chunks_exact(PAGE_BYTES).zip(versions).enumerate() {
            if let Err(mismatch) = content::check((first + at) as u32, version..=version, data) {
                bail!("{} lost a write: {mismatch}", path.display());
            }
        }
    }
    forget(&file).with_context(failed)?;
    Ok(pages as u64)
}

#[cfg(test)]
mod tests {
    use super::super::workload::{Step, Verb};
    use super::*;

    fn go_on() -> Result<()> {
        Ok(())
    }

    #[test]
    fn what_was_made_verifies_and_a_lost_write_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let files = Files::new(dir.path(), 0).unwrap();
        let (pages, path) = (CHUNK_PAGES + 3, files.origin());
        let initial = |page, into: &mut [u8]| content::fill(page, 0, into);
        make(&path, (pages * PAGE_BYTES) as u64, initial, go_on).unwrap();
        let book = Book::new(pages);
        assert_eq!(verify(&path, &book, go_on).unwrap(), pages as u64);

        let step = Step { verb: Verb::Write, page: CHUNK_PAGES as u32 + 1, pages: 1 };
        assert_eq!(book.begin_write(&step), Some(vec![1]));
        book.end_write(&step);
        let error = verify(&path, &book, go_on).unwrap_err().to_string();
        assert!(error.contains("page 257") && error.contains("version 0 (stale)"), "{error}");
        drop(files);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }

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
        let files = Files::new(dir.path(), 0).unwrap();
        assert!(!leftover.exists() && dir.path().join("other").exists());
        assert!(!sockets.exists() && elsewhere.path().exists());
        let error = format!("{:#}", Files::new(dir.path(), 0).unwrap_err());
        assert!(error.contains("another demo runs there"), "{error}");
        drop(files);
        Files::new(dir.path(), 0).unwrap();
    }

    #[test]
    fn a_full_disk_is_told_before_it_is_full() {
        let dir = tempfile::tempdir().unwrap();
        let error = Files::new(dir.path(), 1 << 60).unwrap_err().to_string();
        assert!(error.contains("free; the demo needs") && error.contains("--dir"), "{error}");
    }
}
