// SPDX-License-Identifier: MIT OR Apache-2.0
//! Directories of the demo: the database, its copy, where it is mounted slow, flash, sockets.
//!
//! Invariants: as those of [`Files`]: all of it goes with the guard, and what a killed demo left goes when the next one
//! begins, its processes first. What the library keeps in shared memory goes too.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};

use super::super::DemoOptions;
use super::super::files::Files;
use super::super::oltp::command;
use super::shared;
use super::tools::Tools;

/// A copy may take so long.
const COPY_BOUND: Duration = Duration::from_secs(900);

/// See the module.
pub struct Place {
    files: Files,
    top: PathBuf,
}

impl Place {
    /// Makes the directories.
    ///
    /// # Errors
    /// They cannot be made, or not be got to by the server's user.
    pub fn new(options: &DemoOptions, tools: &Tools, library: &Path, bytes: u64) -> Result<Self> {
        let files = Files::new(&options.dir.join("work"), bytes)?;
        let origin = files.origin();
        let top = origin.parent().context("a file has a directory")?.to_owned();
        for directory in [&top, files.sockets()] {
            // Others must get through.
            fs::set_permissions(directory, fs::Permissions::from_mode(0o755))?;
        }
        let place = Self { files, top };
        for directory in [place.source(), place.mount_point(), place.sockets()] {
            fs::create_dir(&directory)?;
            tools.give(&directory)?;
        }
        tools.reach(&place.source())?;
        fs::copy(library, place.library()).with_context(|| library.display().to_string())?;
        Ok(place)
    }

    /// The directory below the slow one.
    #[must_use]
    pub fn source(&self) -> PathBuf {
        self.top.join("source")
    }

    /// The copy that each row begins from.
    fn kept(&self) -> PathBuf {
        self.top.join("kept")
    }

    /// The slow directory.
    #[must_use]
    pub fn mount_point(&self) -> PathBuf {
        self.files.mount_point()
    }

    /// The directory on flash.
    #[must_use]
    pub fn flash(&self) -> PathBuf {
        self.files.flash()
    }

    /// The library, where the server's user gets to it.
    #[must_use]
    pub fn library(&self) -> PathBuf {
        self.top.join("larder.so")
    }

    /// The load.
    #[must_use]
    pub fn scripts(&self) -> PathBuf {
        self.top.join("tpcc")
    }

    /// The server's socket.
    #[must_use]
    pub fn sockets(&self) -> PathBuf {
        self.files.sockets().join("pg")
    }

    /// What the server says.
    #[must_use]
    pub fn log(&self) -> PathBuf {
        self.top.join("server.log")
    }

    /// What the slow directory's server says.
    #[must_use]
    pub fn slow_log(&self) -> PathBuf {
        self.top.join("slow-dir.log")
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
        shared::note(&self.top, identifier)
    }

    /// Memory that it takes.
    #[must_use]
    pub fn shared_bytes(&self) -> u64 {
        let bytes = |path: &PathBuf| path.metadata().map_or(0, |meta| meta.blocks() * 512);
        shared::files(&self.top).iter().map(bytes).sum()
    }

    /// Removes flash and that memory.
    ///
    /// # Errors
    /// They cannot be removed.
    pub fn clear_flash(&self) -> Result<()> {
        shared::clear(&self.top)?;
        if self.flash().exists() {
            fs::remove_dir_all(self.flash()).context("the flash of the row")?;
        }
        Ok(())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = shared::clear(&self.top);
    }
}

fn copy(from: &Path, to: &Path, stopped: impl Fn() -> Result<()>) -> Result<()> {
    let words = ["-a", "--reflink=auto"].map(AsRef::as_ref);
    let words = words.into_iter().chain([from.as_os_str(), to.as_os_str()]);
    command::run("cp", words, COPY_BOUND, stopped).map(drop)
}
