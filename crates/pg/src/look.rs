// SPDX-License-Identifier: MIT OR Apache-2.0
//! Lookups and reads of pages on flash.
//!
//! Invariant: a page of which only flash has the newest version is read from there, or its read fails. One that the disk has
//! too may come from either: from the disk while flash is overdue (`crates/shared/src/serve.rs`) or disabled.

use std::ops::Range;

use larder_core::buf::Buf;
use larder_core::pagelog::{Got, Latest};
use larder_core::request::Errno;
use larder_shared::now;

use crate::area::Mark;
use crate::error::Failure;
use crate::file::Fork;
use crate::mutant::{Mutant, is_active};
use crate::names::Number;
use crate::pool::{Pool, Use};
use crate::switch::Switch;

/// What a lookup of a page on flash found.
enum Look {
    Hit(Buf),
    Miss,
    /// The page was not waited for. The disk has it too.
    Abandoned,
}

impl Pool {
    /// A read of a page begins; returns where its newest version is. `None`: the disk has it, and flash was not asked. A
    /// scan mostly reads what the kernel has read ahead, and asking flash takes a lock of all processes.
    #[must_use]
    pub fn begin_read(&self, page: u64, how: Use) -> Option<Latest> {
        self.area().count(Mark::Reads);
        self.area().tally().read(Number::of_page(page).0.entry());
        let (overdue, disk_suffices) = (self.is_overdue(), self.policy().disk_suffices());
        if (how == Use::Scan || overdue) && disk_suffices {
            return None;
        }
        if disk_suffices {
            // Wherever the page is read from, it is the newest version. A wrong answer costs a read of the disk.
            return Some(match self.flash().log().glance(page, how == Use::Access) {
                true => Latest::Both,
                false => Latest::Origin,
            });
        }
        Some(self.latest(page, how)).filter(|latest| *latest == Latest::Log || !overdue)
    }

    /// Whether flash takes too long at the moment, and is asked only for what the disk lacks.
    #[must_use]
    pub fn is_overdue(&self) -> bool {
        self.flash().is_overdue()
    }

    fn latest(&self, page: u64, how: Use) -> Latest {
        match self.flash().log().latest(page, how == Use::Access) {
            Latest::Log if is_active(Mutant::NearDirty) => Latest::Both,
            latest => latest,
        }
    }

    /// A page that flash has was read from the kernel's page cache.
    pub fn was_near(&self, page: u64) {
        self.area().count(Mark::Near);
        self.was_hit(page);
    }

    fn was_hit(&self, page: u64) {
        self.area().count(Mark::Hits);
        self.area().tally().hit(Number::of_page(page).0.entry());
    }

    /// Reads pages from flash, all at the same time: those that it has.
    ///
    /// # Errors
    /// If the process is to stop.
    pub fn fetch(&self, pages: &[(u64, Use)]) -> Result<Vec<Option<Buf>>, Errno> {
        let mut found = Vec::with_capacity(pages.len());
        for ((page, _), look) in pages.iter().zip(self.look(pages)) {
            found.push(match look? {
                Look::Hit(bytes) => {
                    self.was_hit(*page);
                    Some(bytes)
                }
                Look::Miss => {
                    if let Err(failure) = self.policy().missed(self.flash(), *page) {
                        self.fail(failure);
                    }
                    None
                }
                Look::Abandoned => None,
            });
        }
        Ok(found)
    }

    /// The newest versions of pages that flash may have.
    fn look(&self, pages: &[(u64, Use)]) -> impl Iterator<Item = Result<Look, Errno>> {
        let wanted: Vec<(u64, bool)> =
            pages.iter().map(|(page, how)| (*page, *how == Use::Access)).collect();
        now(self.flash().log().get_each(&wanted)).into_iter().map(|got| match got {
            Ok(Got::Hit(bytes, _)) => Ok(Look::Hit(bytes)),
            Ok(Got::Miss) => Ok(Look::Miss),
            // Only the read of a clean page is abandoned because flash is slow.
            Err(Errno::ETIMEDOUT) => Ok(Look::Abandoned),
            Err(Errno::ECANCELED) => Err(Errno::ECANCELED),
            Err(Errno::EOWNERDEAD) => {
                self.fail(Failure::Unserved);
                Ok(Look::Abandoned)
            }
            Err(errno) => {
                self.policy().cannot_read(self.flash(), errno);
                Ok(Look::Miss)
            }
        })
    }

    /// The blocks of these that flash holds and the disk has an older version of, with their bytes.
    ///
    /// # Errors
    /// If the process is to stop.
    pub fn newer(&self, fork: &Fork, blocks: Range<u64>) -> Result<Vec<(u64, Buf)>, Errno> {
        if self.policy().disk_suffices() || Switch::flash(self.area()).is_off() {
            return Ok(Vec::new());
        }
        let newest = |block| {
            let page = self.flash().page(fork, block)?;
            (self.latest(page, Use::Scan) == Latest::Log).then_some((block, page))
        };
        let (blocks, pages): (Vec<u64>, Vec<(u64, Use)>) =
            blocks.filter_map(newest).map(|(block, page)| (block, (page, Use::Scan))).unzip();
        let looks = blocks.into_iter().zip(self.look(&pages));
        let mut found = Vec::new();
        for (block, look) in looks {
            // Otherwise it was written to the disk meanwhile.
            if let Look::Hit(bytes) = look? {
                found.push((block, bytes));
            }
        }
        Ok(found)
    }

    /// Runs of these blocks that flash does not have.
    #[must_use]
    pub fn lacks(&self, fork: &Fork, blocks: Range<u64>) -> Vec<Range<u64>> {
        let mut runs: Vec<Range<u64>> = Vec::new();
        for block in blocks {
            if self
                .flash()
                .page(fork, block)
                .is_some_and(|page| self.flash().log().glance(page, false))
            {
                continue;
            }
            match runs.last_mut() {
                Some(run) if run.end == block => run.end += 1,
                _ => runs.push(block..block + 1),
            }
        }
        runs
    }
}
