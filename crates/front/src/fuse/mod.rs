// SPDX-License-Identifier: MIT OR Apache-2.0
//! The FUSE door: serves a volume as one file, on which a loop device can carry a file system.
//!
//! Purpose: for kernels that have neither `nbd` nor `ublk`. `fuse:PATH` mounts the file over PATH, which is created if
//! it does not exist. If PATH is a directory, the mount is a directory that contains the file, under the export's name
//! or [`DEFAULT_NAME`].
//!
//! A request is read from the kernel by a reader thread (`files`), counted by `gate` and extended to whole blocks by
//! `bytes`. A worker of the volume executes it and replies to the kernel. The mount itself is made and removed by a
//! [`Mounter`], which may be another process.
//!
//! Invariants: after the door is closed, PATH is as it was before (`place`); closing takes bounded time. If the process
//! dies, the kernel closes the connection: users of the file get an error at once. Another process that mounted it
//! unmounts it; otherwise the next server removes the dead mount.
//!
//! Why a file at PATH and not always a directory: `losetup PATH` and `--listen fuse:PATH` then name the same path, as
//! for a socket.

mod bytes;
pub mod descriptor;
pub mod error;
pub mod files;
mod gate;
pub mod mount;
pub mod mounter;
pub mod mounts;
pub mod place;
mod unmount;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use larder_volume::{Volume, VolumeError};

use self::bytes::Bytes;
use self::error::MountError;
use self::files::Files;
use self::gate::Gate;
pub use self::gate::PAYLOAD_BYTES;
use self::mount::Unmounted;
use self::mounter::{Mounted, Mounter};
use crate::nbd::export::Export;

/// The file's name in a directory when the export has none.
pub const DEFAULT_NAME: &str = "volume";
/// How long writes that began before the volume was a file may take.
const WRITES_BOUND: Duration = Duration::from_secs(10);
/// Time between two attempts to unmount a file system in use.
const POLL: Duration = Duration::from_millis(20);
/// The most reader threads: a reader only passes requests on, so a few keep up with all workers.
const MOST_READERS: usize = 4;

/// A mounted volume; dropping it unmounts without waiting for the users of the file.
pub struct FuseDoor {
    volume: Arc<Volume>,
    mounter: Arc<dyn Mounter>,
    /// The PATH of the listener.
    path: PathBuf,
    gate: Gate,
    file: PathBuf,
    closed: bool,
}

impl FuseDoor {
    /// Mounts the volume at `path`, for users that may do what clients of `export` may: the terms of the mounter must be
    /// those of the export.
    ///
    /// # Errors
    /// The path cannot be used, or `mounter` may not mount.
    pub fn open(
        path: &Path,
        volume: &Arc<Volume>,
        export: &Export,
        mounter: &Arc<dyn Mounter>,
    ) -> Result<Self, VolumeError> {
        volume.begin_overlaps(WRITES_BOUND)?;
        let mounted = mounter.mount(path)?;
        let (gate, file) = Self::serve(mounted, volume, export).map_err(|what| {
            let _ = mounter.detach(path);
            VolumeError::Usage(format!("fuse:{}: {what}", path.display()))
        })?;
        volume.add_file(file.clone());
        let (volume, mounter) = (Arc::clone(volume), Arc::clone(mounter));
        Ok(Self { volume, mounter, path: path.to_owned(), gate, file, closed: false })
    }

    fn serve(
        Mounted { device, path, is_dir }: Mounted,
        volume: &Arc<Volume>,
        export: &Export,
    ) -> Result<(Gate, PathBuf), MountError> {
        let Export { name: given, read_only, passive, .. } = export;
        let name = OsString::from(if given.is_empty() { DEFAULT_NAME } else { given });
        if is_dir && Path::new(&name).file_name() != Some(&name) {
            return Err(MountError::ExportName(given.clone()));
        }
        let file = if is_dir { path.join(&name) } else { path };
        let gate = Gate::default();
        let name = is_dir.then_some(name);
        let files = Files::new(Bytes::of(volume, *passive), gate.clone(), name, *read_only);
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let threads = cores.clamp(2, MOST_READERS);
        files::serve(files, device, threads).map_err(MountError::Handshake)?;
        Ok((gate, file))
    }

    /// The volume's file.
    #[must_use]
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// The volume.
    pub(crate) fn volume(&self) -> &Arc<Volume> {
        &self.volume
    }

    /// Closes the door. Waits up to half of `bound` until the file is unused, then unmounts it from its users, and
    /// waits for the requests in flight for the rest. `hurry` returns whether to stop waiting.
    pub fn close(mut self, bound: Duration, hurry: impl Fn() -> bool) {
        let begin = Instant::now();
        let mut warned = false;
        self.gate.expect_end();
        // If it cannot be unmounted, its users have the same time to end.
        while !matches!(self.mounter.unmount(&self.path), Ok(Unmounted::Done)) {
            if hurry() || begin.elapsed() >= bound / 2 {
                break;
            }
            if !std::mem::replace(&mut warned, true) {
                tracing::warn!("{} is in use; waiting for its users", self.file.display());
            }
            std::thread::sleep(POLL);
        }
        self.shut();
        while !hurry() && begin.elapsed() < bound && !self.gate.is_empty_by(Instant::now() + POLL) {
        }
    }

    /// Rejects further requests, and unmounts if the file system is still mounted.
    fn shut(&mut self) {
        if std::mem::replace(&mut self.closed, true) {
            return;
        }
        self.gate.close();
        if let Err(e) = self.mounter.detach(&self.path) {
            tracing::warn!("{} stays mounted: {e}", self.path.display());
        }
        self.volume.remove_file(&self.file);
    }
}

impl Drop for FuseDoor {
    fn drop(&mut self) {
        self.shut();
    }
}
