// SPDX-License-Identifier: MIT OR Apache-2.0
//! A clean cache of units: the origin holds all data, flash holds copies (design rule 1).
//!
//! **Read** (SCE 3.3, 3.4): from flash if every page of the request is valid there, else all of it from the origin.
//! Under selective admission a miss reports its unit and does not wait for it (design rule 6). Under admission on miss
//! the unit is admitted at once: a unit of one page with the bytes of the request, a larger unit by a population that the
//! client waits for.
//!
//! Hits are linearisable. A write's pages are invalid from its start until its origin and flash writes completed, and the
//! flash write starts after the origin write. So a read that hits either precedes the write, or returns data that the
//! origin holds, and every later read returns that data too. Until the origin write has ended, a read may return what flash
//! held before, as long as no client can have seen the new bytes ([`in_flight`](crate::cache::in_flight)).
//!
//! A passive read is served likewise, and reports to no policy. Its miss reads the origin without a claim, as a miss that
//! admits nothing does.
//!
//! A hit may be read from the origin instead ([`unit_cache`](super::unit_cache)). When it begins, its pages are valid, so the
//! origin has every write to them that was answered. A write or trim that begins while the read is in flight may or may not
//! be in its bytes; both are the bytes of some moment of the read. Later reads do not go back behind it: a read of
//! the origin ends the old pages of such a write (`read_begins`), and until it ended no other bytes are on flash. An eviction does
//! not change the origin.
//!
//! Writes, trims and zeroings: `clean_writes.rs`.

use std::cell::Cell;
use std::rc::{Rc, Weak};

use larder_policy::admission::Sequence;

use super::extended::Joined;
use super::table::{SlotPin, Table};
use super::unit_cache::{Bytes, UnitCache};
use crate::buf::{Buf, PAGE};
use crate::cache::pass_through;
use crate::config::{CleanSpec, Contents, FlashCopy};
use crate::context::Context;
use crate::fill::Fill;
use crate::flash::{Flash, Owner};
use crate::format::FlashPlan;
use crate::journal::layout::Layout;
use crate::journal::recover::Recovered;
use crate::journal::{CleanJournal, Log};
use crate::mutant;
use crate::origin::Use;
use crate::pages::Pages;
use crate::population::demand::Inline;
use crate::population::step::{Pacing, populate};
use crate::request::Request;
use crate::runs::Tag;
use crate::shape::Place;

/// A clean cache on one flash device.
pub(crate) struct Clean {
    pub(crate) units: UnitCache<CleanJournal>,
    pub(crate) flash_copy: Cell<FlashCopy>,
    /// The next slot to search for partly valid units, after a restart.
    pub(crate) repair_next: Cell<u32>,
    /// Where the search for units that extended reads left in part continues.
    pub(crate) complete_next: Cell<u32>,
}

impl Clean {
    /// Starts to cache on a flash device with the recovered state; returns whether the cache is warm. It starts cold if
    /// that state contradicts itself.
    pub(crate) fn attach(
        cx: &Rc<Context>,
        spec: &CleanSpec,
        plan: FlashPlan,
        recovered: Option<&Recovered>,
        owner: Weak<dyn Owner>,
    ) -> (Rc<Self>, bool) {
        let table = || Table::new(cx.shape, &cx.origins.volumes, plan.slots, spec.slots);
        let found = Layout::of(&cx.shape, &plan).zip(recovered);
        let mut restored = table();
        let warm =
            found.is_some_and(|(layout, found)| restored.restore(found.held(&layout)).is_ok());
        if found.is_some() && !warm {
            restored = table();
        }
        let flash = Flash::new(plan.dev, cx.device(), &cx.limits, Contents::Copies, owner);
        let flash = flash.measured(spec.balance.is_some()).under_ram(cx.ram_bytes());
        let flash = Rc::new(flash.verified_by(cx.sums(&plan, warm)));
        let kept = found.filter(|_| warm);
        let journal = Layout::of(&cx.shape, &plan).map(|layout| {
            let log = Log::new(&cx.exec, &flash, (layout, plan.volume()), kept.map(|(_, f)| f));
            let held = kept.iter().flat_map(|(layout, found)| found.held(layout));
            CleanJournal::start(cx, &restored, (log, spec.touch), held.map(|held| held.slot))
        });
        if let Some((layout, found)) = found {
            cx.population.restore(found.factors(&layout));
        }
        cx.population.attached(restored.limit(), &cx.shape);
        let units = UnitCache::new(cx, restored, flash, journal, (plan, spec.balance.as_ref()));
        units.mixed_recovered();
        let repair_next = Cell::new(if warm { 0 } else { u32::MAX });
        if warm {
            cx.population.wake(&cx.exec);
        }
        (
            Rc::new(Self {
                units,
                flash_copy: Cell::new(spec.flash_copy),
                repair_next,
                complete_next: Cell::new(0),
            }),
            warm,
        )
    }

