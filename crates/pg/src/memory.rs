// SPDX-License-Identifier: MIT OR Apache-2.0
//! The shared memory of a start and the log below it: created, opened, or reused after the server died.

use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use larder_core::pagelog::Geometry;
use larder_private::Directory;
use larder_shared::{Memory, Pages, Shape};
use rustix::fs::{AtFlags, StatxFlags};

use crate::area::{Area, LAYOUT, Mark};
use crate::control;
use crate::error::Unusable;
use crate::here::Armed;
use crate::instance::Instance;
use crate::mutant::{Mutant, is_active};
use crate::place::Memories;
use crate::policy::Begins;

/// A start of the server, and its log.
pub struct Start<'a> {
    /// The server.
    pub server: &'a Instance,
    /// How it begins.
    pub begins: Begins,
    /// The log.
    pub shape: Shape,
    /// The directory on flash.
    pub directory: &'a Arc<Directory>,
    /// Where its memory is.
    pub memories: &'a Memories,
    /// Number of the flash file, see [`identity`].
    pub flash: u64,
    /// Its length.
    pub flash_bytes: u64,
}

/// The origin of the log of a start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// The memory of the server that died still exists.
    AsLeft,
    /// Flash has the log of a clean stop.
    Warm,
    /// Flash has the log of before a crash of the machine.
    Recovered,
    /// It is new.
    Empty,
}

impl How {
    /// As the server's log has it.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            Self::AsLeft => "as the last start left it",
            Self::Warm => "warm after a stop",
            Self::Recovered => "recovered from flash",
            Self::Empty => "empty",
        }
    }
}

impl Start<'_> {
    /// The data directory.
    #[must_use]
    pub fn data(&self) -> &Path {
        Path::new(&self.server.data)
    }

    /// The memory of a server of this user that died in this boot, over this flash file.
    ///
    /// # Errors
    /// If the memories cannot be opened.
    pub fn left(&self) -> io::Result<Option<Arc<Memory>>> {
        Ok(self.memories.files()?.iter().find_map(|file| self.left_in(file)))
    }

    fn left_in(&self, file: &OwnedFd) -> Option<Arc<Memory>> {
        let memory = Memory::join(file).ok()?;
        if memory.user_words().len() < Area::words(0) {
            return None;
        }
        let area = Area::of(&memory);
        let here = area.get(Mark::Boot) == boot() && area.get(Mark::FlashFile) == self.flash;
        (here && area.get(Mark::Layout) == LAYOUT).then_some(memory)
    }

    /// Whether `pg_control` is the one that was written last, or that was about to be written.
    #[must_use]
    pub fn knows_control(&self, area: &Area) -> bool {
        let known = [Mark::Control, Mark::ControlNext].map(|mark| area.get(mark));
        known.contains(&self.server.control.hash) || is_active(Mutant::TrustsDirectory)
    }
}

/// Whether two logs have the same geometry, whichever volume id they have.
#[must_use]
pub fn is_same(log: Geometry, wanted: Geometry) -> bool {
    Geometry { volume: 0, ..log } == Geometry { volume: 0, ..wanted }
}

/// Starts the log that is on flash in new memory.
///
/// # Errors
/// If it cannot be used.
pub fn open(armed: &Armed) -> Result<(), Unusable> {
    Pages::start(&armed.memory, armed.devices(true))?;
    Ok(())
}

/// Formats the log, and creates memory for it in this file, which may have been that of the previous memory.
///
/// # Errors
/// If flash or the memory cannot be used.
pub fn format(armed: Armed, file: &OwnedFd, shape: Shape) -> Result<(Armed, How), Unusable> {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let time = since.map_or(0, |since| since.as_nanos() as u64);
    let volume = time ^ u64::from(std::process::id()) << 40 | 1;
    let log = Geometry { volume, ..shape.log };
    let flash = File::from(armed.flash.try_clone()?);
    for (at, bytes) in log.blank() {
        flash.write_all_at(&bytes, at)?;
    }
    flash.sync_data()?;
    let memory = Memory::create(file, Shape { log, ..shape })?;
    let armed = Armed { memory, ..armed };
    open(&armed)?;
    Ok((armed, How::Empty))
}

/// Hash of the boot.
#[must_use]
pub fn boot() -> u64 {
    control::hash(&fs::read("/proc/sys/kernel/random/boot_id").unwrap_or_default())
}

/// A number that identifies a file and differs for a copy: from its inode and, since inodes are reused, its time of
/// creation if the file system records it.
///
/// # Errors
/// If the file cannot be inspected.
pub fn identity(file: &OwnedFd) -> io::Result<u64> {
    let wanted = StatxFlags::INO | StatxFlags::BTIME;
    let stat = rustix::fs::statx(file, c"", AtFlags::EMPTY_PATH, wanted)?;
    let birth = (stat.stx_btime.tv_sec as u64, u64::from(stat.stx_btime.tv_nsec));
    let words = [stat.stx_ino, birth.0, birth.1];
    Ok(control::hash(&words.map(u64::to_le_bytes).concat()))
}
