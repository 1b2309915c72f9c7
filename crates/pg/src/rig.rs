// SPDX-License-Identifier: MIT OR Apache-2.0
//! A data directory, a directory on flash and starts of a server over them, for tests and for the fuzz target.
#![allow(clippy::unwrap_used)] // a test stops at the first failure

use std::fs::{self, File};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

use larder_core::buf::Buf;
use larder_core::pagelog::{Geometry, LogPolicy, LogSettings};
use larder_private::{Directory, Refuse};
use larder_shared::{Memory, Shape};

use crate::area::{Area, LAYOUT, Mark};
use crate::control::{Control, State};
use crate::earlier;
use crate::error::Unusable;
use crate::file::Fork;
use crate::here::Armed;
use crate::instance::Instance;
use crate::memory::{self, How, Start};
use crate::place::Memories;
use crate::policy::{self, Begins};
use crate::pool::{Pool, Use};
use crate::spare::Spare;

pub const PAGE: usize = 8192;
pub const FORK: Fork = Fork { tablespace: 1663, database: 5, relation: 100, kind: 0 };

/// A data directory and one of flash.
pub struct Place {
    pub data: tempfile::TempDir,
    pub flash: tempfile::TempDir,
    pub server: Instance,
}

/// A server over them.
pub struct Run {
    pub pool: Pool,
    pub how: How,
}

pub fn control(hash: u64) -> Control {
    Control { hash, system: 77, catalogs: 1, state: State::Runs, timeline: 1, redo: 0 }
}

/// What flash has of a page.
pub fn fetch(pool: &Pool, page: u64) -> Option<Buf> {
    pool.fetch(&[(page, Use::Access)]).unwrap().remove(0)
}

pub fn page_of(value: u8) -> Vec<u8> {
    vec![value; PAGE]
}

/// A cache over 32 blocks a segment, whose data has no tablespaces.
pub fn armed(
    memory: Arc<Memory>,
    flash: Arc<OwnedFd>,
    data: &Path,
    directory: &Arc<Directory>,
    frames: usize,
) -> Armed {
    Armed {
        memory,
        spare: Arc::new(Spare::new(Arc::clone(&flash))),
        flash,
        process: None,
        timeout: std::time::Duration::from_secs(1),
        page_cache: false,
        page_bytes: PAGE,
        segment_blocks: 32,
        direct: false,
        buffers: 0,
        frames,
        data: data.as_os_str().as_encoded_bytes().to_vec(),
        directory: Arc::clone(directory),
        version: String::new(),
    }
}

impl Place {
    /// Below another directory than that for temporary files.
    pub fn within(parent: &Path) -> Self {
        let [data, flash] = [(); 2].map(|()| tempfile::tempdir_in(parent).unwrap());
        fs::create_dir_all(data.path().join("base/5")).unwrap();
        let server = Instance {
            version: 15,
            page_bytes: PAGE as u64,
            segment_blocks: 32,
            wal_segment_bytes: 16 << 20,
            buffers: 0,
            frames: 4,
            data: data.path().to_str().unwrap().to_owned(),
            control: control(1),
        };
        let place = Self { data, flash, server };
        place.file().set_len(32 * PAGE as u64).unwrap();
        place
    }

    pub fn file(&self) -> File {
        let path = self.data.path().join("base/5/100");
        File::options().read(true).write(true).create(true).truncate(false).open(path).unwrap()
    }

    /// A server that runs: it stopped before, or its recovery has ended.
    pub fn start(&self, policy: LogPolicy) -> Result<Run, Unusable> {
        self.begin(policy, Begins::Stopped)
    }

    pub fn begin(&self, policy: LogPolicy, begins: Begins) -> Result<Run, Unusable> {
        let mut options = File::options();
        options.read(true).write(true).create(true).truncate(false);
        let flash = options.open(self.flash.path().join("larder.flash"))?;
        let log =
            Geometry { base: 0, blocks: 0, page_bytes: PAGE as u32, batch_pages: 4, volume: 0 };
        let log = log.grown_to(300 * PAGE as u64).unwrap();
        flash.set_len(log.bytes())?;
        let flash = Arc::new(OwnedFd::from(flash));
        let number = memory::identity(&flash)?;
        let settings = LogSettings { policy: policy::of_log(policy), second_chance: true };
        let shape = Shape { log, settings, user_words: Area::words(self.server.frames) };
        let directory = self.directory();
        let make = |memory| Armed {
            version: self.server.tablespace_version(),
            ..armed(memory, flash, self.data.path(), &directory, self.server.frames)
        };
        let memories = &self.memories();
        let (server, directory) = (&self.server, &directory);
        let start = Start {
            server,
            begins,
            shape,
            directory,
            memories,
            flash: number,
            flash_bytes: self.flash_bytes(),
        };
        let (armed, how) = earlier::memory(&start, make)?;
        let area = Area::of(&armed.memory);
        policy::begin(&area, begins, &self.server.control, policy);
        area.count(Mark::NamesChanged);
        area.set(Mark::Control, self.server.control.hash);
        area.set(Mark::FlashFile, number);
        area.set(Mark::Boot, memory::boot());
        area.set(Mark::Layout, LAYOUT);
        let pool = armed.join(false).unwrap();
        Ok(Run { pool, how })
    }

    pub fn flash_bytes(&self) -> u64 {
        fs::metadata(self.flash.path().join("larder.flash")).unwrap().len()
    }

    pub fn directory(&self) -> Arc<Directory> {
        Arc::new(Directory::open(self.flash.path(), Refuse::WRITE).unwrap())
    }

    pub fn memories(&self) -> Memories {
        Memories::of(self.data.path(), 77).unwrap()
    }

    /// The machine loses its memory.
    pub fn crash(&self, run: Run) {
        drop(run);
        assert_eq!(self.memories().files().unwrap().len(), 1);
        self.memories().remove().unwrap();
    }
}

/// For the tests alone.
#[cfg(test)]
impl Place {
    pub fn new() -> Self {
        Self::within(&std::env::temp_dir())
    }

    pub fn refused(&self) -> String {
        self.start(LogPolicy::Full).err().expect("a refusal").to_string()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = self.memories().remove();
    }
}

impl Run {
    pub fn put(&self, fork: &Fork, block: u64, value: u8) {
        assert!(self.pool.absorb(self.pool.page(fork, block).unwrap(), &page_of(value)).unwrap());
    }

    pub fn has(&self, fork: &Fork, block: u64) -> Option<u8> {
        Some(fetch(&self.pool, self.pool.page(fork, block)?)?[100])
    }

    pub fn commit(&self, fork: &Fork) {
        self.pool.commit(fork, 0).unwrap();
    }
}
