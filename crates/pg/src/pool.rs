// SPDX-License-Identifier: MIT OR Apache-2.0
//! The paths of a page: read into a frame, evicted from a frame, written, dropped.
//!
//! # Invariants
//! Rules P1 to P3 of docs/design.md: which version the log has (P1), which pages are admitted from a frame (P2), and that a
//! change of a file is reported before it happens (P3, [`Pool::forget`]). Each policy has its own rules for changed pages
//! (`policy/`, P4 to P9).
//!
//! Why both hash and epoch: a frame may be changed without a system call, so that its bytes differ from those on the disk.
//! And the disk may be written without the frame, so that the bytes match the record and are old.

use std::cell::Cell;
use std::io;
use std::time::{Duration, Instant};

use larder_core::buf::Buf;
use larder_core::pagelog::{LogPolicy, New};
use larder_core::request::Errno;
use larder_shared::{Locked, Pages, now};

use crate::admits;
use crate::area::{Area, Mark, Record};
use crate::content;
use crate::control::Control;
use crate::error::Failure;
use crate::file::Fork;
use crate::flash::Flash;
use crate::following::Following;
use crate::mutant::{Mutant, is_active};
use crate::names::Number;
use crate::pace::Pace;
use crate::policy::{self, Policy};
use crate::process;
use crate::ring::{self, Runs};
use crate::switch::{NotOff, Switch};

/// The cache as one process sees it.
pub struct Pool {
    flash: Flash,
    log_policy: LogPolicy,
    /// What this process writes.
    runs: Runs,
    /// How far a checkpoint of this process is.
    pub(crate) pace: Pace,
    /// How far a change of the policy is, in the background writer.
    pub(crate) following: Following,
    /// The page that it reads next to admit it (`prewarm.rs`), from 1 on; and how many such pages it has read.
    pub(crate) expected: Cell<(u64, u64)>,
}

/// How a read of a page counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// As an access, which keeps the page on flash for another round.
    Access,
    /// As part of a scan: not at all.
    Scan,
}

/// A page that a process is writing.
#[derive(Clone, Copy, Debug)]
pub struct Writing {
    page: u64,
    epoch: u64,
    /// It is admitted afterwards.
    enters: bool,
    /// Flash still has its older version, which is dirty, see [`Policy::may_pass_flash`].
    stays: bool,
}

impl Pool {
    /// Over flash, whose log has this policy.
    #[must_use]
    pub fn new(flash: Flash, log_policy: LogPolicy) -> Self {
        let (runs, pace) = (Runs::default(), Pace::default());
        let (following, expected) = (Following::default(), Cell::default());
        Self { flash, log_policy, runs, pace, following, expected }
    }

    /// The policy of the log.
    pub(crate) fn log_policy(&self) -> LogPolicy {
        self.log_policy
    }

