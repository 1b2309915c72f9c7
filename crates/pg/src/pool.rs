// SPDX-License-Identifier: MIT OR Apache-2.0
//! The paths of a page: read into a frame, out of one, written, gone.
//!
//! # Invariants
//! 1. The log has a version of a page only if that is the page's latest write. A write raises the epoch, drops
//!    the page, writes the disk, and enters what was written if the epoch is still its own.
//! 2. A page that leaves a frame clean enters only if the frame's record is known, the page's epoch is that of the
//!    record, its bytes have the record's hash, and the log has no version. The epoch is looked at under the log's
//!    lock, so a write either raised it before, and the page does not enter, or drops it afterwards.
//! 3. What becomes of a file is told before it happens ([`Pool::forget`]).
//! 4. Under *bounded* flash takes writes below the end of a file instead of the disk ([`Pool::absorb`]); the disk has all
//!    of a fork's before a flush of one of its files is done ([`Pool::settle`]), so it is never older than the last
//!    checkpoint. A write that goes to the disk itself holds its page meanwhile, as whoever brings one there does.
//! 5. If a page cannot be had that flash alone has, the process aborts: under *bounded* the server recovers from its last
//!    checkpoint, without the pages on flash; under *full* it stops. The disk's older bytes are never shown.
//! 6. Under *full* flash comes back after a crash of the machine. So the disk is written past it only where it has nothing
//!    that could come back ([`Pool::clear`], [`Pool::forget`]), and any failure of flash ends the server.
//!
//! Why both hash and epoch: a frame may have been changed without a system call (so its bytes are not the disk's), and
//! the disk may have been written past the frame (so the bytes are the record's, and old).

use std::cell::Cell;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use larder_core::buf::Buf;
use larder_core::pagelog::{Got, Host, LogPolicy, New};
use larder_core::request::Errno;
use larder_shared::{Devices, Memory, Pages, now};

use crate::area::{Area, Mark, Record};
use crate::content;
use crate::file::Fork;
use crate::journal;
use crate::mutant::{Mutant, is_active};
use crate::names::Number;
use crate::server;

/// Flash takes writes; or did, and the server's settings have ended that.
const ABSORBS: u64 = 1;
const ENDED: u64 = 2;
/// Pages that are dropped together.
const PIECE: u64 = 1024;

/// The cache as one process sees it.
pub struct Pool {
    pages: Pages,
    area: Area,
    /// Blocks of a segment.
    segment_blocks: u64,
    /// This process has told of damage.
    told: Cell<bool>,
}

/// A page that somebody is writing.
#[derive(Clone, Copy, Debug)]
pub struct Writing {
    page: u64,
    epoch: u64,
}

impl Pool {
    /// Joins those who share the memory.
    ///
    /// # Errors
    /// If there is no room for one more.
    pub fn join(
        memory: &Arc<Memory>,
        devices: Devices,
        segment_blocks: u64,
    ) -> Result<Self, Errno> {
        let pages = Pages::join(memory, devices)?;
        Ok(Self { pages, area: Area::of(memory), segment_blocks, told: Cell::new(false) })
    }

    /// What is shared beside the log.
    #[must_use]
    pub fn area(&self) -> &Area {
        &self.area
    }

    /// The log.
    #[must_use]
    pub fn pages(&self) -> &Pages {
        &self.pages
    }

    /// Whether pages may be read from it and entered.
    #[must_use]
    pub fn works(&self) -> bool {
        self.area.get(Mark::Failed) == 0
    }

    /// What the server asked for.
    #[must_use]
    pub fn policy(&self) -> LogPolicy {
        self.pages.log().host().memory().shape().settings.policy
    }

    /// Whether flash may have pages that the disk lacks.
    #[must_use]
    pub fn holds_dirty(&self) -> bool {
        self.policy().holds_dirty()
    }

    fn check(&self, result: Result<New, Errno>) -> New {
        result.unwrap_or_else(|errno| {
            self.fail(errno, "flash failed");
            New::NotNow
        })
    }

