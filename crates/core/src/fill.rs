// SPDX-License-Identifier: MIT OR Apache-2.0
//! Bytes of the origin on their way to a slot: claim, fetch, write, validate (design rules 3 and 4).
//!
//! A fill claims its pages before the origin is asked for them. Whatever else claims one of them meanwhile, a write, a
//! trim, a population, keeps that page invalid: flash and origin may have ordered the two differently. [`Fill::land`] is
//! the only place where pages become valid.

use std::cell::OnceCell;
use std::rc::Rc;

use crate::buf::Buf;
use crate::cache::units::table::SlotPin;
use crate::cache::units::unit_cache::{Bytes, UnitCache};
use crate::claims::Claim;
use crate::flash::FlashError;
use crate::journal::Journal;
use crate::mutant;
use crate::pages::{PageSet, Pages};
use crate::write_pool::PoolShare;

/// A fill of some pages of one unit, see the module.
pub(crate) struct Fill<'a, J> {
    units: &'a UnitCache<J>,
    pin: SlotPin,
    unit: u32,
    pages: Pages,
    claim: OnceCell<Rc<Claim>>,
}

impl<'a, J: Journal> Fill<'a, J> {
    /// Claims pages of a unit that has a slot; `late`: a mutant claims them only when they are needed.
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

    /// A fill by a write, which has its claim.
    pub(crate) fn of_write(
        units: &'a UnitCache<J>,
        pin: SlotPin,
        (unit, pages): (u32, &Pages),
        claim: Rc<Claim>,
    ) -> Self {
        Self { units, pin, unit, pages: pages.clone(), claim: OnceCell::from(claim) }
    }

    fn claim(&self) -> &Rc<Claim> {
        let claims = &self.units.cx.claims;
        self.claim.get_or_init(|| claims.claim(u64::from(self.unit), self.pages.clone()))
    }

    /// Pages that something else has claimed since.
    pub(crate) fn conflicts(&self) -> PageSet {
        self.claim().conflicts()
    }

    /// Whether bytes may go to flash: it is used, and nothing else has claimed one of the pages.
    pub(crate) fn may_land(&self) -> bool {
        self.conflicts().is_empty() && self.units.flash.usable()
    }

    /// Writes bytes to the slot, and makes those of the `valid` pages valid that nothing else has claimed by then.
    pub(crate) async fn land(
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

    fn validate(&self, pages: &Pages, except: &PageSet) {
        if let Some(journal) = &self.units.journal {
            journal.changed(self.pin.slot());
        }
        self.pin.make_valid(pages, except);
    }
}
