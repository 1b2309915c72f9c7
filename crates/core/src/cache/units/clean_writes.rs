// SPDX-License-Identifier: MIT OR Apache-2.0
//! Changes of a clean cache of units.
//!
//! **Write** (SCE 3.3): wait for earlier writes of the pages ([`in_flight`](crate::cache::in_flight)), claim the pages,
//! invalidate them, write the origin, answer. If no other claim conflicts and the pool has room for the buffer, write flash.
//! When that completed without a conflict, the pages are valid.
//!
//! Why not the paper's parallel writes: a read could return data from flash that the origin does not hold, and an origin
//! error would leave unknown bytes on flash. The cost: pages are invalid for the duration of the flash write. The client's
//! own buffer is written, where the paper copies it. The pool (8 MiB) bounds the bytes kept after the answer; if the
//! client waits for both writes, the pool is not used.
//!
//! **Trim and zero** invalidate the pages and change the origin. **FLUSH** flushes the origin: a crash needs nothing from
//! flash (design rule 7).

use std::rc::Rc;

use super::clean::Clean;
use super::unit_cache::Bytes;
use super::writes::WriteTarget;
use crate::buf::{Buf, PAGE};
use crate::cache::in_flight::Writing;
use crate::claims::Claim;
use crate::config::FlashCopy;
use crate::exec::IoKind;
use crate::fill::Fill;
use crate::journal::Journal as _;
use crate::mutant;
use crate::origin::Use;
use crate::pages::{PageSet, Pages};
use crate::request::Request;
use crate::runs::Tag;
use crate::shape::Place;

impl Clean {
    /// Whether writes are copied to flash.
    pub(crate) fn copies_writes(&self) -> bool {
        self.flash_copy.get() != FlashCopy::Never
    }

    /// `turn`: of a write that may be copied to flash.
    pub(crate) async fn write(
        self: Rc<Self>,
        tag: Tag,
        mut request: Request,
        mut fua: bool,
        turn: Option<Writing>,
    ) {
        let cx = &self.units.cx;
        let place = cx.shape.place(&request);
        let claim = cx.claims.claim(u64::from(place.unit), place.pages.clone());
        cx.in_flight.change_begins(&place);
        let resident = self.units.table.begin_write(place.unit, &place.pages);
        // Without a slot there is nothing to wait for.
        let writing = turn.filter(|_| resident.is_some());
        if let (Some(writing), Some(target)) = (&writing, &resident) {
            let restores = self.restores(&place, target, &claim);
            let (buf, joined_fua) = cx.in_flight.join(writing);
            request.buf = buf.or(request.buf);
            fua |= joined_fua;
            cx.in_flight.write_begins(writing, target, restores);
        }
        let answer = |tag, result, hit| {
            writing.iter().for_each(|writing| writing.answered(result));
            cx.reply(tag, result, None, hit);
        };
        let hit = resident.is_some();
        cx.population.requested(place.unit, place.len);
        let target = resident.or_else(|| self.admit_write(&place));
        self.write_ahead(target.as_ref(), &place).await;
        let fua = fua && !mutant::is_active("fua-ignored");
        let (result, buf) = cx.origins.write(Use::Client, place.range(), fua, request.buf).await;
        let may_copy = result.is_ok() || mutant::is_active("valid-after-origin-error");
        let copy = target.zip(buf).filter(|_| may_copy);
        if let Some(writing) = &writing {
            if mutant::is_active("join-after-begin") {
                let _ = cx.in_flight.join(writing);
            }
            let restores = |(target, _): &(WriteTarget, Buf)| self.restores(&place, target, &claim);
            writing.origin_ended(copy.as_ref().is_some_and(restores));
        }
        let answer_first = self.flash_copy.get() != FlashCopy::BeforeAnswer || copy.is_none();
        if answer_first {
            answer(tag, result, hit);
        }
        if let Some((target, buf)) = copy {
            self.write_flash(target, &place, buf, claim).await;
        }
        if !answer_first {
            answer(tag, result, hit);
        }
        drop(writing);
    }

    /// A slot for a unit that is not resident, if the policy admits writes and this one covers the whole unit.
    fn admit_write(&self, place: &Place) -> Option<WriteTarget> {
        let cx = &self.units.cx;
        let whole = place.within == 0 && place.len == cx.shape.unit_bytes;
        let admits = cx.population.admits_write() && cx.may_admit();
        if !admits || !whole || !self.units.flash.usable() {
            return None;
        }
        let pin = self.units.slot_for(place.unit)?;
        Some(WriteTarget { pin, valid: PageSet::at(place.pages.start) })
    }

