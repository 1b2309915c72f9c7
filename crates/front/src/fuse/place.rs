// SPDX-License-Identifier: MIT OR Apache-2.0
//! Prepares the PATH of a FUSE listener for mounting.
//!
//! Purpose: distinguishes a file from a directory, creates a missing file, removes the mount of a killed server, and
//! rejects every other path with a one-line error.
//!
//! Invariants: a mount hides no data: a file or a directory at PATH must be empty, and a live server's mount is left in
//! place. A file that was created here is removed at the end, if nothing is mounted over it and it is empty.
//!
//! Why `statfs` detects a dead server: the kernel may answer `stat` from its cache. The call runs on its own thread,
//! because it blocks while the server is stopped.

use std::io::{self, ErrorKind};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use std::time::Duration;

use larder_volume::VolumeError;

use super::mounts;
use super::unmount::{FS_TYPE, detach};

/// How long an existing mount's server may take to answer.
const PROBE_BOUND: Duration = Duration::from_secs(5);
/// The most dead mounts at one path that are removed.
const MOST_STALE: usize = 16;

/// A path to mount over.
pub struct Place {
    /// The path without symbolic links.
    pub path: PathBuf,
    /// Type and permissions of the path.
    pub mode: u32,
    /// Whether it is a directory.
    pub is_dir: bool,
    /// Whether the file was created here.
    made: bool,
}

impl Place {
    /// Prepares PATH for mounting.
    ///
    /// # Errors
    /// PATH is not empty, is neither a file nor a directory, or is mounted by a live server.
    pub fn prepare(given: &Path) -> Result<Self, VolumeError> {
        let fail = |what: String| VolumeError::Usage(format!("fuse:{}: {what}", given.display()));
        let path = resolve(given).map_err(|e| fail(format!("cannot mount there: {e}")))?;
        clear_stale(given, &path)?;
        let made = match make_file(&path) {
            Ok(()) => true,
            Err(e) if e.kind() == ErrorKind::AlreadyExists => false,
            Err(e) => return Err(fail(format!("cannot be created: {e}"))),
        };
        let meta = path.symlink_metadata().map_err(|e| fail(e.to_string()))?;
        let place = Self { path, mode: meta.mode(), is_dir: meta.is_dir(), made };
        let full = match meta.is_dir() {
            true => {
                let mut entries = place.path.read_dir().map_err(|e| fail(e.to_string()))?;
                entries.next().is_some()
            }
            false if meta.is_file() => meta.len() > 0,
            false => return Err(fail("is neither a file nor a directory".to_owned())),
        };
        if full {
            let what = "is not empty; accepted: an empty file or directory, or a new file's name";
            return Err(fail(what.to_owned()));
        }
        Ok(place)
    }

    /// Removes the file if it was created here.
    pub fn clean_up(&self) {
        if !self.made || mounts::top(&self.path).is_some() {
            return;
        }
        let meta = self.path.symlink_metadata();
        if meta.is_ok_and(|meta| meta.is_file() && meta.len() == 0) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// The path in the form of mountinfo, without access to the file system mounted at its end.
fn resolve(given: &Path) -> io::Result<PathBuf> {
    let Some(name) = given.file_name() else { return given.canonicalize() };
    let parent = match given.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let path = parent.canonicalize()?.join(name);
    if mounts::top(&path).is_none() && path.is_symlink() {
        return path.canonicalize();
    }
    Ok(path)
}

fn make_file(path: &Path) -> io::Result<()> {
    std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).map(drop)
}

/// Removes the mounts of killed servers; rejects a mount whose server lives.
fn clear_stale(given: &Path, path: &Path) -> Result<(), VolumeError> {
    let refused = |what: String| VolumeError::Refused(format!("fuse:{}: {what}", given.display()));
    for _ in 0..MOST_STALE {
        let Some(mounted) = mounts::top(path) else { return Ok(()) };
        let fuse = mounted.kind == "fuse" || mounted.kind.starts_with("fuse.");
        if !fuse {
            return Ok(());
        }
        if !is_dead(path) {
            let what = "is mounted by another server; stop it or choose another path";
            return Err(refused(what.to_owned()));
        }
        if mounted.kind != FS_TYPE {
            let what = format!("is a dead mount of type {}; unmount it first", mounted.kind);
            return Err(refused(what));
        }
        tracing::info!("fuse:{}: removing the mount of a dead server", given.display());
        detach(path)
            .map_err(|e| refused(format!("cannot unmount a dead server's file system: {e}")))?;
    }
    Err(refused("has too many mounts of dead servers; unmount them first".to_owned()))
}

/// Whether this mount's server is gone. A server that does not answer in time counts as alive.
pub(super) fn is_dead(path: &Path) -> bool {
    let (answer, answered) = channel();
    let path = path.to_owned();
    let body = move || {
        // After a timeout the receiver is gone.
        let _ = answer.send(rustix::fs::statfs(&path).map(drop));
    };
    let asked = std::thread::Builder::new().name("larder-probe".to_owned()).spawn(body);
    asked.is_ok()
        && matches!(
            answered.recv_timeout(PROBE_BOUND),
            Ok(Err(rustix::io::Errno::NOTCONN | rustix::io::Errno::CONNABORTED))
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(path: &Path) -> String {
        Place::prepare(path).err().map(|e| e.to_string()).unwrap_or_default()
    }

    #[test]
    fn a_created_file_is_removed_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("new");
        let place = Place::prepare(&path).unwrap();
        assert!(path.is_file() && !place.is_dir);
        place.clean_up();
        assert!(!path.exists());
        let empty = dir.path().join("empty");
        std::fs::write(&empty, "").unwrap();
        Place::prepare(&empty).unwrap().clean_up();
        assert!(empty.exists(), "it was there before");
    }

    #[test]
    fn data_is_not_hidden_by_a_mount() {
        let dir = tempfile::tempdir().unwrap();
        let full = dir.path().join("full");
        std::fs::write(&full, "precious").unwrap();
        assert!(refusal(&full).contains("is not empty"), "{}", refusal(&full));
        assert!(refusal(dir.path()).contains("is not empty"));
        assert!(refusal(&dir.path().join("no/way")).contains("No such file"));
        assert!(refusal(&full.join("x")).contains("Not a directory"));
        assert!(refusal(Path::new("/dev/null")).contains("neither a file nor a directory"));
        assert_eq!(std::fs::read(&full).unwrap(), b"precious");
    }
}
