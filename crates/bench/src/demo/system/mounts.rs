// SPDX-License-Identifier: MIT OR Apache-2.0
//! Loop devices and mounts that end with the demo.
//!
//! Invariants: each is taken away by its guard on every path, lazily where it cannot be otherwise;
//! [`clear`] takes away what a demo that was killed left below a directory, and nothing else. Every
//! step has a bound.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use larder_front::fuse::mounts::below;

use super::command::run;

/// How long a command may take: an unmount writes back what is dirty, to a slow device.
const BOUND: Duration = Duration::from_secs(30);
/// How long a loop device may take to go.
const GONE_BOUND: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(5);
/// What the kernel writes behind the name of a file that is gone.
const DELETED: &str = " (deleted)";

fn go_on() -> Result<()> {
    Ok(())
}

/// A loop device.
#[derive(Debug)]
pub struct Loop {
    file: PathBuf,
    device: PathBuf,
    attached: bool,
}

impl Loop {
    /// Over a file, with direct I/O.
    ///
    /// # Errors
    /// There is none, or not of such a file.
    pub fn attach(file: &Path, stopped: impl Fn() -> Result<()>) -> Result<Self> {
        let words = ["--direct-io=on", "--show", "-f"].map(AsRef::as_ref);
        let words = words.into_iter().chain([file.as_os_str()]);
        let device = PathBuf::from(run("losetup", words, BOUND, stopped)?);
        ensure!(device.starts_with("/dev"), "losetup named {} as device", device.display());
        Ok(Self { file: file.to_owned(), device, attached: true })
    }

    /// The device.
    #[must_use]
    pub fn device(&self) -> &Path {
        &self.device
    }

    /// Takes it away and waits until it is gone.
    ///
    /// # Errors
    /// It stays.
    pub fn detach(mut self) -> Result<()> {
        self.attached = false;
        let begin = Instant::now();
        if self.is_ours() {
            // It may go by itself meanwhile.
            let _ = detach(&self.device);
        }
        while self.is_ours() {
            ensure!(begin.elapsed() < GONE_BOUND, "{} is still in use", self.device.display());
            std::thread::sleep(POLL);
        }
        Ok(())
    }

    /// Whether the device is still over our file; another process may take it next.
    fn is_ours(&self) -> bool {
        backing(&self.device).is_some_and(|file| is_below(&file, &self.file))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        if self.attached && self.is_ours() {
            // One that stays is seen by the next demo, or in `losetup -l`.
            let _ = detach(&self.device);
        }
    }
}

fn detach(device: &Path) -> Result<()> {
    run("losetup", ["-d".as_ref(), device.as_os_str()], BOUND, go_on).map(drop)
}

/// The file that a loop device is over, as the kernel reports it.
fn backing(device: &Path) -> Option<String> {
    let path = Path::new("/sys/block").join(device.file_name()?).join("loop/backing_file");
    Some(std::fs::read_to_string(path).ok()?.trim_end_matches('\n').to_owned())
}

/// A mounted file system.
#[derive(Debug)]
pub struct Mounted {
    at: PathBuf,
    mounted: bool,
}

impl Mounted {
    /// Mounts the ext4 of a device at a directory.
    ///
    /// # Errors
    /// It cannot be mounted.
    pub fn mount(device: &Path, at: &Path, stopped: impl Fn() -> Result<()>) -> Result<Self> {
        // A guard from here on: a command that is killed may have mounted.
        let mut mounted = Self { at: at.to_owned(), mounted: true };
        let words = ["-t", "ext4", "-o", "noatime"].map(AsRef::as_ref);
        let words = words.into_iter().chain([device.as_os_str(), at.as_os_str()]);
        let result = run("mount", words, BOUND, stopped);
        mounted.mounted = result.is_ok() || !below(at).is_empty();
        result?;
        // A device in use goes with its last user: with this mount, even if the demo is killed and
        // the file below it has lost its name before.
        detach(device)?;
        Ok(mounted)
    }

    /// Where it is.
    #[must_use]
    pub fn at(&self) -> &Path {
        &self.at
    }

    /// Takes it away; everything written is on the device then.
    ///
    /// # Errors
    /// It is in use, or takes too long.
    pub fn unmount(mut self) -> Result<()> {
        let done = run("umount", [&self.at], BOUND, go_on);
        self.mounted = done.is_err();
        done.map(drop)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if self.mounted {
            unmount(&self.at);
        }
    }
}

/// Takes a mount away, from those who use it too if it must be.
fn unmount(at: &Path) {
    if run("umount", [at], BOUND, go_on).is_err() {
        let words = ["--lazy".as_ref(), at.as_os_str()];
        let _ = run("umount", words, BOUND, go_on);
    }
}

/// Takes away what is mounted below a directory, and loop devices over files below it.
///
/// # Errors
/// Something stays.
pub fn clear(dir: &Path) -> Result<()> {
    // Later mounts lie above earlier ones, and a loop device holds the file that it is over.
    for at in below(dir).iter().rev() {
        let _ = run("umount", [at], BOUND, go_on);
    }
    for device in loops_below(dir) {
        let _ = detach(&device);
    }
    below(dir).iter().rev().for_each(|at| unmount(at));
    let left: Vec<_> = below(dir).into_iter().chain(loops_below(dir)).collect();
    let names: Vec<_> = left.iter().map(|p| p.display().to_string()).collect();
    ensure!(
        left.is_empty(),
        "a demo that was killed left {} behind, which cannot be taken away; unmount it or use \
         another --dir",
        names.join(" ")
    );
    Ok(())
}

/// Loop devices over files below a directory.
fn loops_below(dir: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir("/sys/block") else { return Vec::new() };
    let names = entries.flatten().map(|entry| PathBuf::from("/dev").join(entry.file_name()));
    names.filter(|device| backing(device).is_some_and(|file| is_below(&file, dir))).collect()
}

fn is_below(backing: &str, dir: &Path) -> bool {
    Path::new(backing.strip_suffix(DELETED).unwrap_or(backing)).starts_with(dir)
}

/// Checks that a file system needs no repair.
///
/// # Errors
/// It does.
pub fn check_clean(device: &Path, stopped: impl Fn() -> Result<()>) -> Result<()> {
    let words = ["-n", "-f"].map(AsRef::as_ref).into_iter().chain([device.as_os_str()]);
    run("fsck.ext4", words, BOUND, stopped).context("the file system is damaged").map(drop)
}

/// Makes a file system: nothing is left to be done in the background, as that would be measured.
///
/// # Errors
/// It cannot be made.
pub fn make(device: &Path, stopped: impl Fn() -> Result<()>) -> Result<()> {
    let options = "lazy_itable_init=0,lazy_journal_init=0,nodiscard";
    let words = ["-q", "-F", "-b", "4096", "-m", "0", "-N", "256", "-E", options];
    let words = words.map(AsRef::as_ref).into_iter().chain([device.as_os_str()]);
    run("mkfs.ext4", words, BOUND, stopped).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_lies_below_is_ours() {
        let dir = Path::new("/a/b");
        assert!(is_below("/a/b/larder-demo-1/volume", dir));
        assert!(is_below("/a/b/x (deleted)", dir));
        assert!(!is_below("/a/bus/x", dir) && !is_below("/b", dir));
    }

    #[test]
    fn where_nothing_is_left_nothing_is_done() {
        let dir = tempfile::tempdir().unwrap();
        clear(dir.path()).unwrap();
        assert!(loops_below(dir.path()).is_empty());
    }
}