    /// Waits until a restart cannot use the pages that this write makes stale: its touched record is durable, or it is
    /// durable that the flash is out of use.
    async fn write_ahead(&self, target: Option<&WriteTarget>, place: &Place) {
        if let Some(journal) = &self.units.journal {
            // Before any wait: a page may lie elsewhere after it.
            let record = match target {
                Some(WriteTarget { pin, .. }) => {
                    journal.touch(pin.slot(), &pin.places(&place.pages))
                }
                None => journal.touch_singles(place.unit, &place.pages),
            };
            let mut done = journal.base().mapping.unit_dropped(place.unit).await;
            if let Some(record) = record.filter(|_| done.is_ok()) {
                done = journal.log().durable(record).await;
            }
            if done.is_ok() {
                return;
            }
        }
        self.units.cx.fence.passed(&self.units.cx.exec).await;
    }

    /// Writes the flash copy of a completed origin write. Skips it if another claim conflicts, flash is not usable, the
    /// request does not cover whole blocks or a whole page, or the pool is empty.
    async fn write_flash(&self, target: WriteTarget, place: &Place, buf: Buf, claim: Rc<Claim>) {
        let pages = self.whole_pages(place, &target);
        let at = (place.unit, &place.pages);
        let fill = Fill::of_write(&self.units, target.pin, at, claim);
        if !self.copies_writes() || pages.is_empty() || !fill.may_write() {
            return;
        }
        if !self.units.cx.may_copy() {
            return self.units.cx.stats.add(|c| c.write_arounds += 1);
        }
        let mut share = None;
        if self.flash_copy.get() == FlashCopy::AfterAnswer {
            share = self.units.cx.pool.take(place.len);
            if share.is_none() {
                return self.units.cx.stats.add(|c| c.write_arounds += 1);
            }
        }
        let bytes = Bytes { within: place.within, len: place.len, buf, at: 0 };
        let _ = fill.write(bytes, &pages, share).await;
    }

    /// Whether a write can make a page valid, as far as that is known.
    fn restores(&self, place: &Place, target: &WriteTarget, claim: &Claim) -> bool {
        let usable = self.units.flash.usable() && self.units.cx.may_copy();
        usable && !self.whole_pages(place, target).is_empty() && claim.conflicts().is_empty()
    }

    /// The pages that become valid with the flash write: those that it covers wholly (up to the end of the volume), and an
    /// edge page that was valid before. None if it does not cover whole blocks.
    fn whole_pages(&self, place: &Place, target: &WriteTarget) -> Pages {
        let (page, block) = (PAGE as u64, self.units.block_bytes());
        if !place.within.is_multiple_of(block) || !place.len.is_multiple_of(block) {
            return place.pages.start..place.pages.start;
        }
        let end = place.within + place.len;
        let at_end = self.units.cx.origins.volumes.ends_at(place.offset + place.len);
        let any = mutant::is_active("partial-page-valid");
        let first = place.within.is_multiple_of(page) || target.valid.has(place.pages.start) || any;
        let last =
            end.is_multiple_of(page) || at_end || target.valid.has(place.pages.end - 1) || any;
        let from = place.pages.start + u32::from(!first);
        let to = place.pages.end - u32::from(!last);
        // Within one page the write needs both edges.
        if place.pages.len() == 1 && !(first && last) { from..from } else { from..to.max(from) }
    }

    pub(crate) async fn discard(self: Rc<Self>, tag: Tag, request: Request, kind: IoKind) {
        let cx = &self.units.cx;
        let place = cx.shape.place(&request);
        let unclaimed = mutant::is_active("trim-unclaimed");
        let claim =
            (!unclaimed).then(|| cx.claims.claim(u64::from(place.unit), place.pages.clone()));
        cx.in_flight.change_begins(&place);
        let target = self.units.table.begin_write(place.unit, &place.pages);
        self.write_ahead(target.as_ref(), &place).await;
        let result = cx.origins.change(Use::Unpaced, kind, place.range(), None).await;
        cx.reply(tag, result, None, target.is_some());
        drop(claim);
    }
}
