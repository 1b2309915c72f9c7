// SPDX-License-Identifier: MIT OR Apache-2.0
//! Flash as one process sees it: the log, what processes share beside it, and the journal of names.
//!
//! The operations here are the same under every policy; a policy decides when they run (`policy/`).

use std::cell::Cell;
use std::ops::Range;
use std::sync::Arc;

use larder_core::pagelog::{Host, PageLog};
use larder_core::request::Errno;
use larder_shared::{Devices, Locked, Member, Memory, Pages, Words, now};

use crate::area::{Area, Mark};
use crate::error::Failure;
use crate::extent::{EXTENT_BLOCKS, Extent, Extents};
use crate::file::Fork;
use crate::journal::{self, Journal};
use crate::mutant::{Mutant, is_active};
use crate::names::{Lack, Number};
use crate::server;
use crate::switch::Switch;

/// Pages that are dropped together.
const PIECE: u64 = 1024;

/// See the module.
pub struct Flash {
    pages: Pages,
    area: Area,
    journal: Journal,
    extents: Extents,
    /// This process has reported damage.
    told: Cell<bool>,
}

impl Flash {
    /// Joins the members of the memory.
    ///
    /// # Errors
    /// If there is no room for one more.
    pub fn join(
        memory: &Arc<Memory>,
        devices: Devices,
        journal: Journal,
        extents: Extents,
    ) -> Result<Self, Errno> {
        let (pages, area) = (Pages::join(memory, devices)?, Area::of(memory));
        Ok(Self { pages, area, journal, extents, told: Cell::new(false) })
    }

    /// What is shared beside the log.
    #[must_use]
    pub fn area(&self) -> &Area {
        &self.area
    }

    /// The log's pages.
    #[must_use]
    pub fn pages(&self) -> &Pages {
        &self.pages
    }

    /// The log.
    #[must_use]
    pub fn log(&self) -> &PageLog<Member, Words> {
        self.pages.log()
    }

    /// Whether pages may be read from it and admitted.
    #[must_use]
    pub fn works(&self) -> bool {
        self.area.get(Mark::Failed) == 0
    }

    /// Whether it takes too long at the moment.
    #[must_use]
    pub fn is_overdue(&self) -> bool {
        self.log().host().is_overdue()
    }

    /// See [`Host::hurry`].
    pub fn hurry(&self, hurried: bool) {
        self.log().host().hurry(hurried);
    }

    /// How forks are divided.
    #[must_use]
    pub fn extents(&self) -> Extents {
        self.extents
    }

    /// The block of a fork that a segment's block is.
    #[must_use]
    pub fn block(&self, segment: u32, block: u64) -> u64 {
        u64::from(segment) * self.extents.segment_blocks() + block
    }

    /// The page of a fork's block, if its extent has a number.
    #[must_use]
    pub fn page(&self, fork: &Fork, block: u64) -> Option<u64> {
        let (extent, block) = self.extents.of(fork, block)?;
        Some(self.area.names().find(&extent)?.page(block))
    }

    /// As above. An extent without a number gets a free one, or if `displace` that of another extent.
    #[must_use]
    pub fn assign_page(&self, fork: &Fork, block: u64, displace: impl Fn() -> bool) -> Option<u64> {
        let (extent, block) = self.extents.of(fork, block)?;
        Some(self.number(&extent, displace)?.page(block))
    }

    fn number(&self, extent: &Extent, displace: impl Fn() -> bool) -> Option<Number> {
        let names = self.area.names();
        let assign = || {
            // Without the latch: an extent without a number is asked for again with each of its pages.
            names.may_assign(extent, displace())?;
            let _one = self.log().host().latch(journal::LATCH);
            self.area.count(Mark::NamesChanged);
            // Asked for under the latch, see `take_changes`.
            let number = names.assign(extent, displace())?;
            self.area.tally().begin(number.entry());
            Ok(number)
        };
        let number = names.find(extent).map_or_else(assign, Ok);
        number.inspect_err(|lack| self.tell_of_lack(extent, *lack)).ok()
    }

    /// Flash takes changes from now on. No number is displaced afterwards; one that was displaced before is not current.
    pub fn take_changes(&self) {
        let _one = self.log().host().latch(journal::LATCH);
        Switch::changes(&self.area).on();
    }

    /// Returns when no process is in the middle of a change that it began before: changes are made under the log's lock.
    pub fn changes_end(&self) {
        let _ = self.pages.status();
    }

    /// The numbers of a segment's extents.
    #[must_use]
    pub fn numbers(&self, fork: &Fork, segment: u32) -> Vec<Number> {
        let names = self.area.names();
        self.extents.of_segment(fork, segment).filter_map(|extent| names.find(&extent)).collect()
    }

    /// A segment's extents lose their numbers, and with them every page that the log has of them.
    pub fn retire(&self, fork: &Fork, segment: u32) {
        if self.numbers(fork, segment).is_empty() {
            return;
        }
        let _one = self.log().host().latch(journal::LATCH);
        self.area.count(Mark::NamesChanged);
        for extent in self.extents.of_segment(fork, segment) {
            if self.area.names().retire(&extent) {
                self.area.count(Mark::Retired);
            }
        }
    }

    /// Whether the extent of the page still has its number.
    #[must_use]
    pub fn is_current(&self, page: u64) -> bool {
        self.area.names().extent_of(Number::of_page(page).0).is_some()
    }

    /// The position to which the log must be drained so that the disk has all of a segment.
    #[must_use]
    pub fn dirty_until(&self, fork: &Fork, segment: u32) -> u64 {
        let until = |number: &Number| self.area.dirty_until(*number);
        self.numbers(fork, segment).iter().map(until).max().unwrap_or(0)
    }