    pub(crate) async fn read(self: Rc<Self>, tag: Tag, request: Request) {
        let (units, cx) = (&self.units, &self.units.cx);
        let place = cx.shape.place(&request);
        let (mut buf, mut joins) = (request.buf, true);
        cx.population.requested(place.unit, place.len);
        let sequence = cx.population.sequence(&place, || units.free_ratio());
        let mut hit = self.hit(&place);
        if hit.is_none() && self.is_on_its_way(&place) {
            Box::pin(cx.in_flight.on_flash(&place, &units.table)).await;
            hit = self.hit(&place);
        }
        if let Some(pin) = hit {
            let single = pin.is_single();
            match self.read_hit(pin, &place, buf).await {
                Ok(data) => {
                    cx.population.hit(&place, single, cx.exec.now());
                    return cx.reply(tag, Ok(()), Some(data), true);
                }
                // It waited for flash once, and a read that it joined may be writing to flash.
                Err(back) => (buf, joins) = (self.invalidate(&place, back), false),
            }
        }
        // Boxed, so that the task of a hit does not have the size of a miss.
        Box::pin(self.miss(tag, (&place, sequence), (buf, joins))).await;
    }

    /// The slot of a read that hits: of valid pages, or of old ones while they are being written.
    fn hit(&self, place: &Place) -> Option<SlotPin> {
        let table = &self.units.table;
        let hit = || table.hit(place.unit, &place.pages).or_else(|| self.find_old(place));
        self.units.flash.usable().then(hit).flatten()
    }

    fn find_old(&self, place: &Place) -> Option<SlotPin> {
        self.units.cx.in_flight.find_old(place, &self.units.table)
    }

    /// Whether a read that misses will hit soon.
    fn is_on_its_way(&self, place: &Place) -> bool {
        self.units.flash.usable() && self.units.cx.in_flight.is_on_its_way(place, &self.units.table)
    }

    /// Reads a hit from flash; from the origin only if its pages are not being written, since old pages would then no longer
    /// be returned.
    async fn read_hit(
        &self,
        pin: SlotPin,
        place: &Place,
        buf: Option<Buf>,
    ) -> Result<Buf, Option<Buf>> {
        let mut reading = None;
        let clean = || {
            let is_written = self.units.cx.claims.any(u64::from(place.unit), &place.pages);
            reading = (!is_written)
                .then(|| self.units.cx.in_flight.read_begins(place.unit, &place.pages));
            reading.is_some()
        };
        self.units.read_hit(pin, place, buf, clean).await
    }

    /// A read that admits nothing and counts as no access.
    pub(crate) async fn read_passively(self: Rc<Self>, tag: Tag, request: Request) {
        let (units, cx) = (&self.units, &self.units.cx);
        let (place, mut buf) = (cx.shape.place(&request), request.buf);
        if self.is_on_its_way(&place) {
            cx.in_flight.on_flash(&place, &units.table).await;
        }
        let usable = units.flash.usable();
        let peeked =
            || units.table.peek(place.unit, &place.pages).or_else(|| self.find_old(&place));
        if let Some(pin) = usable.then(peeked).flatten() {
            match self.read_hit(pin, &place, buf).await {
                Ok(data) => return cx.reply(tag, Ok(()), Some(data), true),
                Err(back) => buf = self.invalidate(&place, back),
            }
        }
        let _reading = self.units.cx.in_flight.read_begins(place.unit, &place.pages);
        pass_through::read_origin(cx, tag, &place, buf).await;
    }

