// SPDX-License-Identifier: MIT OR Apache-2.0
//! Directories of the database: its files, their copy, where they are mounted slow, flash, sockets.
//!
//! Invariants: those of [`Place`]; what the library keeps in shared memory goes with the guard too.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};

use super::shared;
use super::tools::Tools;
use crate::demo::options::DemoOptions;
use crate::demo::place::Place;
use crate::demo::system::command;

/// A copy may take so long.
const COPY_BOUND: Duration = Duration::from_secs(900);

/// See the module.
pub struct Directories {
    place: Place,
}

impl Directories {
    /// Makes the directories.
    ///
    /// # Errors
    /// They cannot be made, or not be got to by the server's user.
    pub fn new(options: &DemoOptions, tools: &Tools, library: &Path, bytes: u64) -> Result<Self> {
        let place = Place::new(options, bytes)?;
        for directory in [place.devices(), place.sockets()] {
            // Others must get through.
            fs::set_permissions(directory, fs::Permissions::from_mode(0o755))?;
        }
        let all = Self { place };
        for directory in [all.source(), all.mount_point(), all.sockets()] {
            fs::create_dir(&directory)?;
            tools.give(&directory)?;
        }
        tools.reach(&all.source())?;
        fs::copy(library, all.library()).with_context(|| library.display().to_string())?;
        Ok(all)
    }

    /// The directory below the slow one.
    #[must_use]
    pub fn source(&self) -> PathBuf {
        self.place.devices().join("source")
    }

    /// The copy that each row begins from.
    fn kept(&self) -> PathBuf {
        self.place.devices().join("kept")
    }

    /// The slow directory.
    #[must_use]
    pub fn mount_point(&self) -> PathBuf {
        self.place.mount_point()
    }

    /// The directory on flash.
    #[must_use]
    pub fn flash(&self) -> PathBuf {
        self.place.flash()
    }

    /// The library, where the server's user gets to it.
    #[must_use]
    pub fn library(&self) -> PathBuf {
        self.place.devices().join("larder.so")
    }

    /// The load.
    #[must_use]
    pub fn scripts(&self) -> PathBuf {
        self.place.devices().join("tpcc")
    }

    /// The server's socket.
    #[must_use]
    pub fn sockets(&self) -> PathBuf {
        self.place.sockets().join("pg")
    }

    /// The server's log.
    #[must_use]
    pub fn log(&self) -> PathBuf {
        self.place.devices().join("server.log")
    }

    /// The log of the slow directory's server.
    #[must_use]
    pub fn slow_log(&self) -> PathBuf {
        self.place.devices().join("slow-dir.log")
    }

    /// Keeps what is in the source.
    ///
    /// # Errors
    /// It cannot be copied.
    pub fn keep(&self, stopped: impl Fn() -> Result<()>) -> Result<()> {
        copy(&self.source(), &self.kept(), stopped)
    }

    /// Makes the source what was kept.
    ///
    /// # Errors
    /// It cannot be copied.
    pub fn renew(&self, stopped: impl Fn() -> Result<()>) -> Result<()> {
        fs::remove_dir_all(self.source()).context("the copy of the row before")?;
        copy(&self.kept(), &self.source(), stopped)
    }

    /// Makes an empty flash.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn make_flash(&self, tools: &Tools) -> Result<()> {
        fs::create_dir(self.flash())?;
        tools.give(&self.flash())
    }

    /// The cluster is made: its shared memory goes with this, or with what a killed demo left.
    ///
    /// # Errors
    /// It cannot be noted.
    pub fn owns(&self, identifier: u64) -> Result<()> {
        shared::note(self.place.devices(), identifier)
    }

    /// Memory that it takes.
    #[must_use]
    pub fn shared_bytes(&self) -> u64 {
        let bytes = |path: &PathBuf| path.metadata().map_or(0, |meta| meta.blocks() * 512);
        shared::files(self.place.devices()).iter().map(bytes).sum()
    }

    /// Removes flash and that memory.
    ///
    /// # Errors
    /// They cannot be removed.
    pub fn clear_flash(&self) -> Result<()> {
        shared::clear(self.place.devices())?;
        if self.flash().exists() {
            fs::remove_dir_all(self.flash()).context("the flash of the row")?;
        }
        Ok(())
    }
}

impl Drop for Directories {
    fn drop(&mut self) {
        let _ = shared::clear(self.place.devices());
    }
}

fn copy(from: &Path, to: &Path, stopped: impl Fn() -> Result<()>) -> Result<()> {
    let words = ["-a", "--reflink=auto"].map(AsRef::as_ref);
    let words = words.into_iter().chain([from.as_os_str(), to.as_os_str()]);
    command::run("cp", words, COPY_BOUND, stopped).map(drop)
}