    /// Writes the dirty pages of a segment back to the disk, if it may have any.
    ///
    /// # Errors
    /// If that fails.
    pub fn settle(&self, fork: &Fork, segment: u32) -> Result<(), Failure> {
        match self.dirty_until(fork, segment) > self.log().drained() {
            true => self.drain(),
            false => Ok(()),
        }
    }

    /// Writes all dirty pages back to the disk.
    ///
    /// # Errors
    /// If that fails.
    pub fn drain(&self) -> Result<(), Failure> {
        now(self.log().drain()).map_err(|errno| match errno {
            Errno::ECANCELED => Failure::Canceled,
            errno => Failure::Disk(errno),
        })
    }

    /// Keeps other processes from writing these pages back.
    #[must_use]
    pub fn hold(&self, pages: &[u64]) -> Vec<Locked> {
        self.log().host().hold_each(pages)
    }

    /// Keeps other processes from writing any page of these numbers back.
    #[must_use]
    pub fn latch(&self, numbers: &[Number]) -> Vec<Locked> {
        let latches = numbers.iter().flat_map(|number| number.latches());
        self.log().host().latches(&latches.collect::<Vec<u64>>())
    }

    /// Drops a page; durably if a crash would restore it. The caller holds no page.
    ///
    /// # Errors
    /// If the log may still have it.
    pub fn bury_page(&self, page: u64) -> Result<(), Failure> {
        now(self.log().bury(page..page + 1)).map(drop).map_err(Failure::Flash)
    }

    /// As above, of blocks of a segment.
    ///
    /// # Errors
    /// As above.
    pub fn bury(&self, fork: &Fork, segment: u32, blocks: &Range<u64>) -> Result<(), Failure> {
        self.area.raise_all();
        let mut pieces = self.pieces(fork, segment, blocks).into_iter();
        let buried = match is_active(Mutant::NoTombstone) {
            true => pieces.try_for_each(|pages| now(self.log().drop_pages(pages))),
            false => now(self.log().bury_all(pieces)).map(drop),
        };
        buried.map_err(Failure::Drop)
    }

    /// The pages of blocks of a segment, in pieces, so that other processes get the lock in between.
    fn pieces(&self, fork: &Fork, segment: u32, blocks: &Range<u64>) -> Vec<Range<u64>> {
        let mut pieces = Vec::new();
        for extent in self.extents.of_segment(fork, segment) {
            let Some(number) = self.area.names().find(&extent) else { continue };
            let (_, first) = self.extents.place(&extent);
            let last = blocks.end.min(first + EXTENT_BLOCKS);
            let mut from = blocks.start.max(first);
            while from < last {
                let count = PIECE.min(last - from);
                let page = number.page(from - first);
                pieces.push(page..page + count);
                from += count;
            }
        }
        pieces
    }

    /// Makes durable what was written back.
    ///
    /// # Errors
    /// If that fails.
    pub fn flush_disk(&self) -> Result<(), Failure> {
        now(self.log().host().flush_origin()).map_err(Failure::Disk)
    }

    /// Makes the log durable up to this position.
    ///
    /// # Errors
    /// If that fails.
    pub fn settle_log(&self, position: u64) -> Result<(), Failure> {
        now(self.log().settle(position)).map_err(Failure::Flash)
    }

    /// Makes all of the log durable.
    ///
    /// # Errors
    /// If that fails.
    pub fn flush_log(&self) -> Result<(), Failure> {
        now(self.log().flush()).map_err(Failure::Flash)
    }

    /// Makes changes of fork names durable, and with `control` the hash that `pg_control` is about to have.
    ///
    /// # Errors
    /// If that fails.
    pub fn sync_names(&self, control: Option<u64>) -> Result<(), Failure> {
        let _one = self.log().host().latch(journal::LATCH);
        let done = self.journal.sync(&self.area, control);
        done.map_err(|error| Failure::Names(error.raw_os_error().map_or(Errno::EIO, Errno)))
    }

    /// Warns of damage that loses nothing, once a process.
    pub fn tell_of_damage(&self) {
        if !self.told.replace(true) {
            server::say("WARNING", "a page on flash is damaged; the disk has the same");
        }
    }

    /// Warns, once in the life of the memory, that an extent is not cached because it can have no number.
    fn tell_of_lack(&self, extent: &Extent, lack: Lack) {
        let (mark, why) = match lack {
            Lack::Crowded => (
                Mark::ToldCrowded,
                "others with the same hash have all places for its name; VACUUM FULL or REINDEX gives the files of a table or \
                 index new names",
            ),
            Lack::WornOut => (
                Mark::ToldWornOut,
                "the numbers for its name are used up; a start with another larder.flash_size begins with an empty cache \
                 and all numbers",
            ),
        };
        if self.area.swap(mark, 1) == 0 {
            let Fork { relation, database, .. } = extent.fork;
            let file = format!("a file of relation {relation} in database {database}");
            server::say("WARNING", &format!("{file} is not cached: {why}"));
        }
    }

    /// Ends caching; the server continues without flash.
    pub fn give_up(&self, failure: Failure) {
        if self.works() {
            self.area.set(Mark::Failed, failure.errno().0 as u64);
            server::say("WARNING", &format!("{failure}; nothing is cached until the next start"));
        }
    }

    /// Aborts this process because dirty pages cannot be read. `then` is what the operator must expect.
    pub fn lost(&self, errno: Errno, then: &str) -> ! {
        let then = match errno {
            // Then a new process serves flash.
            Errno::EOWNERDEAD => "the server restarts itself, and has all pages then",
            _ => {
                self.area.set(Mark::Failed, errno.0 as u64);
                then
            }
        };
        server::say("PANIC", &format!("dirty pages cannot be read from flash ({errno}); {then}"));
        std::process::abort()
    }
}