    /// The block of a fork that a segment's block is.
    #[must_use]
    pub fn block(&self, segment: u32, block: u64) -> u64 {
        u64::from(segment) * self.segment_blocks + block
    }

    /// The page of a block; the fork gets a number if it has none.
    #[must_use]
    pub fn page(&self, fork: &Fork, block: u64) -> Option<u64> {
        let names = self.area.names();
        let number = names.find(fork).or_else(|| {
            let _one = self.pages.log().host().latch(journal::LATCH);
            self.area.count(Mark::NamesChanged);
            // Somebody may be about to enter a changed page under a number that was looked up before.
            names.assign(fork, !self.holds_dirty())
        })?;
        number.page(block)
    }

    fn retire(&self, fork: &Fork) {
        if self.area.names().find(fork).is_none() {
            return;
        }
        let _one = self.pages.log().host().latch(journal::LATCH);
        self.area.count(Mark::NamesChanged);
        if self.area.names().retire(fork) {
            self.area.count(Mark::Retired);
        }
    }

    fn is_current(&self, page: u64) -> bool {
        self.area.names().fork_of(Number::of_page(page).0).is_some()
    }

    /// What is in a frame is about to be replaced.
    pub fn leaves(&self, frame: usize, bytes: &[u8]) {
        let area = &self.area;
        let Some(record) = area.record(frame) else { return };
        area.set_record(frame, None);
        let Record { page, epoch, hash, checksum } = record;
        let so = || area.epoch(page) == epoch || is_active(Mutant::NoEpoch);
        if !so() || !self.is_current(page) {
            return area.count(Mark::CleanChanged);
        }
        if self.pages.log().has(page) {
            return area.count(Mark::CleanKept);
        }
        if content::hash(bytes) != hash && !is_active(Mutant::NoHash) {
            return area.count(Mark::CleanChanged);
        }
        let mut buf = Buf::copy_of(bytes);
        content::set_checksum(&mut buf, checksum);
        area.count(match self.check(now(self.pages.log().put_new_if(page, &buf, false, so))) {
            New::Entered => Mark::CleanEntered,
            New::NoRoom => Mark::CleanNoRoom,
            New::NotNow => Mark::CleanKept,
        });
        now(self.pages.log().work());
    }

    /// Reads a page, if the log has it.
    #[must_use]
    pub fn fetch(&self, page: u64, into: &mut [u8]) -> bool {
        self.area.count(Mark::Reads);
        let Some(bytes) = self.peek(page) else {
            self.mend(page);
            return false;
        };
        into.copy_from_slice(&bytes);
        self.area.count(Mark::Hits);
        true
    }

    /// After a miss under `full`: a page that is there all the same cannot be read, and would count again after a crash of
    /// the machine. The disk has the same, so it goes, once the disk has that durably.
    fn mend(&self, page: u64) {
        if !self.is_full() || !self.pages.log().has(page) {
            return;
        }
        let log = self.pages.log();
        let gone = now(log.host().flush_origin()).and_then(|()| self.clear(page));
        match gone {
            Ok(()) if self.told.replace(true) => {}
            Ok(()) => server::say("WARNING", "a page on flash is damaged; the disk has the same"),
            Err(errno) => self.fail(errno, "flash failed"),
        }
    }

    /// The newest version of a page that flash may have.
    #[must_use]
    pub fn peek(&self, page: u64) -> Option<Buf> {
        match now(self.pages.log().get(page)) {
            Ok(Got::Hit(bytes, _)) => Some(bytes),
            Ok(Got::Miss) => None,
            Err(errno) if self.holds_dirty() => self.lost(errno),
            Err(_) => None,
        }
    }