    /// `joins`: whether the read may wait for an extended read in flight.
    async fn miss(
        &self,
        tag: Tag,
        (place, sequence): (&Place, Sequence),
        (mut buf, joins): (Option<Buf>, bool),
    ) {
        let (units, cx) = (&self.units, &self.units.cx);
        let joined = match joins {
            true => units.extended.join(place, &cx.exec).await,
            false => Joined::Failed,
        };
        let bypasses = sequence == Sequence::New;
        let alone = matches!(joined, Joined::Alone) && !bypasses;
        if let Joined::Read(data) = joined {
            cx.population.joined(place);
            cx.stats.add(|c| c.read_joins += 1);
            return cx.reply(tag, Ok(()), Some(data), false);
        }
        let missed = (place.unit, sequence);
        let inline = cx.population.missed(missed, units.free_ratio(), &cx.exec);
        if bypasses {
            cx.stats.add(|c| c.read_bypasses += 1);
        }
        if mutant::is_active("miss-waits-for-unit") {
            populate(units, place.unit, Pacing::Paced).await;
        }
        // Without budget nothing is admitted, and what was read is known all the same.
        let (alone, inline) = match cx.may_admit() {
            true => (alone, inline),
            false => (false, None),
        };
        let mut fill = None;
        if let Some(inline) = inline {
            fill = self.open_fill(place).map(|fill| (fill, inline));
            if cx.shape.unit_bytes > PAGE as u64 {
                match self.read_through(place, buf).await {
                    Ok(data) => return cx.reply(tag, Ok(()), Some(data), false),
                    Err(back) => buf = back,
                }
            }
        }
        let mut buf = buf.unwrap_or_else(|| Buf::with_len(place.len as usize));
        let reading = self.units.cx.in_flight.read_begins(place.unit, &place.pages);
        if let Some((pin, block)) = self.extension((place, sequence)).filter(|_| alone) {
            match self.read_extended(tag, (place, sequence), buf, (pin, block)).await {
                None => return,
                Some(back) => buf = back,
            }
        }
        if fill.is_none() && alone {
            fill = self.open_single(place).map(|fill| (fill, Inline { client_waits: false }));
        }
        let began = cx.exec.now();
        let data = cx.origins.read(Use::Client, place.offset, place.len, buf).await;
        drop(reading);
        cx.population.read_origin((place, sequence), None, cx.exec.now() - began);
        let (result, buf) = (data.as_ref().map(drop).map_err(|e| *e), data.ok());
        let (Some((fill, Inline { client_waits })), Some(data)) = (fill, &buf) else {
            return cx.reply(tag, result, buf, false);
        };
        let copy = Buf::copy_of(data);
        if client_waits {
            self.admit_read(&fill, place, copy).await;
            cx.reply(tag, result, buf, false);
        } else {
            cx.reply(tag, result, buf, false);
            self.admit_read(&fill, place, copy).await;
        }
    }

    /// The block that a miss reads instead of the request alone, and its slot.
    fn extension(&self, (place, sequence): (&Place, Sequence)) -> Option<(SlotPin, Pages)> {
        let (units, cx) = (&self.units, &self.units.cx);
        if !units.flash.usable() || units.is_populating(place.unit) {
            return None;
        }
        let resident = units.table.resident(place.unit);
        let free = if resident.is_none() { Some(units.free_ratio()?) } else { None };
        let bytes = cx.population.extends((place, sequence), free)?;
        let page = PAGE as u64;
        let to = (place.within + place.len).next_multiple_of(bytes) / page;
        let present = cx.shape.pages_of(place.unit);
        let pages = (place.within / bytes * bytes / page) as u32..present.min(to as u32);
        if units.extended.overlaps(place.unit, &pages) {
            return None;
        }
        let insert = || match cx.population.prefers_singles(place.unit) {
            true => units.places_for(place.unit, &pages),
            false => units.insert(place.unit),
        };
        Some((resident.or_else(insert)?, pages))
    }

