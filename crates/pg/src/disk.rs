// SPDX-License-Identifier: MIT OR Apache-2.0
//! The data directory as the origin of the log: pages that are evicted from flash or drained are written here.
//!
//! # Invariants
//! 1. Nothing is written to a file that is being truncated or dropped. The process that truncates it holds the latches of
//!    its number, and removes its pages from the log first. A process that writes a page holds one of these latches, and
//!    checks the name again.
//! 2. These writes extend no file: the log takes changed pages only below the end of a file.
//! 3. The server makes these writes durable with its own: its checkpoints flush each file that had writes. Before recovery
//!    and at the exit it does not, and under `full` a checkpoint relies on flash. Then a `sync` disk flushes what this
//!    process, or one that died, wrote (`unflushed.rs`). While the server recovers each disk notes what it wrote, and one of
//!    them flushes it in the end (`policy/recovery.rs`).
//! 4. If the server's own writes are past the page cache (`debug_io_direct`), these are too. The kernel does not keep both kinds
//!    coherent: a page that this process leaves in the page cache may hide, or later overwrite, the server's newer one.

use std::cell::RefCell;
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use larder_core::buf::Buf;
use larder_core::request::Errno;
use larder_shared::{FlashCall, Member, Origin, write_pages};

use crate::area::{Area, Mark};
use crate::extent::Extents;
use crate::mutant::{Mutant, is_active};
use crate::names::Number;
use crate::policy;
use crate::spare::{self, Spare};
use crate::unflushed;

/// Files that are kept open.
const OPEN_MOST: usize = 16;

/// See the module.
pub struct Disk {
    /// The shared area.
    pub area: Area,
    /// The data directory.
    pub data: PathBuf,
    /// The server's directory in a tablespace.
    pub version: String,
    /// How forks are divided.
    pub extents: Extents,
    /// See invariant 3.
    pub sync: bool,
    /// See invariant 4.
    pub direct: bool,
    /// The newest last.
    pub open: RefCell<Vec<(Number, File)>>,
    /// Used when the process has no descriptors left.
    pub spare: Arc<Spare>,
}

fn errno(error: io::Error) -> Errno {
    error.raw_os_error().map_or(Errno::EIO, Errno)
}

/// The file, if it exists. If its directory does not exist either, its file system may not be mounted: a process that
/// drops a database removes its pages from the log first.
fn open(path: &Path, direct: bool) -> io::Result<Option<File>> {
    let mut options = OpenOptions::new();
    let flags = libc::O_NOFOLLOW | if direct { libc::O_DIRECT } else { 0 };
    match options.read(true).write(true).custom_flags(flags).open(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            path.parent().map_or(Ok(()), |parent| parent.metadata().map(drop))?;
            Ok(None)
        }
        other => other.map(Some),
    }
}

impl Disk {
    /// The file that an extent is in, and the extent's first block there.
    fn path(&self, number: Number) -> Option<(PathBuf, u64)> {
        let extent = self.area.names().extent_of(number)?;
        let (segment, first) = self.extents.place(&extent);
        Some((self.data.join(extent.fork.path(segment, &self.version)), first))
    }

    /// Runs something with an extent's file, opened or kept open; nothing if there is no such file.
    fn with_file(
        &self,
        number: Number,
        path: &Path,
        run: impl Fn(&File) -> io::Result<()>,
    ) -> io::Result<()> {
        if let Some(file) = self.take_kept(number) {
            let done = run(&file);
            self.keep(number, file);
            return done;
        }
        match open(path, self.direct) {
            Ok(Some(file)) => {
                let done = run(&file);
                self.keep(number, file);
                done
            }
            Ok(None) => Ok(()),
            Err(error) if spare::is_lack(&error) => {
                self.open.borrow_mut().clear();
                self.spare.with(|| open(path, self.direct)?.map_or(Ok(()), |file| run(&file)))
            }
            Err(error) => Err(error),
        }
    }

    fn take_kept(&self, number: Number) -> Option<File> {
        let mut kept = self.open.borrow_mut();
        let place = kept.iter().position(|(n, _)| *n == number)?;
        // A new segment may have the same number.
        let is_there = |file: &File| file.metadata().is_ok_and(|data| data.nlink() > 0);
        Some(kept.remove(place).1).filter(is_there)
    }