    /// Runs of these blocks that flash does not have.
    #[must_use]
    pub fn lacks(&self, fork: &Fork, blocks: Range<u64>) -> Vec<Range<u64>> {
        let Some(number) = self.area.names().find(fork) else { return vec![blocks] };
        let mut runs: Vec<Range<u64>> = Vec::new();
        for block in blocks {
            if number.page(block).is_some_and(|page| self.pages.log().has(page)) {
                continue;
            }
            match runs.last_mut() {
                Some(run) if run.end == block => run.end += 1,
                _ => runs.push(block..block + 1),
            }
        }
        runs
    }

    fn lost(&self, errno: Errno) -> ! {
        self.area.set(Mark::Failed, errno.0 as u64);
        let then = match self.is_full() {
            true => "it is a part of the database, and the server stops",
            false => "the server recovers from its last checkpoint, without what is on flash",
        };
        server::say("PANIC", &format!("what flash alone has cannot be had ({errno}); {then}"));
        std::process::abort()
    }

    fn is_full(&self) -> bool {
        self.policy() == LogPolicy::Full
    }

    /// Whether flash takes writes instead of the disk at the moment. Where the server's settings end that, the disk
    /// gets what flash has.
    ///
    /// # Errors
    /// If it cannot.
    pub fn absorbs(&self) -> Result<bool, Errno> {
        if self.is_full() {
            return Ok(true); // a crash brings back what it took, whatever the server's settings are
        }
        let absorbs = self.holds_dirty() && self.works() && server::is_durable();
        match (absorbs, self.area.get(Mark::Absorbing)) {
            (true, ABSORBS) | (false, 0 | ENDED) => {}
            (true, _) if self.area.swap(Mark::Absorbing, ABSORBS) == ENDED => {
                server::say("LOG", "changed pages go to flash again");
            }
            (true, _) => {}
            (false, _) => {
                self.drain()?;
                if self.area.swap(Mark::Absorbing, ENDED) == ABSORBS && self.works() {
                    server::say(
                        "WARNING",
                        "fsync or full_page_writes is off: changed pages go to the disk at once, as under \
                         larder.policy = through",
                    );
                }
            }
        }
        Ok(absorbs)
    }

    /// Takes a write below the end of a file.
    ///
    /// # Errors
    /// If it cannot be taken; then the page is as it was.
    pub fn absorb(&self, page: u64, bytes: &[u8]) -> Result<(), Errno> {
        self.area.raise(page);
        self.area.raise_mark(Mark::Lsn, content::lsn(bytes));
        let position = now(self.pages.log().put(page, bytes, true))?;
        self.area.made_dirty(Number::of_page(page).0, position);
        self.area.count(Mark::Writes);
        self.area.count(Mark::Absorbed);
        Ok(())
    }

    fn is_behind(&self, number: Number) -> bool {
        self.area.dirty_until(number) > self.pages.log().drained()
    }

    /// The disk gets all of a fork that flash alone has.
    ///
    /// # Errors
    /// If it cannot.
    pub fn settle(&self, fork: &Fork) -> Result<(), Errno> {
        match self.area.names().find(fork) {
            Some(number) if self.holds_dirty() && self.is_behind(number) => self.drain(),
            _ => Ok(()),
        }
    }

    /// The disk gets everything that flash alone has.
    ///
    /// # Errors
    /// If it cannot.
    pub fn drain(&self) -> Result<(), Errno> {
        if !self.holds_dirty() {
            return Ok(());
        }
        now(self.pages.log().drain())
    }

    /// Keeps others from bringing these pages to the disk.
    pub fn hold(&self, pages: Range<u64>) -> Vec<impl Drop + use<>> {
        self.pages.log().host().hold_all(&pages)
    }

    /// Makes room before it is needed, for a while; others leave that to this process from now on. Whether there was
    /// anything to do.
    pub fn keep_ahead(&self, while_: Duration) -> bool {
        let begin = Instant::now();
        self.pages.log().host().keep_ahead();
        let mut done = false;
        while begin.elapsed() < while_ && now(self.pages.log().keep()) {
            done = true;
        }
        done
    }