    /// Reads a block around the request, answers, and writes flash. Returns the buffer if the read failed.
    async fn read_extended(
        &self,
        tag: Tag,
        (place, sequence): (&Place, Sequence),
        mut own: Buf,
        (pin, pages): (SlotPin, Pages),
    ) -> Option<Buf> {
        let (units, cx, page) = (&self.units, &self.units.cx, PAGE as u64);
        let late = mutant::is_active("extended-late-claim");
        let fill = Fill::open(units, pin.clone(), (place.unit, &pages), late);
        let claim = match late {
            true => cx.claims.claim(u64::from(place.unit), pages.start..pages.start),
            false => Rc::clone(fill.claim()),
        };
        let skip = pin.valid_pages(&pages);
        let (from, to) = (u64::from(pages.start) * page, u64::from(pages.end) * page);
        let read = units.extended.begin((place.unit, &pages), &claim, &cx.exec);
        let began = cx.exec.now();
        let reading = self.units.cx.in_flight.read_begins(place.unit, &pages);
        let Ok(block) = fill.fetch(Use::Client, &pages).await else { return Some(own) };
        drop(reading);
        cx.population.read_origin((place, sequence), Some((from, to)), cx.exec.now() - began);
        let at = (place.within - from) as usize;
        own.copy_from_slice(&block[at..at + place.len as usize]);
        cx.reply(tag, Ok(()), Some(own), false);
        cx.stats.add(|c| c.population_bytes += fill.range(&pages).1 - place.len);
        read.serve(&block);
        let _ = fill.write_runs(pages, &skip, block, |block| read.serve(block)).await;
        None
    }

    /// A fill of the request's page, if the request is one whole unit of one page and gets a slot.
    fn open_fill(&self, place: &Place) -> Option<Fill<'_, CleanJournal>> {
        let page = PAGE as u64;
        let whole = place.len == page && self.units.cx.shape.unit_bytes == page;
        if !whole || !self.units.flash.usable() {
            return None;
        }
        let pin = self.units.slot_for(place.unit)?;
        let late = mutant::is_active("fill-late-claim");
        Some(Fill::open(&self.units, pin, (place.unit, &place.pages), late))
    }

    /// A fill of the pages of the request alone, if they get places.
    fn open_single(&self, place: &Place) -> Option<Fill<'_, CleanJournal>> {
        let (units, pages) = (&self.units, &place.pages);
        let usable = units.flash.usable() && !units.is_populating(place.unit);
        let overlaps = units.extended.overlaps(place.unit, pages);
        let admits = usable && !overlaps;
        if !admits || !units.cx.population.admits_single(place, units.free_ratio()?) {
            return None;
        }
        let resident = units.table.resident(place.unit);
        let pin = resident.or_else(|| units.places_for(place.unit, pages))?;
        Some(Fill::open(units, pin, (place.unit, pages), false))
    }

    /// Writes the pages that a missed read returned to their slot.
    async fn admit_read(&self, fill: &Fill<'_, CleanJournal>, place: &Place, data: Buf) {
        if !fill.may_write() {
            return;
        }
        self.units.cx.stats.add(|c| {
            c.populations += 1;
            c.population_bytes += place.len;
        });
        let bytes = Bytes { within: place.within, len: place.len, buf: data, at: 0 };
        let _ = fill.write(bytes, &place.pages, None).await;
    }

    /// Populates the whole unit while the client waits, and reads the request from flash.
    async fn read_through(&self, place: &Place, buf: Option<Buf>) -> Result<Buf, Option<Buf>> {
        populate(&self.units, place.unit, Pacing::Inline).await;
        let usable = self.units.flash.usable();
        match usable.then(|| self.units.table.hit(place.unit, &place.pages)).flatten() {
            Some(pin) => {
                let read = self.read_hit(pin, place, buf).await;
                read.map_err(|back| self.invalidate(place, back))
            }
            None => Err(buf),
        }
    }

    /// Invalidates pages that could not be read from flash; returns the request's buffer.
    fn invalidate(&self, place: &Place, back: Option<Buf>) -> Option<Buf> {
        self.units.table.invalidate(place.unit, &place.pages);
        back
    }
}
