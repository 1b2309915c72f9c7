// SPDX-License-Identifier: MIT OR Apache-2.0
//! Processes that share a log, and the book in which they record what they know of its pages.
//!
//! A process is this test binary again; its environment makes it run one ignored test. Why not `fork`: a test runs in
//! one of several threads, and a forked child of such a process may not even allocate.
//!
//! The book is memory that the processes share too. For each page it has the newest version that was begun,
//! acknowledged, flushed, read, and buried. A writer holds the lock of the page's group in the book, so versions are
//! ordered; a reader holds none.
#![allow(dead_code)] // each test uses a part of this module

pub mod deaths;
pub mod member;

use std::fs::{File, OpenOptions};
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use larder_core::buf::PAGE;
use larder_core::checksum::crc32c;
use larder_core::pagelog::{Geometry, Host, LogPolicy, LogSettings};
use larder_shared::{Devices, Member, Memory, OneFile, Pages, Shape, Words, now};

/// Pages that the members write.
pub const PAGES: u64 = 192;
/// Pages that share a lock of the book.
pub const GROUP: u64 = 4;
/// Members at a time.
pub const MEMBERS: usize = 4;
/// Time limit of any operation; a longer one counts as a hang.
pub const PATIENCE: Duration = Duration::from_secs(30);
/// Exit code of a member that found a wrong page.
pub const BROKEN: i32 = 3;

/// Columns of the book.
#[derive(Clone, Copy)]
#[repr(u64)]
pub enum Column {
    Begun,
    Done,
    Flushed,
    Seen,
    Buried,
}

/// The book.
pub struct Book {
    words: Words,
    member: Member,
}

impl Book {
    fn open(dir: &Path) -> Self {
        let memory = Memory::join(&open(&dir.join("book"))).expect("a book");
        let member = Member::join(&memory, devices(dir)).expect("room in the book");
        Self { words: Words::of(&memory), member }
    }

    /// A column's entry of a page.
    pub fn of(&self, column: Column, page: u64) -> &AtomicU64 {
        &self.words[(8 + MEMBERS as u64 + column as u64 * PAGES + page) as usize]
    }

    pub fn get(&self, column: Column, page: u64) -> u64 {
        self.of(column, page).load(SeqCst)
    }

    pub fn stop(&self) -> &AtomicU64 {
        &self.words[0]
    }

    /// Number of operations that a member completed.
    pub fn progress(&self, index: usize) -> &AtomicU64 {
        &self.words[8 + index]
    }

    /// Prevents others from writing to the page's group.
    pub fn lock(&self, page: u64) -> impl Sized + use<> {
        now(self.member.hold(page / GROUP * GROUP))
    }
}

fn open(path: &Path) -> OwnedFd {
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path);
    file.expect("a file").into()
}

pub fn devices(dir: &Path) -> Devices {
    let origin = Box::new(OneFile(open(&dir.join("origin"))));
    Devices { flash: open(&dir.join("flash")).into(), origin }
}

/// A page's bytes: its number, version and writer, and a checksum over all of it.
pub fn content(page: u64, version: u64, writer: u64) -> Vec<u8> {
    let mut bytes = vec![(version * 31 + writer) as u8 | 1; PAGE];
    for (i, word) in [page, version, writer].into_iter().enumerate() {
        bytes[8 + i * 8..16 + i * 8].copy_from_slice(&word.to_le_bytes());
    }
    let sum = u64::from(crc32c(&bytes[8..]));
    bytes[..8].copy_from_slice(&sum.to_le_bytes());
    bytes
}

/// The version in a page's bytes; zero if all bytes are zero.
pub fn version_of(page: u64, bytes: &[u8]) -> Result<u64, String> {
    if bytes.iter().all(|b| *b == 0) {
        return Ok(0);
    }
    let word = |i: usize| u64::from_le_bytes(bytes[i * 8..i * 8 + 8].try_into().expect("8 bytes"));
    let (sum, found, version) = (word(0), word(1), word(2));
    if sum != u64::from(crc32c(&bytes[8..])) || found != page {
        return Err(format!("page {page} is corrupt: it holds page {found}, version {version}"));
    }
    Ok(version)
}

/// Reads a page and checks that its version is allowed; returns the version.
pub fn look<M: std::ops::Deref<Target = [AtomicU64]>>(
    pages: &Pages<M>,
    book: &Book,
    page: u64,
    keep: bool,
) -> Result<u64, String> {
    let least = book.get(Column::Done, page).max(book.get(Column::Seen, page));
    let bytes = pages.read(page, keep).map_err(|errno| format!("page {page}: {errno}"))?;
    let found = version_of(page, &bytes)?;
    if found != 0 {
        book.of(Column::Seen, page).fetch_max(found, SeqCst);
    }
    let version = if found == 0 { book.get(Column::Buried, page) } else { found };
    let most = book.get(Column::Begun, page);
    match (least..=most).contains(&version) {
        true => Ok(version),
        false => Err(format!("page {page} is {version} ({found}), not of {least}..={most}")),
    }
}

/// A log, its book and its members.
pub struct Life {
    dir: tempfile::TempDir,
    pub book: Book,
    members: Vec<Option<Child>>,
    mutant: Option<&'static str>,
    seeds: u64,
    test: &'static str,
}

