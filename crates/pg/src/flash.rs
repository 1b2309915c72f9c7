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
use crate::file::Fork;
use crate::journal::{self, Journal};
use crate::mutant::{Mutant, is_active};
use crate::names::Number;
use crate::server;

/// Pages that are dropped together.
const PIECE: u64 = 1024;

/// See the module.
pub struct Flash {
    pages: Pages,
    area: Area,
    journal: Journal,
    /// Blocks of a segment.
    segment_blocks: u64,
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
        segment_blocks: u64,
    ) -> Result<Self, Errno> {
        let (pages, area) = (Pages::join(memory, devices)?, Area::of(memory));
        Ok(Self { pages, area, journal, segment_blocks, told: Cell::new(false) })
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

    /// Blocks of a segment.
    #[must_use]
    pub fn segment_blocks(&self) -> u64 {
        self.segment_blocks
    }

    /// The block of a fork that a segment's block is.
    #[must_use]
    pub fn block(&self, segment: u32, block: u64) -> u64 {
        u64::from(segment) * self.segment_blocks + block
    }

    /// The number of a fork. A fork without one gets a free number, or with `displace` that of another fork.
    #[must_use]
    pub fn number(&self, fork: &Fork, displace: bool) -> Option<Number> {
        let names = self.area.names();
        names.find(fork).or_else(|| {
            let _one = self.log().host().latch(journal::LATCH);
            self.area.count(Mark::NamesChanged);
            names.assign(fork, displace)
        })
    }

    /// The fork loses its number, and with it every page that the log has of it.
    pub fn retire(&self, fork: &Fork) {
        if self.area.names().find(fork).is_none() {
            return;
        }
        let _one = self.log().host().latch(journal::LATCH);
        self.area.count(Mark::NamesChanged);
        if self.area.names().retire(fork) {
            self.area.count(Mark::Retired);
        }
    }

    /// Whether the fork of the page still has its number.
    #[must_use]
    pub fn is_current(&self, page: u64) -> bool {
        self.area.names().fork_of(Number::of_page(page).0).is_some()
    }

    /// Writes the dirty pages of a fork back to the disk, if it may have any.
    ///
    /// # Errors
    /// If that fails.
    pub fn settle(&self, fork: &Fork) -> Result<(), Failure> {
        let is_behind = |number| self.area.dirty_until(number) > self.log().drained();
        match self.area.names().find(fork) {
            Some(number) if is_behind(number) => self.drain(),
            _ => Ok(()),
        }
    }

    /// Writes all dirty pages back to the disk.
    ///
    /// # Errors
    /// If that fails.
    pub fn drain(&self) -> Result<(), Failure> {
        now(self.log().drain()).map_err(Failure::Disk)
    }

    /// Keeps other processes from writing these pages back.
    #[must_use]
    pub fn hold(&self, pages: &Range<u64>) -> Vec<Locked> {
        self.log().host().hold_all(pages)
    }

    /// Keeps other processes from writing any page of this number back.
    #[must_use]
    pub fn latch(&self, number: Number) -> Vec<Locked> {
        self.log().host().latches(&number.latches().collect::<Vec<u64>>())
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
    pub fn bury(&self, number: Number, segment: u32, blocks: Range<u64>) -> Result<(), Failure> {
        self.area.raise_all();
        let page = |block| number.page(self.block(segment, block));
        // In pieces, so that other processes get the lock in between.
        let piece = |first: u64| {
            let last = blocks.end.min(first + PIECE) - 1;
            Some(page(first)?..page(last)? + 1)
        };
        let mut pieces = blocks.clone().step_by(PIECE as usize).filter_map(piece);
        let buried = match is_active(Mutant::NoTombstone) {
            true => pieces.try_for_each(|pages| now(self.log().drop_pages(pages))),
            false => now(self.log().bury_all(pieces)).map(drop),
        };
        buried.map_err(Failure::Drop)
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

    /// Ends caching; the server continues without flash.
    pub fn give_up(&self, failure: Failure) {
        if self.works() {
            self.area.set(Mark::Failed, failure.errno().0 as u64);
            server::say("WARNING", &format!("{failure}; nothing is cached until the next start"));
        }
    }

    /// Aborts this process because dirty pages cannot be read. `then` is what the operator must expect.
    pub fn lost(&self, errno: Errno, then: &str) -> ! {
        self.area.set(Mark::Failed, errno.0 as u64);
        server::say("PANIC", &format!("dirty pages cannot be read from flash ({errno}); {then}"));
        std::process::abort()
    }
}
