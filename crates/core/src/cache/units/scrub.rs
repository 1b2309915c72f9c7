// SPDX-License-Identifier: MIT OR Apache-2.0
//! Units whose pages are read back and compared with their checksums (`cache/scrub.rs`).
//!
//! A clean page that does not match is read from the origin and written to flash again. Reads count as no access, so that a
//! scrub changes nothing of what is evicted next.

use std::rc::Rc;

use super::clean::Clean;
use super::unit_cache::UnitCache;
use super::write_back::WriteBack;
use crate::cache::scrub::Damaged;
use crate::flash::{FlashError, Mismatch};
use crate::journal::Journal;
use crate::pages::{MOST_PAGES, Pages};
use crate::population::step::populate_pages;
use crate::request::Errno;

impl Clean {
    /// Reads what flash has of these pages.
    ///
    /// # Errors
    /// The device fails as a whole.
    pub(crate) async fn scrub(
        self: Rc<Self>,
        unit: u32,
        pages: Pages,
    ) -> Result<Vec<Damaged>, Errno> {
        let mut found = Vec::new();
        for run in self.units.valid_runs_of(unit, pages) {
            for page in self.damaged(unit, &run).await? {
                let page = page..page + 1;
                self.units.table.invalidate(unit, &page);
                // A page that cannot be copied stays invalid.
                let _ = populate_pages(&self.units, unit, page.clone()).await;
                found.push(Damaged::of(&self.units.cx.shape, unit, page, false));
            }
        }
        Ok(found)
    }

    /// The pages of a run that do not match their checksum, or cannot be read while the device can.
    async fn damaged(&self, unit: u32, run: &Pages) -> Result<Vec<u32>, Errno> {
        let alone = run.len() == 1;
        let read = match self.units.table.peek(unit, run) {
            Some(pin) => Some(self.units.read_pages(pin, run).await),
            None => None, // a page was evicted or written meanwhile
        };
        match read {
            Some(Ok(_)) => return Ok(Vec::new()),
            Some(Err(FlashError::Mismatch(Mismatch::Damage(damaged), _))) => {
                return Ok(damaged.into_iter().map(|page| run.start + page).collect());
            }
            Some(Err(error)) if !self.units.flash.usable() => return Err(error.errno()),
            None | Some(Err(FlashError::Mismatch(Mismatch::Raced, _))) if alone => {
                return Ok(Vec::new());
            }
            Some(Err(_)) if alone => return Ok(vec![run.start]),
            None | Some(Err(_)) => {}
        }
        let mut found = Vec::new();
        for page in run.clone() {
            found.extend(Box::pin(self.damaged(unit, &(page..page + 1))).await?);
        }
        Ok(found)
    }
}

impl WriteBack {
    /// Reads what flash has of these pages.
    ///
    /// # Errors
    /// The device fails as a whole.
    pub(crate) async fn scrub(
        self: Rc<Self>,
        unit: u32,
        pages: Pages,
    ) -> Result<Vec<Damaged>, Errno> {
        let (cx, mut found) = (&self.units.cx, Vec::new());
        for run in self.units.valid_runs_of(unit, pages) {
            let _pass = self.gate.enter(unit, &cx.exec).await;
            let Some(pin) = self.units.table.peek(unit, &run) else { continue };
            for page in self.slots.damaged(&pin, &run).await? {
                let page = page..page + 1;
                let restored = self.restore(pin.clone(), unit, &page).await;
                // A page that is dirty may have been written meanwhile.
                let lost = restored.is_none() && !self.slots.damaged(&pin, &page).await?.is_empty();
                found.push(Damaged::of(&cx.shape, unit, page, lost));
            }
        }
        Ok(found)
    }
}

impl<J: Journal> UnitCache<J> {
    /// The pages of a unit that flash has, in runs that can be read at once.
    fn valid_runs_of(&self, unit: u32, pages: Pages) -> Vec<Pages> {
        let mut runs: Vec<Pages> = Vec::new();
        for page in pages {
            let joined =
                runs.last().filter(|run| run.end == page && (run.len() as u32) < MOST_PAGES);
            let joined = joined.map(|run| run.start..page + 1);
            // Single pages need not lie together.
            if let (Some(joined), Some(last)) = (joined, runs.last_mut())
                && self.table.peek(unit, &joined).is_some()
            {
                *last = joined;
            } else if self.table.peek(unit, &(page..page + 1)).is_some() {
                runs.push(page..page + 1);
            }
        }
        runs
    }
}
