// SPDX-License-Identifier: MIT OR Apache-2.0
//! The work of a member, in its own process, until it is stopped or killed.

use std::cell::Cell;
use std::ops::Deref;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use larder_shared::{Memory, Pages, Words};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::{BROKEN, Book, Column, GROUP, PAGES, content, devices, look, open};

/// The log's words; the process kills itself at one of the accesses.
struct Fatal {
    words: Words,
    steps: Cell<u64>,
}

impl Deref for Fatal {
    type Target = [AtomicU64];
    fn deref(&self) -> &[AtomicU64] {
        match self.steps.get() {
            0 => {
                let me = rustix::process::getpid();
                let _ = rustix::process::kill_process(me, rustix::process::Signal::KILL);
            }
            steps => self.steps.set(steps - 1),
        }
        &self.words
    }
}

struct Worker {
    pages: Pages<Fatal>,
    book: Book,
    index: u64,
    random: Pcg64Mcg,
}

/// Runs the member that the environment describes; does not return.
pub fn run() {
    let arguments = std::env::var("LARDER_SHARED_MEMBER").expect("is run by another test");
    let arguments: Vec<u64> = arguments.split(' ').map(|n| n.parse().expect("a number")).collect();
    let [index, seed, steps] = arguments[..] else { panic!("three numbers") };
    #[cfg(feature = "mutants")]
    if let Ok(name) = std::env::var("LARDER_SHARED_MUTANT") {
        let mutants = larder_core::mutant::MUTANTS.iter();
        larder_core::mutant::activate(mutants.map(|m| m.name).find(|n| *n == name));
    }
    let dir = PathBuf::from(std::env::var("LARDER_SHARED_DIR").expect("a directory"));
    let memory = Memory::join(&open(&dir.join("memory"))).expect("memory");
    let fatal = |words| Fatal { words, steps: Cell::new(steps) };
    let pages = Pages::join_over(&memory, devices(&dir), fatal).expect("joins");
    let random = Pcg64Mcg::seed_from_u64(seed * 16 + index);
    let mut worker = Worker { pages, book: Book::open(&dir), index, random };
    while worker.book.stop().load(SeqCst) == 0 {
        if let Err(why) = worker.act() {
            eprintln!("member {index}, seed {seed}: {why}");
            std::process::exit(BROKEN);
        }
        worker.book.progress(index as usize).fetch_add(1, SeqCst);
    }
    std::process::exit(0);
}

impl Worker {
    fn act(&mut self) -> Result<(), String> {
        let most = if self.random.random_bool(0.5) { PAGES } else { PAGES / 6 };
        let page = self.random.random_range(0..most);
        match self.random.random_range(0..100) {
            0..45 => self.write(page),
            45..93 => {
                let keep = self.random.random_bool(0.5);
                look(&self.pages, &self.book, page, keep).map(drop)
            }
            93..96 => self.flush(),
            _ => self.bury(page),
        }
    }

    fn begin(&self, page: u64) -> u64 {
        self.book.of(Column::Begun, page).fetch_add(1, SeqCst) + 1
    }

    fn write(&self, page: u64) -> Result<(), String> {
        let _lock = self.book.lock(page);
        let version = self.begin(page);
        let written = self.pages.write(page, &content(page, version, self.index));
        written.map_err(|errno| format!("write of page {page}: {errno}"))?;
        self.book.of(Column::Done, page).store(version, SeqCst);
        Ok(())
    }

    fn flush(&self) -> Result<(), String> {
        let done: Vec<u64> = (0..PAGES).map(|page| self.book.get(Column::Done, page)).collect();
        self.pages.flush().map_err(|errno| format!("flush: {errno}"))?;
        for (page, version) in (0..).zip(done) {
            self.book.of(Column::Flushed, page).fetch_max(version, SeqCst);
        }
        Ok(())
    }

    fn bury(&mut self, page: u64) -> Result<(), String> {
        let end = (page + self.random.random_range(1..=GROUP)).min(page / GROUP * GROUP + GROUP);
        let _lock = self.book.lock(page);
        let versions: Vec<u64> = (page..end).map(|page| self.begin(page)).collect();
        for (page, version) in (page..end).zip(&versions) {
            self.book.of(Column::Buried, page).store(*version, SeqCst);
        }
        self.pages.bury(page..end).map_err(|errno| format!("burial of page {page}: {errno}"))?;
        for (page, version) in (page..end).zip(versions) {
            self.book.of(Column::Done, page).store(version, SeqCst);
        }
        Ok(())
    }
}