impl Life {
    /// A new log without members. `test` is the ignored test that a member runs.
    pub fn new(policy: LogPolicy, test: &'static str) -> Self {
        let memory = Path::new("/dev/shm");
        // In memory a flush costs nothing, so deaths spread over all other operations.
        let dir = match memory.is_dir() {
            true => tempfile::tempdir_in(memory),
            false => tempfile::tempdir(),
        };
        let dir = dir.expect("a directory");
        let log = Geometry::fit(4096, 220 * PAGE as u64, 4, 7).expect("fits");
        let settings = LogSettings { policy, second_chance: true };
        let book_words = Geometry { blocks: 1_000, ..log };
        let book = Shape { log: book_words, settings, user_words: 0 };
        Memory::create(&open(&dir.path().join("book")), book).expect("a book");
        let flash = File::from(open(&dir.path().join("flash")));
        for (offset, bytes) in log.blank() {
            std::os::unix::fs::FileExt::write_all_at(&flash, &bytes, offset).expect("is written");
        }
        let book = Book::open(dir.path());
        let members = (0..MEMBERS).map(|_| None).collect();
        let life = Self { dir, book, members, mutant: None, seeds: 0, test };
        life.start(Shape { log, settings, user_words: 0 });
        life
    }

    pub fn with_mutant(mut self, mutant: Option<&'static str>) -> Self {
        self.mutant = mutant;
        self
    }

    /// Starts the log from its files with new memory.
    pub fn start(&self, shape: Shape) -> Pages {
        let file = open(&self.dir.path().join("memory"));
        let memory = Memory::create(&file, shape).expect("memory");
        Pages::start(&memory, devices(self.dir.path())).expect("opens").0
    }

    pub fn memory(&self) -> Arc<Memory> {
        Memory::join(&open(&self.dir.path().join("memory"))).expect("memory")
    }

    /// Starts a member that kills itself after `steps` accesses to the log's memory.
    pub fn spawn(&mut self, index: usize, steps: u64) {
        self.seeds += 1;
        let program = std::env::current_exe().expect("this binary");
        let mut command = Command::new(program);
        command.args(["--exact", self.test, "--ignored", "--nocapture"]).stdout(Stdio::null());
        command.env("LARDER_SHARED_DIR", self.dir.path());
        command.env("LARDER_SHARED_MEMBER", format!("{index} {} {steps}", self.seeds));
        command.env("LARDER_SHARED_MUTANT", self.mutant.unwrap_or(""));
        self.members[index] = Some(command.spawn().expect("starts"));
    }

    /// Waits until each member has completed `more` operations.
    pub fn wait_for_progress(&mut self, indexes: Range<usize>, more: u64) -> Result<(), String> {
        let until = Instant::now() + PATIENCE;
        for index in indexes {
            let progress = || self.book.progress(index).load(SeqCst);
            let goal = progress() + more;
            while progress() < goal {
                let child = self.members[index].as_mut().expect("a member");
                if let Some(status) = child.try_wait().expect("is a child") {
                    return Err(format!("member {index} ended: {status}"));
                }
                if Instant::now() > until {
                    return Err(format!("member {index} hangs"));
                }
                std::thread::sleep(Duration::from_micros(200));
            }
        }
        Ok(())
    }

    /// SIGKILL.
    pub fn kill(&mut self, index: usize) {
        if let Some(mut child) = self.members[index].take() {
            child.kill().expect("is killed");
            child.wait().expect("is gone");
        }
    }

    /// Waits until a member has killed itself.
    pub fn wait_for_death(&mut self, index: usize) -> Result<(), String> {
        let until = Instant::now() + PATIENCE;
        let child = self.members[index].as_mut().expect("a member");
        loop {
            if let Some(status) = child.try_wait().expect("is a child") {
                let signal = std::os::unix::process::ExitStatusExt::signal(&status);
                self.members[index] = None;
                let killed = signal == Some(rustix::process::Signal::KILL.as_raw());
                return if killed { Ok(()) } else { Err(format!("member {index}: {status}")) };
            }
            if Instant::now() > until {
                return Err(format!("member {index} hangs"));
            }
            std::thread::sleep(Duration::from_micros(200));
        }
    }

    /// Stops all members.
    pub fn stop(&mut self) -> Result<(), String> {
        self.book.stop().store(1, SeqCst);
        let until = Instant::now() + PATIENCE;
        for index in 0..MEMBERS {
            let Some(child) = self.members[index].as_mut() else { continue };
            loop {
                match child.try_wait().expect("is a child") {
                    Some(status) if status.success() => break,
                    Some(status) => return Err(format!("member {index} ended: {status}")),
                    None if Instant::now() > until => return Err(format!("member {index} hangs")),
                    None => std::thread::sleep(Duration::from_micros(200)),
                }
            }
            self.members[index] = None;
        }
        self.book.stop().store(0, SeqCst);
        Ok(())
    }

    /// With no member running, every page is allowed, and a repair changes nothing.
    pub fn check(&self) -> Result<(), String> {
        let joined = Pages::join(&self.memory(), devices(self.dir.path()));
        let pages = joined.map_err(|errno| errno.to_string())?;
        (0..PAGES).try_for_each(|page| look(&pages, &self.book, page, false).map(drop))?;
        let before = pages.status();
        pages.log().repair();
        let after = pages.status();
        if before != after {
            return Err(format!("a repair changes {before:?} to {after:?}"));
        }
        pages.flush().map_err(|errno| errno.to_string())
    }

    pub fn dir(&self) -> PathBuf {
        self.dir.path().to_owned()
    }
}

impl Drop for Life {
    fn drop(&mut self) {
        (0..MEMBERS).for_each(|index| self.kill(index));
    }
}

/// The number of rounds, set by the environment.
pub fn rounds(default: u64) -> u64 {
    let set = std::env::var("LARDER_SHARED_ROUNDS").ok();
    set.map_or(default, |rounds| rounds.parse().expect("LARDER_SHARED_ROUNDS is a number"))
}