    /// The page's epoch, to be asked for before it is read.
    #[must_use]
    pub fn epoch(&self, page: u64) -> u64 {
        self.area.epoch(page)
    }

    /// A frame was filled with a page, which had this epoch before.
    pub fn filled(&self, frame: usize, page: u64, epoch: u64, bytes: &[u8]) {
        let (hash, checksum) = (content::hash(bytes), content::checksum(bytes));
        self.area.set_record(frame, Some(Record { page, epoch, hash, checksum }));
    }

    /// The disk is about to be written there past the log, which must not bring back what it has; nothing is held.
    ///
    /// # Errors
    /// If it cannot be made so.
    pub fn clear(&self, page: u64) -> Result<(), Errno> {
        match self.is_full() && self.pages.log().has(page) {
            true => now(self.pages.log().bury(page..page + 1)).map(drop),
            false => Ok(()),
        }
    }

    /// The disk is about to be written there.
    ///
    /// # Errors
    /// If the log may still have what is about to be old.
    pub fn begin_write(&self, page: u64) -> Result<Writing, Errno> {
        let epoch = self.area.raise(page);
        now(self.pages.log().drop_pages(page..page + 1))?;
        Ok(Writing { page, epoch })
    }

    /// It was.
    pub fn end_write(&self, writing: Writing, bytes: &[u8]) {
        self.area.count(Mark::Writes);
        let Writing { page, epoch } = writing;
        // What a relation is extended by is written again before anybody reads it.
        if content::is_new(bytes) {
            return;
        }
        let so = || self.area.epoch(page) == epoch;
        if self.check(now(self.pages.log().put_new_if(page, bytes, false, so))) == New::Entered {
            self.area.count(Mark::WritesEntered);
        }
    }

    /// Makes room, if that is due; for whoever holds no page.
    pub fn make_room(&self) {
        now(self.pages.log().work());
    }

    /// These blocks of a segment are about to be no more, or other ones. Nothing is held: what is recorded needs room.
    /// Nobody brings a page of the fork to the disk until what this returns is dropped.
    ///
    /// # Errors
    /// If the log may still have what is about to be old.
    pub fn forget(
        &self,
        fork: &Fork,
        segment: u32,
        blocks: Range<u64>,
    ) -> Result<Vec<impl Drop + use<>>, Errno> {
        // Asked for before it is retired: whoever saw its name before that may be writing.
        let number = self.area.names().find(fork);
        if segment == 0 && blocks.start == 0 {
            self.retire(fork);
        } else if let Some(number) = number {
            self.bury(number, segment, blocks)?;
        }
        let latched = number.filter(|_| self.holds_dirty());
        let keys: Vec<u64> = latched.into_iter().flat_map(Number::latches).collect();
        Ok(self.pages.log().host().latches(&keys))
    }

    fn bury(&self, number: Number, segment: u32, blocks: Range<u64>) -> Result<(), Errno> {
        self.area.raise_all();
        let log = self.pages.log();
        let page = |block| number.page(self.block(segment, block));
        // In pieces, so that others get the lock in between.
        let piece = |first: u64| {
            let last = blocks.end.min(first + PIECE) - 1;
            Some(page(first)?..page(last)? + 1)
        };
        let pieces = blocks.clone().step_by(PIECE as usize).filter_map(piece);
        if is_active(Mutant::NoTombstone) {
            return pieces.into_iter().try_for_each(|pages| now(log.drop_pages(pages)));
        }
        now(log.bury_all(pieces)).map(drop)
    }

    /// Nothing that the log has counts any more.
    pub fn fail(&self, errno: Errno, what: &str) {
        if self.is_full() || self.holds_dirty() && self.pages.status().dirty > 0 {
            self.lost(errno);
        }
        if self.works() {
            self.area.set(Mark::Failed, errno.0 as u64);
            server::say(
                "WARNING",
                &format!("{what} ({errno}); nothing is cached until the next start"),
            );
        }
    }
}
