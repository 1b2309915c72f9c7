// SPDX-License-Identifier: MIT OR Apache-2.0
//! The read path: from flash if every page of the request is valid there, else all of it from
//! the origin (SCE 3.3-3.4). Under selective admission a miss never waits for its unit; it only
//! reports it (design rule 6).
//!
//! Under admission on miss what was read enters at once: a unit of one page with the bytes of the
//! request itself, a larger one by a population that the client waits for. Either claims its pages
//! before it asks the origin, so a write that comes meanwhile keeps them invalid (design rule 4).
//!
//! Why a hit is linearisable: pages are invalid from the start of a write until its origin AND
//! flash writes completed, and the flash write begins only after the origin's; so what flash
//! returns is either old (the write was not answered when the read began) or already on the
//! origin, where every later read finds it too.

use std::rc::Rc;

use larder_policy::admission::Verdict;

use crate::buf::{Buf, PAGE};
use crate::cache::{Cache, SlotPin};
use crate::claims::Claim;
use crate::exec::IoKind;
use crate::mutant;
use crate::populate::Haste;
use crate::request::{Errno, Request};
use crate::shard::{Core, Place};

/// A page that enters with the request that missed it.
struct Fill {
    pin: SlotPin,
    /// Taken before the origin is asked.
    claim: Option<Rc<Claim>>,
    client_waits: bool,
}

impl Core {
    pub(crate) async fn read(self: Rc<Self>, tag: u64, request: Request) {
        let place = self.place(&request);
        let mut buf = request.buf;
        let _pass = self.pass(place.unit).await;
        let cache = self.cache();
        self.admission.borrow_mut().asked(u64::from(place.unit), place.len);
        if let Some(cache) = cache.as_ref().filter(|c| c.device.health.usable())
            && let Some(pin) = cache.hit(place.unit, &place.pages)
        {
            match self.read_flash(pin, &place, buf).await {
                Ok(data) => {
                    self.admission.borrow_mut().served(true, self.exec.now());
                    return self.reply(tag, Ok(()), Some(data), true);
                }
                Err(_) if !self.origin_has(cache, &place) => {
                    return self.reply(tag, Err(Errno::EIO), None, true);
                }
                Err(back) => buf = back,
            }
        }
        let mut fill = None;
        if let Some(cache) = &cache {
            let verdict = self.note_miss(cache, &place);
            if mutant::is_active("miss-waits-for-unit") {
                self.populate(cache, place.unit, Haste::Yields).await;
            }
            if let Verdict::Inline { client_waits } = verdict {
                fill = self.begin_fill(cache, &place, client_waits);
                if self.shape.unit_bytes > PAGE as u64 {
                    match self.read_through(cache, &place, buf).await {
                        Ok(data) => return self.reply(tag, Ok(()), Some(data), false),
                        Err(back) => buf = back,
                    }
                }
            }
        }
        let buf = buf.unwrap_or_else(|| Buf::with_len(place.len as usize));
        self.pace.foreground_began();
        let began = self.exec.now();
        let (result, buf) = self.origin_io(IoKind::Read, place.offset, place.len, Some(buf)).await;
        let now = self.exec.now();
        self.pace.foreground_ended(now);
        self.pace.visited(place.len, now - began, now);
        let buf = buf.filter(|_| result.is_ok());
        let (Some(fill), Some(data)) = (fill, &buf) else {
            return self.reply(tag, result, buf, false);
        };
        let mut copy = Buf::with_len(data.len());
        copy.copy_from_slice(data);
        if fill.client_waits {
            self.end_fill(fill, &place, copy).await;
            self.reply(tag, result, buf, false);
        } else {
            self.reply(tag, result, buf, false);
            self.end_fill(fill, &place, copy).await;
        }
    }

    /// Gives the request's page a slot, if it is one whole page.
    fn begin_fill(&self, cache: &Rc<Cache>, place: &Place, client_waits: bool) -> Option<Fill> {
        let page = PAGE as u64;
        let whole = place.len == page && self.shape.unit_bytes == page;
        if !whole || !cache.device.health.usable() {
            return None;
        }
        let late = mutant::is_active("fill-late-claim");
        let claim = (!late).then(|| self.claims.claim(u64::from(place.unit), place.pages.clone()));
        let pin = self.slot_for(cache, place.unit)?;
        Some(Fill { pin, claim, client_waits })
    }

    async fn end_fill(&self, fill: Fill, place: &Place, data: Buf) {
        let pin = fill.pin;
        let claim = fill
            .claim
            .unwrap_or_else(|| self.claims.claim(u64::from(place.unit), place.pages.clone()));
        if !claim.tainted().is_empty() || !pin.cache.device.health.usable() {
            return;
        }
        self.stats.add(|c| {
            c.populations += 1;
            c.population_bytes += place.len;
        });
        let to = pin.clone();
        let written = self.flash_write(to, 0, place.len, data, 0, Rc::clone(&claim), None).await;
        if written.is_ok() {
            pin.make_valid(&place.pages, &claim.tainted());
        }
    }

    /// Brings the whole unit while the client waits, and reads the request from flash.
    async fn read_through(
        &self,
        cache: &Rc<Cache>,
        place: &Place,
        buf: Option<Buf>,
    ) -> Result<Buf, Option<Buf>> {
        self.populate(cache, place.unit, Haste::Inline).await;
        let pin = Some(cache).filter(|c| c.device.health.usable());
        match pin.and_then(|c| c.hit(place.unit, &place.pages)) {
            Some(pin) => self.read_flash(pin, place, buf).await,
            None => Err(buf),
        }
    }

    fn note_miss(&self, cache: &Cache, place: &Place) -> Verdict {
        let now = self.exec.now();
        let mut admission = self.admission.borrow_mut();
        admission.served(false, now);
        if cache.slots() == 0 {
            return Verdict::Ignore;
        }
        let verdict = admission.missed(u64::from(place.unit), cache.free_ratio(), now);
        if let Verdict::Background { worker } = verdict {
            self.workers[worker as usize].set(&self.exec);
        }
        verdict
    }

    /// Reads a hit. Where the device's blocks are larger than the request's, whole blocks are
    /// read aside and the wanted bytes copied.
    async fn read_flash(
        &self,
        pin: SlotPin,
        place: &Place,
        buf: Option<Buf>,
    ) -> Result<Buf, Option<Buf>> {
        let block = u64::from(pin.cache.flash.block_bytes);
        let cache = Rc::clone(&pin.cache);
        let done = if place.within.is_multiple_of(block) && place.len.is_multiple_of(block) {
            let buf = buf.unwrap_or_else(|| Buf::with_len(place.len as usize));
            self.flash_read(pin, place.within, place.len, buf).await
        } else {
            let start = place.within / block * block;
            let end = (place.within + place.len).next_multiple_of(block);
            let aside = Buf::with_len((end - start) as usize);
            let skip = (place.within - start) as usize;
            let mut out = buf.unwrap_or_else(|| Buf::with_len(place.len as usize));
            match self.flash_read(pin, start, end - start, aside).await {
                Ok(aside) => {
                    out.copy_from_slice(&aside[skip..skip + place.len as usize]);
                    Ok(out)
                }
                Err(_) => Err(Some(out)),
            }
        };
        if done.is_err() && !self.choices.write.flash_owns() {
            // Whatever went wrong, these pages are to be fetched anew.
            cache.invalidate(place.unit, &place.pages);
        }
        done
    }
}
