// SPDX-License-Identifier: MIT OR Apache-2.0
//! A fill of a slot: claim pages, fetch them from the origin, write them to flash, validate them (design rules 3 and 4).
//!
//! A fill claims its pages before its caller reads or writes them on the origin. If a write, trim or population claims one
//! of them meanwhile, that page stays invalid: flash and origin may have ordered the two differently. [`Fill::write`] is
//! the only place where pages become valid, except for units of a write-back cache that a miss admits (`on_miss.rs`).

use std::cell::OnceCell;
use std::rc::Rc;

use crate::buf::{Buf, PAGE};
use crate::cache::units::table::SlotPin;
use crate::cache::units::unit_cache::{Bytes, UnitCache};
use crate::claims::Claim;
use crate::flash::FlashError;
use crate::journal::Journal;
use crate::mutant;
use crate::origin::Use;
use crate::pages::{PageSet, Pages};
use crate::request::Errno;
use crate::write_pool::PoolShare;

/// A fill of some pages of one unit.
pub(crate) struct Fill<'a, J> {
    units: &'a UnitCache<J>,
    pin: SlotPin,
    unit: u32,
    pages: Pages,
    claim: OnceCell<Rc<Claim>>,
}

impl<'a, J: Journal> Fill<'a, J> {
    /// Claims pages of a unit that has a slot. `late`: a mutant claims them only when the claim is used.
    pub(crate) fn open(
        units: &'a UnitCache<J>,
        pin: SlotPin,
        (unit, pages): (u32, &Pages),
        late: bool,
    ) -> Self {
        let fill = Self { units, pin, unit, pages: pages.clone(), claim: OnceCell::new() };
        if !late {
            fill.claim();
        }
        fill
    }

    /// The fill of a write, which holds its claim.
    pub(crate) fn of_write(
        units: &'a UnitCache<J>,
        pin: SlotPin,
        (unit, pages): (u32, &Pages),
        claim: Rc<Claim>,
    ) -> Self {
        Self { units, pin, unit, pages: pages.clone(), claim: OnceCell::from(claim) }
    }

    pub(crate) fn claim(&self) -> &Rc<Claim> {
        let claims = &self.units.cx.claims;
        self.claim.get_or_init(|| claims.claim(u64::from(self.unit), self.pages.clone()))
    }

    /// Pages that another claim shared while this one lives.
    pub(crate) fn conflicts(&self) -> PageSet {
        self.claim().conflicts()
    }

    /// Whether flash is usable and no page conflicts.
    pub(crate) fn may_write(&self) -> bool {
        self.conflicts().is_empty() && self.units.flash.usable()
    }

    /// Where pages of the unit lie on the origin: offset and length.
    pub(crate) fn range(&self, pages: &Pages) -> (u64, u64) {
        let (shape, page) = (&self.units.cx.shape, PAGE as u64);
        let offset = shape.unit_offset(self.unit) + u64::from(pages.start) * page;
        (offset, (pages.len() as u64 * page).min(shape.origin_bytes - offset))
    }

    /// Reads pages of the unit from the origin. The last page of the volume may be short; its rest is zero.
    pub(crate) async fn fetch(&self, why: Use, pages: &Pages) -> Result<Buf, Errno> {
        let (offset, len) = self.range(pages);
        let mut buf = Buf::with_len(pages.len() * PAGE);
        buf[len as usize..].fill(0);
        self.units.cx.origins.read(why, offset, len, buf).await
    }

    /// Writes bytes to the slot, then validates those of the `valid` pages that do not conflict.
    pub(crate) async fn write(
        &self,
        bytes: Bytes,
        valid: &Pages,
        share: Option<PoolShare>,
    ) -> Result<Buf, FlashError> {
        if mutant::is_active("valid-before-flash") {
            self.validate(valid, &PageSet::default());
        }
        let claim = Rc::clone(self.claim());
        let written = self.units.write(self.pin.clone(), bytes, claim, share).await;
        if written.is_ok() || mutant::is_active("valid-after-flash-error") {
            let unseen = mutant::is_active("population-over-write");
            self.validate(valid, &if unseen { PageSet::default() } else { self.conflicts() });
        }
        written
    }

    /// Writes the pages of `pages` that are neither in `skip` nor in conflict; `buf` begins at the first of `pages`.
    /// `written` is called whenever the buffer comes back from flash.
    pub(crate) async fn write_runs(
        &self,
        pages: Pages,
        skip: &PageSet,
        mut buf: Buf,
        written: impl Fn(&Buf),
    ) -> Result<(), FlashError> {
        let (first, page) = (pages.start, PAGE as u64);
        for run in PageSet::runs(pages, |p| !skip.has(p) && !self.conflicts().has(p)) {
            let (within, len) = (u64::from(run.start) * page, run.len() as u64 * page);
            let at = (run.start - first) as usize * PAGE;
            buf = self.write(Bytes { within, len, buf, at }, &run, None).await?;
            written(&buf);
        }
        Ok(())
    }

    fn validate(&self, pages: &Pages, except: &PageSet) {
        if let Some(journal) = &self.units.journal {
            journal.changed(self.pin.slot(), &self.pin.places(pages));
        }
        self.pin.make_valid(pages, except);
    }
}