    /// The policy in force now.
    #[must_use]
    pub fn policy(&self) -> &'static dyn Policy {
        policy::in_force(self.log_policy, self.area())
    }

    /// Flash.
    #[must_use]
    pub fn flash(&self) -> &Flash {
        &self.flash
    }

    /// The shared area.
    #[must_use]
    pub fn area(&self) -> &Area {
        self.flash.area()
    }

    /// The log.
    #[must_use]
    pub fn pages(&self) -> &Pages {
        self.flash.pages()
    }

    /// Whether pages may be read from it.
    #[must_use]
    pub fn works(&self) -> bool {
        self.flash.works() && !Switch::flash(self.area()).is_off()
    }

    fn check(&self, result: Result<New, Errno>) -> New {
        result.unwrap_or_else(|errno| {
            self.fail(Failure::Flash(errno));
            New::NotNow
        })
    }

    /// The block of a fork that a segment's block is.
    #[must_use]
    pub fn block(&self, segment: u32, block: u64) -> u64 {
        self.flash.block(segment, block)
    }

    /// The page of a block; its extent gets a number if it has none.
    #[must_use]
    pub fn page(&self, fork: &Fork, block: u64) -> Option<u64> {
        // With dirty pages on flash, another process may be about to put one under the number that would be displaced.
        self.flash.assign_page(fork, block, || self.policy().disk_suffices())
    }

    /// The page in a frame is about to be replaced by the page `next`. `copy` copies its bytes. Returns how the next page
    /// counts.
    pub fn leaves(&self, frame: usize, next: Option<u64>, copy: impl FnOnce() -> Buf) -> Use {
        let area = self.area();
        let expected = self.is_expected(next);
        let Some(record) = area.record(frame) else { return Use::Access };
        area.set_record(frame, None);
        let is_scan = |next| {
            ring::has(&record, next, area.get(Mark::Fills), area.frames())
                && !expected
                && !self.is_pinned(next)
        };
        if next.is_some_and(is_scan) && !is_active(Mutant::ScanEnters) {
            self.runs.read(next.unwrap_or_default());
            match self.is_pinned(record.page) {
                true => self.admit(record, copy),
                false => area.count(Mark::CleanScanned),
            }
            return Use::Scan;
        }
        self.admit(record, copy);
        Use::Access
    }

    fn is_pinned(&self, page: u64) -> bool {
        self.area().is_pinned(self.flash.extents(), page)
    }

    /// Admits a clean page, if it is as it was read and flash lacks it.
    fn admit(&self, record: Record, copy: impl FnOnce() -> Buf) {
        let area = self.area();
        if !admits::clean(area) {
            return;
        }
        let Record { page, epoch, hash: Some(hash), checksum, .. } = record else {
            return area.count(Mark::CleanScanned);
        };
        let so = || {
            Switch::flash(area).is_on() && (area.epoch(page) == epoch || is_active(Mutant::NoEpoch))
        };
        if !so() || !self.flash.is_current(page) {
            return area.count(Mark::CleanChanged);
        }
        if self.flash.log().glance(page, false) {
            return area.count(Mark::CleanKept);
        }
        let mut buf = copy();
        if content::hash(&buf) != hash && !is_active(Mutant::NoHash) {
            return area.count(Mark::CleanChanged);
        }
        content::set_checksum(&mut buf, checksum);
        area.count(match self.check(now(self.flash.log().put_new_if(page, &buf, false, so))) {
            New::Entered => Mark::CleanEntered,
            New::NoRoom => Mark::CleanNoRoom,
            New::NotNow => Mark::CleanKept,
        });
        self.make_room();
    }

    /// Whether flash takes writes instead of the disk at the moment, see [`Policy::absorbs`].
    ///
    /// # Errors
    /// As there.
    pub fn absorbs(&self) -> Result<bool, Failure> {
        match self.takes_changes() {
            true => self.policy().absorbs(&self.flash),
            false => Ok(false),
        }
    }

    fn takes_changes(&self) -> bool {
        let area = self.area();
        Switch::flash(area).is_on() && Switch::changes(area).is_on() && admits::written(area)
    }

    /// Takes a write below the end of a file. Returns false if flash takes no changes any more, or the page's number was displaced
    /// while it took none: the disk takes it then.
    ///
    /// # Errors
    /// If it cannot be taken; then the page is as it was. [`Failure::is_overdue`]: the disk may take it.
    pub fn absorb(&self, page: u64, bytes: &[u8]) -> Result<bool, Failure> {
        let area = self.area();
        area.raise(page);
        area.raise_mark(Mark::Lsn, content::lsn(bytes));
        let current = || self.flash.is_current(page) || is_active(Mutant::AbsorbsDisplaced);
        let so = || self.takes_changes() && current() || is_active(Mutant::DisabledAbsorbs);
        self.flash.hurry(self.policy().may_pass_flash());
        let taken = now(self.flash.log().put_if(page, bytes, true, so));
        self.flash.hurry(false);
        let Some(position) = taken.map_err(Failure::Flash)? else { return Ok(false) };
        area.made_dirty(Number::of_page(page).0, position);
        area.count(Mark::Writes);
        area.count(Mark::Absorbed);
        Ok(true)
    }

    /// Disables the cache for all processes: writes all dirty pages back, and ends reads from flash.
    ///
    /// # Errors
    /// If pages cannot be written back; then the cache stays enabled.
    pub fn disable(&self) -> Result<(), NotOff> {
        Switch::flash(self.area()).off(|| {
            self.flash.changes_end();
            self.drain()
        })
    }

    /// Enables it again.
    pub fn enable(&self) {
        Switch::flash(self.area()).on();
    }

    /// Writes the dirty pages of a segment back to the disk.
    ///
    /// # Errors
    /// If that fails.
    pub fn settle(&self, fork: &Fork, segment: u32) -> Result<(), Failure> {
        self.policy().settle(&self.flash, fork, segment)
    }

    /// Writes all dirty pages back to the disk.
    ///
    /// # Errors
    /// If that fails.
    pub fn drain(&self) -> Result<(), Failure> {
        self.policy().drain(&self.flash)
    }

    /// Keeps other processes from writing these pages back.
    #[must_use]
    pub fn hold(&self, pages: &[u64]) -> Vec<Locked> {
        self.policy().hold(&self.flash, pages)
    }

    /// Makes room in advance for a while; other processes leave this to this process from now on. Returns whether there was
    /// work.
    pub fn keep_ahead(&self, while_: Duration) -> bool {
        let begin = Instant::now();
        self.flash.log().host().keep_ahead();
        let mut done = false;
        while !self.is_overdue() && begin.elapsed() < while_ && now(self.flash.log().keep()) {
            done = true;
        }
        done
    }

    /// The page's epoch. The caller gets it before it reads the page.
    #[must_use]
    pub fn epoch(&self, page: u64) -> u64 {
        self.area().epoch(page)
    }

    /// A frame was filled with a page, which had this epoch before.
    pub fn filled(&self, frame: usize, page: u64, how: Use, epoch: u64, bytes: &[u8]) {
        let enters = how == Use::Access && admits::clean(self.area());
        let hash = enters.then(|| content::hash(bytes));
        let checksum = content::checksum(bytes);
        let fill = self.area().fill();
        self.area().set_record(frame, Some(Record { page, epoch, hash, checksum, fill }));
    }

    /// The disk is about to be written there without the log, see [`Policy::clear`].
    ///
    /// # Errors
    /// As there.
    pub fn clear(&self, page: u64) -> Result<(), Failure> {
        self.policy().clear(&self.flash, page)
    }

    /// The disk is about to be written there, the `whole` page or a part of it, so many pages before the end of the file. Of a
    /// part no [`end_write`](Self::end_write) follows.
    ///
    /// # Errors
    /// If the log may still have the old version.
    pub fn begin_write(
        &self,
        page: u64,
        whole: bool,
        before_end: impl FnOnce() -> u64,
    ) -> Result<Writing, Failure> {
        let frames = self.area().frames();
        let ring = !process::writes_for_all() && self.runs.write(page, frames, before_end);
        let wanted = || self.flash.log().glance(page, false) || self.is_pinned(page);
        let enters = !ring || wanted() || is_active(Mutant::ScanEnters);
        let epoch = self.area().raise(page);
        // A clean version is dropped first: if this process dies after the write, a later read would find it on flash.
        let dirty = || self.flash.log().has_dirty(page) || is_active(Mutant::KeepsClean);
        let stays =
            whole && self.policy().may_pass_flash() && dirty() && !is_active(Mutant::DropsEarly);
        if !stays {
            self.drop_page(page)?;
        }
        Ok(Writing { page, epoch, enters, stays })
    }

    fn drop_page(&self, page: u64) -> Result<(), Failure> {
        match Switch::flash(self.area()).is_on() || !is_active(Mutant::EnableServesOld) {
            true => now(self.flash.log().drop_pages(page..page + 1)).map_err(Failure::Drop),
            false => Ok(()),
        }
    }

    /// The disk was written there.
    pub fn end_write(&self, writing: Writing, bytes: &[u8]) {
        self.area().count(Mark::Writes);
        let Writing { page, epoch, enters, stays } = writing;
        if stays && let Err(failure) = self.drop_page(page) {
            return self.fail(failure);
        }
        // Pages that extend a relation are written again before they are read.
        if !enters || content::is_new(bytes) || !self.works() || !admits::written(self.area()) {
            return;
        }
        let so = || Switch::flash(self.area()).is_on() && self.area().epoch(page) == epoch;
        let entered = self.check(now(self.flash.log().put_new_if(page, bytes, false, so)));
        if entered == New::Entered {
            self.area().count(Mark::WritesEntered);
        }
    }

    /// Makes room, if that is due. The caller holds no page.
    pub fn make_room(&self) {
        if !self.is_overdue() && !Switch::flash(self.area()).is_off() {
            now(self.flash.log().work());
        }
    }

    /// Drops the blocks of a segment from this one on, before the server truncates or drops the file; `on_disk` counts the
    /// blocks in it. The caller holds no page, since a tombstone needs room. No page of the file is written back until the
    /// result is dropped.
    ///
    /// # Errors
    /// If the log may still have the old version.
    pub fn forget(
        &self,
        fork: &Fork,
        segment: u32,
        from: u64,
        on_disk: &dyn Fn() -> io::Result<u64>,
    ) -> Result<Vec<Locked>, Failure> {
        if from == 0 && segment == 0 && fork.kind == 0 {
            self.unpin(fork);
        }
        // Looked up before they are retired: a process that saw one earlier may be writing.
        let numbers = self.flash.numbers(fork, segment);
        if numbers.is_empty() {
            return Ok(Vec::new());
        }
        if from == 0 {
            self.flash.retire(fork, segment);
        } else {
            let end = self.policy().forgets(self.flash.extents().segment_blocks(), on_disk);
            self.flash.bury(fork, segment, &(from..end.max(from)))?;
        }
        Ok(self.policy().latch(&self.flash, &numbers))
    }

    /// See [`Policy::commit`].
    ///
    /// # Errors
    /// As there.
    pub fn commit(&self, fork: &Fork, segment: u32) -> Result<(), Failure> {
        if self.pace.is_under_way() && is_active(Mutant::AheadDrains) {
            return Ok(());
        }
        self.pace.end(Instant::now());
        self.policy().commit(&self.flash, fork, segment)
    }

    /// See [`Policy::commit_all`].
    ///
    /// # Errors
    /// As there.
    pub fn commit_all(&self) -> Result<(), Failure> {
        self.pace.end(Instant::now());
        self.policy().commit_all(&self.flash)
    }

    /// See [`Policy::commit_control`].
    ///
    /// # Errors
    /// As there.
    pub fn commit_control(&self, control: &Control) -> Result<(), Failure> {
        self.policy().commit_control(&self.flash, control)
    }

    /// See [`Policy::commit_names`].
    ///
    /// # Errors
    /// As there.
    pub fn commit_names(&self) -> Result<(), Failure> {
        self.policy().commit_names(&self.flash)
    }

    /// Ends caching after a failure. Returns only if the server may continue without flash. An abandoned wait is no failure.
    pub fn fail(&self, failure: Failure) {
        if failure.is_abandoned() {
            return;
        }
        self.policy().failed(&self.flash, failure);
    }
}
