// SPDX-License-Identifier: MIT OR Apache-2.0
//! The write path (SCE 3.3): origin first, answer, then the flash copy if nothing spoke against
//! it; and trim and zero, which only ever invalidate.
//!
//! One write, step by step: claim its pages; make them invalid on flash; write the origin; answer
//! the client; if no other claim touched them meanwhile and a buffer may be kept, write flash;
//! when that completed and still nobody else touched them, they are valid.
//!
//! Differences from the paper, and why: the flash write starts after the origin write instead of
//! beside it. Pages are invalid for the flash's microseconds longer, and in return nobody can
//! read from flash what the origin does not have yet (beside it, two reads could see the new and
//! then the old value), an origin error never leaves unknown bytes on flash, and the client's own
//! buffer serves where the paper copies. The bounded pool (8 MiB) counts bytes kept after the
//! answer. Under plain write-through the client waits for both, so no pool bounds it.

use std::rc::Rc;

use larder_policy::admission::Verdict;

use crate::buf::Buf;
use crate::cache::{Cache, WriteTarget};
use crate::claims::Claim;
use crate::exec::IoKind;
use crate::mutant;
use crate::pages::{PageSet, Pages};
use crate::preset::{Answer, WritePolicy};
use crate::request::Request;
use crate::shard::{Core, Place};

impl Core {
    pub(crate) async fn write(self: Rc<Self>, tag: u64, request: Request, fua: bool) {
        if self.choices.write.flash_owns() {
            let kind = IoKind::Write { fua: fua && !mutant::is_active("fua-ignored") };
            return self.change_owned(tag, request, kind).await;
        }
        let place = self.place(&request);
        let claim = self.claims.claim(u64::from(place.unit), place.pages.clone());
        let cache = self.cache();
        let resident = cache.as_ref().and_then(|c| c.begin_write(place.unit, &place.pages));
        let hit = resident.is_some();
        self.admission.borrow_mut().asked(u64::from(place.unit), place.len);
        let target = resident.or_else(|| self.enter_with_write(cache.as_ref()?, &place));
        let kind = IoKind::Write { fua: fua && !mutant::is_active("fua-ignored") };
        self.journal_write_ahead(cache.as_ref(), target.as_ref(), &place).await;
        self.pace.foreground_began();
        let (result, buf) = self.origin_io(kind, place.offset, place.len, request.buf).await;
        self.pace.foreground_ended(self.exec.now());
        let copies = result.is_ok() || mutant::is_active("valid-after-origin-error");
        let copy = target.zip(buf).filter(|_| copies);
        let early = self.choices.write.answer() == Answer::AfterOrigin || copy.is_none();
        if early {
            self.reply(tag, result, None, hit);
        }
        if let Some((target, buf)) = copy {
            self.write_copy(&target, &place, buf, &claim).await;
        }
        if !early {
            self.reply(tag, result, None, hit);
        }
    }

    /// Gives a unit that is not resident a slot, where admission lets writes enter.
    fn enter_with_write(&self, cache: &Rc<Cache>, place: &Place) -> Option<WriteTarget> {
        let verdict = self.admission.borrow_mut().written(u64::from(place.unit));
        let whole = place.within == 0 && place.len == self.shape.unit_bytes;
        if verdict == Verdict::Ignore || !whole || !cache.device.health.usable() {
            return None;
        }
        Some(WriteTarget { pin: self.slot_for(cache, place.unit)?, edges_valid: (false, false) })
    }

    /// Writes the flash copy of what the origin has, unless something speaks against it.
    async fn write_copy(&self, target: &WriteTarget, place: &Place, buf: Buf, claim: &Rc<Claim>) {
        let pages = self.whole_pages(place, target);
        if self.choices.write == WritePolicy::WriteAround
            || pages.is_empty()
            || !self.fits_flash_blocks(place, target)
            || !target.pin.cache.device.health.usable()
            || !claim.tainted().is_empty()
        {
            return;
        }
        let mut kept = None;
        if self.choices.write.answer() == Answer::AfterOrigin {
            kept = self.pool.take(place.len);
            if kept.is_none() {
                return self.stats.add(|c| c.write_arounds += 1);
            }
        }
        if mutant::is_active("valid-before-flash") {
            target.pin.make_valid(&pages, &PageSet::default());
        }
        let pin = target.pin.clone();
        let written =
            self.flash_write(pin, place.within, place.len, buf, 0, Rc::clone(claim), kept).await;
        if written.is_ok() || mutant::is_active("valid-after-flash-error") {
            target.pin.make_valid(&pages, &claim.tainted());
        }
    }

    /// The pages that are valid once the write is on flash: those it covers wholly (up to the
    /// end of the volume), and an edge page if it was valid before.
    fn whole_pages(&self, place: &Place, target: &WriteTarget) -> Pages {
        let page = crate::buf::PAGE as u64;
        let end = place.within + place.len;
        let at_end = place.offset + place.len == self.shape.origin_bytes;
        let any = mutant::is_active("partial-page-valid");
        let first = place.within.is_multiple_of(page) || target.edges_valid.0 || any;
        let last = end.is_multiple_of(page) || at_end || target.edges_valid.1 || any;
        let from = place.pages.start + u32::from(!first);
        let to = place.pages.end - u32::from(!last);
        // A write within one page needs both of its edges.
        if place.pages.len() == 1 && !(first && last) { from..from } else { from..to.max(from) }
    }

    fn fits_flash_blocks(&self, place: &Place, target: &WriteTarget) -> bool {
        let block = u64::from(target.pin.cache.flash.block_bytes);
        place.within.is_multiple_of(block) && place.len.is_multiple_of(block)
    }

    /// Trim and zero: the flash copy becomes invalid, the origin does the work.
    pub(crate) async fn discard(self: Rc<Self>, tag: u64, request: Request, kind: IoKind) {
        if self.choices.write.flash_owns() {
            return self.change_owned(tag, request, kind).await;
        }
        let place = self.place(&request);
        let unclaimed = mutant::is_active("trim-unclaimed");
        let claim =
            (!unclaimed).then(|| self.claims.claim(u64::from(place.unit), place.pages.clone()));
        let cache = self.cache();
        let target = cache.as_ref().and_then(|c| c.begin_write(place.unit, &place.pages));
        self.journal_write_ahead(cache.as_ref(), target.as_ref(), &place).await;
        let (result, _) = self.origin_io(kind, place.offset, place.len, None).await;
        self.reply(tag, result, None, target.is_some());
        drop(claim);
    }
}
