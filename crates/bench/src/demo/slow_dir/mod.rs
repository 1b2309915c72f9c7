// SPDX-License-Identifier: MIT OR Apache-2.0
//! A directory on a modelled slow disk: `larder slow-dir`.
//!
//! Purpose: to try whatever keeps its data in files, a database above all, on a disk that this machine does not have.
//! A directory is mounted once more by FUSE; what is read and written there passes no page cache, and takes the time
//! of one of the device models (`crates/model`), the same as of `slow+` devices.
//!
//! | the ... | file |
//! | --- | --- |
//! | answers to the kernel | `files.rs` |
//! | names and attributes; nodes | `names.rs`, `nodes.rs` |
//! | time that operations take; where on the disk files lie | `disk.rs`, `extents.rs` |
//! | who reads in order; what is asked to be ready | `ahead.rs`, `wanted.rs` |
//! | what is counted | `counts.rs` |
//!
//! Invariants: the directory below has at any time what was written; the mount is gone with its server, or explained by
//! the next one there (`place.rs` of `larder-front`). Only this process's own mount is taken away.
//!
//! Why not a file system on a `slow+` volume: that takes a loop device, a file system with caches of its own, and room
//! for a whole disk.

mod ahead;
mod counts;
mod disk;
mod extents;
mod files;
mod names;
mod nodes;
mod options;
mod wanted;

use std::fs::File;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use larder_front::fuse::error::MountError;
use larder_front::fuse::files::serve_session;
use larder_front::fuse::mount::{self, Mount, Terms, Unmounted};
use larder_front::fuse::place::Place;
use larder_io::Paced;
use larder_volume::VolumeError;
use rustix::fs::OFlags;

pub use self::counts::STATS;
use self::disk::Disk;
use self::files::Files;
use self::nodes::Nodes;
pub use self::options::SlowDirOptions;
use self::wanted::Kernel;
use crate::process::permit_descriptors;

/// Threads that read requests: each waits for files below, not for the model.
const READERS: usize = 4;
/// Time between two looks at a mount that is in use.
const POLL: Duration = Duration::from_millis(20);
/// A disk is at least so large.
const LEAST_BYTES: u64 = 1 << 30;

/// A mounted directory; dropping it takes the mount away without waiting for its users.
pub struct SlowDir {
    mount: Mount,
    session: JoinHandle<()>,
    ending: Arc<AtomicBool>,
    nodes: Arc<Nodes>,
    device: String,
    closed: bool,
}

impl SlowDir {
    /// Mounts it.
    ///
    /// # Errors
    /// One line on what cannot be.
    pub fn open(options: &SlowDirOptions) -> Result<Self, VolumeError> {
        let usage =
            |path: &Path, what: &str| VolumeError::Usage(format!("{}: {what}", path.display()));
        // Descriptors of all files that the kernel knows are kept.
        permit_descriptors();
        let top = open_directory(&options.source).map_err(|e| usage(&options.source, &e))?;
        let place = place(options)?;
        let bytes = options
            .disk_bytes
            .unwrap_or_else(|| used_bytes(&options.source).saturating_mul(2).max(LEAST_BYTES));
        let model = Paced::new(&options.device, bytes, options.seed).map_err(VolumeError::Usage)?;
        let nodes = Nodes::new(top.into()).map_err(|e| usage(&options.source, &e.to_string()))?;
        let nodes = Arc::new(nodes);
        let device = options.device.clone();
        let disk = Disk::new(model, bytes);
        let (kernel, told) = Kernel::new();
        let files = Files::new(Arc::clone(&nodes), disk, kernel, options);
        let terms = Terms { all: rustix::process::geteuid().is_root(), read_only: false };
        let unmounted = |e: MountError| usage(&options.at, &e.to_string());
        let (fd, mount) = mount::mount(&place, "larder-slow", terms).map_err(unmounted)?;
        let ending = Arc::new(AtomicBool::new(false));
        let ends = Arc::clone(&ending);
        match serve_session(files, fd, READERS, move || ends.load(Relaxed)) {
            Ok((session, notifier)) => {
                wanted::forget(told, notifier);
                Ok(Self { mount, session, ending, nodes, device, closed: false })
            }
            Err(e) => {
                let _ = mount.detach();
                Err(unmounted(MountError::Handshake(e)))
            }
        }
    }

    /// Whether another process has unmounted it.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.session.is_finished()
    }

    /// Unmounts it when no process uses it; after `bound`, or when `hurry` returns true, also while it is in use. Returns
    /// the counters as JSON.
    pub fn close(mut self, bound: Duration, hurry: impl Fn() -> bool) -> String {
        self.ending.store(true, Relaxed);
        let begin = Instant::now();
        let mut told = false;
        while self.mount.unmount() == Unmounted::Busy && !hurry() && begin.elapsed() < bound {
            if !std::mem::replace(&mut told, true) {
                tracing::warn!("{} is in use; waiting for its users", self.mount.path().display());
            }
            std::thread::sleep(POLL);
        }
        self.shut();
        let begin = Instant::now();
        while !self.has_ended() && !hurry() && begin.elapsed() < bound {
            std::thread::sleep(POLL);
        }
        self.nodes.groups.json(&self.device).to_string()
    }

    fn shut(&mut self) {
        if std::mem::replace(&mut self.closed, true) {
            return;
        }
        self.ending.store(true, Relaxed);
        if let Err(e) = self.mount.detach() {
            tracing::warn!("{} stays mounted: {e}", self.mount.path().display());
        }
    }
}

impl Drop for SlowDir {
    fn drop(&mut self) {
        self.shut();
    }
}

fn open_directory(path: &Path) -> Result<File, String> {
    let mut options = File::options();
    options.read(true).custom_flags((OFlags::PATH | OFlags::DIRECTORY).bits() as i32);
    options.open(path).map_err(|e| match e.kind() {
        std::io::ErrorKind::NotADirectory => "is not a directory".to_owned(),
        _ => format!("cannot be opened: {e}"),
    })
}

/// Where to mount: an empty directory, neither of the two in the other.
fn place(options: &SlowDirOptions) -> Result<Place, VolumeError> {
    let missing =
        options.at.symlink_metadata().is_err_and(|e| e.kind() == std::io::ErrorKind::NotFound);
    let what = |what: &str| VolumeError::Usage(format!("{}: {what}", options.at.display()));
    if missing {
        return Err(what("is not there; accepted: an empty directory"));
    }
    let place = Place::prepare(&options.at)?;
    if !place.is_dir {
        place.clean_up();
        return Err(what("is not a directory; accepted: an empty directory"));
    }
    let source = options.source.canonicalize().map_err(|e| what(&e.to_string()))?;
    if source.starts_with(&place.path) || place.path.starts_with(&source) {
        return Err(what("and the directory to be mounted there lie in each other"));
    }
    Ok(place)
}

/// Bytes that the files below a directory take, as far as they can be seen.
fn used_bytes(directory: &Path) -> u64 {
    let Ok(entries) = directory.read_dir() else { return 0 };
    let bytes = |entry: std::fs::DirEntry| match entry.metadata() {
        Ok(meta) if meta.is_dir() => used_bytes(&entry.path()),
        Ok(meta) if meta.is_file() => meta.len(),
        _ => 0,
    };
    entries.flatten().map(bytes).fold(0, u64::saturating_add)
}