    fn keep(&self, number: Number, file: File) {
        let mut kept = self.open.borrow_mut();
        if kept.len() == OPEN_MOST {
            kept.remove(0);
        }
        kept.push((number, file));
    }

    /// Whether the server does not flush what is written here.
    fn notes(&self) -> bool {
        self.sync || policy::recovers(&self.area) && !is_active(Mutant::RecoversUnflushed)
    }

    /// Whether a flush has to flush what was noted.
    fn flushes(&self) -> bool {
        self.sync || policy::settles(&self.area)
    }

    fn flush_files(&self, noted: &[Number]) -> Vec<Result<(), Errno>> {
        let path = |number: &Number| self.path(*number).map(|(path, _)| path);
        let paths: Vec<Option<PathBuf>> = noted.iter().map(path).collect();
        let (spare, direct) = (&self.spare, self.direct);
        // The extent or the file does not exist.
        let flush = |path: &Option<PathBuf>| {
            let flush = |path: &Path| open(path, direct)?.map_or(Ok(()), |file| file.sync_data());
            spare.with(|| path.as_deref().map_or(Ok(()), flush)).map_err(errno)
        };
        larder_shared::together(&paths, flush)
    }
}

fn write_below_end(file: &File, pages: &[Buf], at: u64) -> io::Result<()> {
    let size = file.metadata()?.len();
    if at + pages.iter().map(|page| page.len() as u64).sum::<u64>() > size {
        return Err(ErrorKind::UnexpectedEof.into()); // invariant 2
    }
    write_pages(file, pages, at).map_err(|errno| io::Error::from_raw_os_error(errno.0))
}

impl Origin for Disk {
    fn read(&self, _: u64, _: &mut [u8]) -> Result<(), Errno> {
        Err(Errno::EIO) // the server reads its files itself
    }

    fn write(&self, page: u64, pages: &[Buf], member: &Member) -> Result<(), Errno> {
        let (number, block) = Number::of_page(page);
        {
            let _latch = member.latch(number.latch(block));
            let Some((path, first)) = self.path(number) else { return Ok(()) };
            // Pages that were truncated meanwhile are not in the log, or have a newer version, which the disk has too.
            let left: Vec<usize> =
                (0..pages.len()).filter(|i| member.log_has_dirty(page + *i as u64)).collect();
            for run in left.chunk_by(|a, b| a + 1 == *b) {
                let pages = &pages[run[0]..=run[run.len() - 1]];
                let block = first + block + run[0] as u64;
                let write =
                    |file: &File| write_below_end(file, pages, block * pages[0].len() as u64);
                self.with_file(number, &path, write).map_err(errno)?;
                pages.iter().for_each(|_| self.area.count(Mark::WrittenBack));
            }
            if left.is_empty() {
                return Ok(());
            }
        }
        if self.notes() {
            let _latch = member.latch(unflushed::LATCH);
            if !unflushed::note(self.area.unflushed(), number) {
                self.flush_files(&[number]).into_iter().collect::<Result<(), _>>()?;
            }
        }
        Ok(())
    }

    /// Nothing: the server truncates or drops the files itself, and `write` skips pages that the log does not have.
    fn zero(&self, _: Range<u64>, _: &Member) -> Result<(), Errno> {
        Ok(())
    }

    fn keeps(&self, page: u64) -> bool {
        self.area.is_pinned(self.extents, page)
    }

    fn took(&self, call: FlashCall, bytes: u64, time: Duration) {
        self.area.flash_took(call, bytes, time);
    }

    fn again(&self) -> Option<Box<dyn Origin + Send>> {
        let (area, data, version) = (self.area.clone(), self.data.clone(), self.version.clone());
        let (extents, sync, direct) = (self.extents, self.sync, self.direct);
        let (open, spare) = (RefCell::default(), Arc::clone(&self.spare));
        Some(Box::new(Self { area, data, version, extents, sync, direct, open, spare }))
    }

    fn flush(&self, member: &Member) -> Result<(), Errno> {
        if !self.flushes() {
            return Ok(());
        }
        let _latch = member.latch(unflushed::LATCH);
        unflushed::flush(self.area.unflushed(), |noted| self.flush_files(&noted))
    }
}
