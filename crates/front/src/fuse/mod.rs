// SPDX-License-Identifier: MIT OR Apache-2.0
//! The FUSE door: a volume as one file, which a loop device can carry a file system on.
//!
//! Purpose: for kernels that have neither `nbd` nor `ublk`. `fuse:PATH` makes PATH the file (it is
//! mounted over; made when there is nothing) or, when PATH is a directory, a directory with the
//! file in it, under the export's name or [`DEFAULT_NAME`].
//!
//! How a request goes: a reader thread takes it from the kernel (`files`), `gate` counts it,
//! `bytes` makes whole blocks of it, the volume's worker does it and answers the kernel.
//!
//! Invariants: PATH is what it was before once the door is closed (`place`); closing is bounded.
//! When the process dies, the kernel closes the connection: whoever uses the file gets an error
//! at once, and the next server clears the dead mount away.
//!
//! Why a file of its own at PATH and not always a directory: `losetup PATH` and `--listen
//! fuse:PATH` then name the same thing, as for a socket.

mod bytes;
pub mod error;
pub mod files;
mod gate;
pub mod mount;
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
use self::mount::{Mount, Unmounted};
use self::place::Place;

/// The file's name in a directory when the export has none.
pub const DEFAULT_NAME: &str = "volume";
/// Time between two looks at a mount that is in use.
const POLL: Duration = Duration::from_millis(20);
/// The most threads that read requests: each is a hand-over, not work, and a few keep up with all
/// workers.
const MOST_READERS: usize = 4;

/// Looks whether something could be mounted at `path`; what a dead server left there is cleared away.
///
/// # Errors
/// When that path cannot be used.
pub(crate) fn check(path: &Path) -> Result<(), VolumeError> {
    Place::prepare(path).map(|place| place.clean_up())
}

/// A mounted volume; dropping it takes the mount away without waiting for its users.
pub struct FuseDoor {
    volume: Arc<Volume>,
    mount: Mount,
    place: Place,
    gate: Gate,
    file: PathBuf,
    closed: bool,
}

impl FuseDoor {
    /// Mounts the volume at `path`.
    ///
    /// # Errors
    /// When that path cannot be used, or this process may not mount.
    pub fn open(path: &Path, volume: &Arc<Volume>) -> Result<Self, VolumeError> {
        volume.begin_overlaps()?;
        let place = Place::prepare(path)?;
        let opened = Self::mount(&place, volume);
        let (mount, gate, file) = opened.map_err(|what| {
            place.clean_up();
            VolumeError::Usage(format!("fuse:{}: {what}", path.display()))
        })?;
        volume.add_file(file.clone());
        Ok(Self { volume: Arc::clone(volume), mount, place, gate, file, closed: false })
    }

    fn mount(place: &Place, volume: &Arc<Volume>) -> Result<(Mount, Gate, PathBuf), MountError> {
        let export = &volume.config().name;
        let name = OsString::from(if export.is_empty() { DEFAULT_NAME } else { export });
        if place.is_dir && Path::new(&name).file_name() != Some(&name) {
            return Err(MountError::ExportName(export.clone()));
        }
        let file = if place.is_dir { place.path.join(&name) } else { place.path.clone() };
        let gate = Gate::default();
        let name = place.is_dir.then_some(name);
        let files = Files::new(Bytes::of(volume), gate.clone(), name);
        let (device, mount) = mount::mount(place, "larder", false)?;
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let threads = cores.clamp(2, MOST_READERS);
        if let Err(e) = files::serve(files, device, threads) {
            let _ = mount.detach();
            return Err(MountError::Greeting(e));
        }
        Ok((mount, gate, file))
    }

    /// The file that is the volume.
    #[must_use]
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// The volume behind it.
    pub(crate) fn volume(&self) -> &Arc<Volume> {
        &self.volume
    }

    /// Closes the door: waits for half of `bound` until nobody uses the file, then takes it away
    /// from them; what is under way is answered within the rest. `hurry` is asked whether to wait
    /// no longer.
    pub fn close(mut self, bound: Duration, hurry: impl Fn() -> bool) {
        let begin = Instant::now();
        let mut told = false;
        self.gate.expect_end();
        while self.mount.unmount() == Unmounted::Busy {
            if hurry() || begin.elapsed() >= bound / 2 {
                break;
            }
            if !std::mem::replace(&mut told, true) {
                tracing::warn!("{} is in use; waiting for its users", self.file.display());
            }
            std::thread::sleep(POLL);
        }
        self.shut();
        while !hurry() && begin.elapsed() < bound && !self.gate.is_empty_by(Instant::now() + POLL) {
        }
    }

    /// Lets no request in any more, and takes the mount away if it is still there.
    fn shut(&mut self) {
        if std::mem::replace(&mut self.closed, true) {
            return;
        }
        self.gate.close();
        if let Err(e) = self.mount.detach() {
            tracing::warn!("{} stays mounted: {e}", self.mount.path().display());
        }
        self.place.clean_up();
        self.volume.remove_file(&self.file);
    }
}

impl Drop for FuseDoor {
    fn drop(&mut self) {
        self.shut();
    }
}
