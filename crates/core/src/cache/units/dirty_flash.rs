// SPDX-License-Identifier: MIT OR Apache-2.0
//! Operations on slots that may be dirty: repeated while flash fails, and verified after a flush that failed.
//!
//! Nothing else has the data, so an operation is repeated for `--flash-dead-after`; then the client gets EIO, and the next
//! request tries again. A FLUSH is answered when all that was written before is proven to be durable: after a flush that
//! failed, that is when every page of the record ([`FlashWrites`]) was read, compared, written again and flushed. As long as a
//! sector is lost, every FLUSH fails.
//!
//! Why written again, although the bytes match: the device may return them from a cache that it will not write.

use std::cell::Cell;
use std::future::Future;
use std::rc::Rc;

use super::flash_writes::{Covers, FlashWrites, Key, sums_of, sums_of_zeroes};
use super::table::{SlotPin, Table};
use super::unit_cache::{offset_of, place_of};
use crate::buf::{Buf, PAGE};
use crate::context::Context;
use crate::event::Event;
use crate::exec::{IoKind, WaitList, each};
use crate::flash::{Flash, FlashOp, Guards, Mismatch, Role, Unreadable};
use crate::format::FlashPlan;
use crate::mutant;
use crate::pages::{Pages, touched};
use crate::request::Errno;

/// Pages that are verified at the same time.
const TOGETHER: usize = 16;

/// Slots of one device that may be dirty.
pub(crate) struct DirtyFlash {
    cx: Rc<Context>,
    table: Rc<Table>,
    flash: Rc<Flash>,
    plan: FlashPlan,
    pub(crate) writes: FlashWrites,
    /// A write flushes flash, since the record is full.
    making_room: Cell<bool>,
    /// The result of the last one.
    made_room: Cell<Result<(), Errno>>,
    room: WaitList,
}

impl DirtyFlash {
    pub(super) fn new(
        cx: &Rc<Context>,
        table: &Rc<Table>,
        flash: &Rc<Flash>,
        plan: FlashPlan,
    ) -> Self {
        let pages = u64::from(table.slots()) * u64::from(cx.shape.pages_per_unit());
        Self {
            cx: Rc::clone(cx),
            table: Rc::clone(table),
            flash: Rc::clone(flash),
            plan,
            writes: FlashWrites::new(&cx.exec, pages),
            making_room: Cell::new(false),
            made_room: Cell::new(Ok(())),
            room: WaitList::default(),
        }
    }

    /// Reads whole blocks of a slot.
    ///
    /// # Errors
    /// If flash fails for too long, or a sector is lost.
    pub(super) async fn read(
        &self,
        pin: &SlotPin,
        (within, len): (u64, u64),
    ) -> Result<Buf, Errno> {
        loop {
            if self.writes.is_lost(pin.slot(), (within, len)) {
                return Err(Errno::EIO);
            }
            let watch = self.writes.watch(pin.slot(), (within, len));
            let (buf, damaged) = match self.read_once(pin, (within, len)).await {
                Ok(buf) => (buf, None),
                Err(Unreadable::Mismatch(Mismatch::Damage(pages), buf)) => {
                    (buf, Some(pages.first().map_or(0, |page| u64::from(*page))))
                }
                Err(Unreadable::Mismatch(Mismatch::Raced, _)) => {
                    // A change of the pages holds them until it ends.
                    drop(self.writes.hold(pin.slot(), touched(within, len)).await);
                    continue;
                }
                Err(error) => return Err(error.errno()),
            };
            if !self.writes.is_current(watch) {
                continue;
            }
            let wrong = self.writes.mismatches(pin.slot(), within, &buf);
            match damaged {
                Some(page) if wrong.is_empty() => {
                    let first = within / PAGE as u64 + page;
                    self.report_damage(pin, first * PAGE as u64);
                    return Err(Errno::EIO);
                }
                None if wrong.is_empty() => return Ok(buf),
                _ => {}
            }
            for page in wrong {
                self.verify(&(pin.slot(), page)).await?;
            }
        }
    }

    /// Dirty data at this byte of a unit is damaged.
    fn report_damage(&self, pin: &SlotPin, within: u64) {
        if let Some(unit) = self.table.unit_of(pin.slot()) {
            let at = self.cx.shape.unit_offset(unit) + within;
            self.cx.events.emit(Event::DirtyDamaged { at });
        }
    }

    /// The pages among these, which lie in a slot, that do not match their checksum, or cannot be read while the device can.
    ///
    /// # Errors
    /// If flash fails for too long.
    pub(super) async fn damaged(&self, pin: &SlotPin, pages: &Pages) -> Result<Vec<u32>, Errno> {
        let page = PAGE as u64;
        let range = (u64::from(pages.start) * page, pages.len() as u64 * page);
        loop {
            match self.read_once(pin, range).await {
                Ok(_) => return Ok(Vec::new()),
                Err(Unreadable::Mismatch(Mismatch::Damage(damaged), _)) => {
                    return Ok(damaged.into_iter().map(|page| pages.start + page).collect());
                }
                Err(Unreadable::Mismatch(Mismatch::Raced, _)) => {
                    drop(self.writes.hold(pin.slot(), pages.clone()).await);
                }
                Err(Unreadable::Place(_)) if pages.len() == 1 => return Ok(vec![pages.start]),
                Err(Unreadable::Place(_)) => break,
                Err(error) => return Err(error.errno()),
            }
        }
        let mut found = Vec::new();
        for page in pages.clone() {
            found.extend(Box::pin(self.damaged(pin, &(page..page + 1))).await?);
        }
        Ok(found)
    }

    async fn read_once(&self, pin: &SlotPin, (within, len): (u64, u64)) -> Result<Buf, Unreadable> {
        let places = self.places(pin, within);
        let guards = || Guards { pin: Some(pin.clone()), ..Guards::default() };
        if mutant::is_active("write-back-unverified") {
            let buf = Buf::with_len(len as usize);
            let op = FlashOp::whole(Role::Metadata, IoKind::Read, places.0, buf);
            let read = self.flash.io(op, guards()).await.map_err(|e| Unreadable::Device(e.errno()));
            return read?.ok_or(Unreadable::Device(Errno::EIO));
        }
        self.flash.insist_read(places, Buf::with_len(len as usize), guards).await
    }

    /// Writes, trims or zeroes whole blocks of a slot.
    ///
    /// # Errors
    /// If flash fails for too long.
    pub(super) async fn change(
        &self,
        pin: SlotPin,
        kind: IoKind,
        (within, len): (u64, u64),
        buf: Option<Buf>,
    ) -> Result<(), Errno> {
        self.make_room().await?;
        let sums = buf.as_ref().map_or_else(|| sums_of_zeroes(len), |bytes| sums_of(bytes));
        let held = self.writes.hold(pin.slot(), touched(within, len)).await;
        let ((offset, of), role) = (self.places(&pin, within), Role::Data);
        let op = FlashOp { role, kind, offset, len, buf, at: 0, of };
        let op = self.whole_pages(&pin, within, op).await?;
        let guards = || Guards { pin: Some(pin.clone()), ..Guards::default() };
        let result = self.flash.insist(op, guards).await;
        held.written(within, &sums, result.is_ok());
        result.map(drop).map_err(|error| error.errno())
    }

    /// The same change as a write of whole pages, if the device has checksums. The caller holds the pages.
    ///
    /// # Errors
    /// If the rest of a page that is changed in part cannot be read.
    async fn whole_pages(&self, pin: &SlotPin, within: u64, op: FlashOp) -> Result<FlashOp, Errno> {
        let (page, pages) = (PAGE as u64, touched(within, op.len));
        let whole = within.is_multiple_of(page) && op.len.is_multiple_of(page);
        if whole || self.flash.sums().is_none() {
            return Ok(op);
        }
        let start = u64::from(pages.start) * page;
        let mut bytes = Buf::zeroed(pages.len() * PAGE);
        for edge in [pages.start, pages.end - 1] {
            let at = u64::from(edge) * page;
            let read = self.read_once(pin, (at, page)).await.map_err(Unreadable::errno)?;
            bytes[(at - start) as usize..][..PAGE].copy_from_slice(&read);
        }
        let changed = &mut bytes[(within - start) as usize..][..op.len as usize];
        match &op.buf {
            Some(new) => changed.copy_from_slice(&new[..op.len as usize]),
            None => changed.fill(0),
        }
        let kind = IoKind::Write { fua: op.kind.is_fua() };
        Ok(FlashOp::data(kind, self.places(pin, start), bytes))
    }

    /// Writes pages again that were damaged, with what `read` returns of them, and returns that. No change of them runs
    /// meanwhile; `None` if one made them dirty before.
    pub(super) async fn repair(
        &self,
        pin: SlotPin,
        pages: &Pages,
        is_clean: impl Fn() -> bool,
        read: impl Future<Output = Result<Buf, Errno>>,
    ) -> Option<Result<Buf, Errno>> {
        let _held = self.writes.hold(pin.slot(), pages.clone()).await;
        if !is_clean() {
            return None;
        }
        let bytes = match read.await {
            Ok(bytes) => bytes,
            Err(errno) => return Some(Err(errno)),
        };
        let places = self.places(&pin, u64::from(pages.start) * PAGE as u64);
        let kind = IoKind::Write { fua: false };
        let op = FlashOp::data(kind, places, Buf::copy_of(&bytes));
        let guards = Guards { pin: Some(pin), ..Guards::default() };
        let _ = self.flash.io(op, guards).await;
        Some(Ok(bytes))
    }

    /// Flushes flash if the record is full. One write does so, the others wait for its result.
    async fn make_room(&self) -> Result<(), Errno> {
        if !self.writes.is_full() {
            return Ok(());
        }
        if self.making_room.replace(true) {
            self.room.wait(&self.cx.exec).await;
            return self.made_room.get();
        }
        let result = self.make_durable().await;
        self.making_room.set(false);
        self.made_room.set(result);
        self.room.wake_all(&self.cx.exec);
        result
    }

    /// Makes all writes that have ended durable, for a client's FLUSH.
    ///
    /// # Errors
    /// If flash fails for too long, or a sector is lost.
    pub(super) async fn flush(&self) -> Result<(), Errno> {
        let whole = self.writes.is_durable() || self.flush_writes().await?;
        // A write that replaced a lost sector meanwhile is not durable yet.
        if whole && !self.writes.has_any_lost() { Ok(()) } else { Err(Errno::EIO) }
    }

    /// Makes all writes that have ended durable, except those that are lost.
    ///
    /// # Errors
    /// If flash fails for too long.
    pub(crate) async fn make_durable(&self) -> Result<(), Errno> {
        self.flush_writes().await.map(drop)
    }

    /// Verifies and flushes until nothing is doubted. Returns whether no sector was lost since the last flush began.
    async fn flush_writes(&self) -> Result<bool, Errno> {
        let late = mutant::is_active("flush-before-replacement");
        loop {
            if self.writes.is_doubted() {
                // While the device cannot be flushed, this costs less than to read and write everything.
                self.flush_device().await?;
                self.verify_doubted().await?;
            }
            let (lost, losses) = (self.writes.has_any_lost(), self.writes.losses());
            let begun = self.flush_device().await?;
            if self.writes.flushed(begun) && !self.writes.is_doubted() {
                return Ok(late || !lost && losses == self.writes.losses());
            }
        }
    }

    /// Repeats a flush of the device until it succeeds or fails for too long. Returns what it covers.
    async fn flush_device(&self) -> Result<Covers, Errno> {
        let mut failures = 0;
        loop {
            let begun = self.writes.flush_begins();
            let Err(errno) = self.flash.flush().await else { return Ok(begun) };
            self.writes.doubt();
            failures += 1;
            if self.flash.closed() || self.flash.gives_up(failures) {
                return Err(errno);
            }
            self.flash.rest(failures).await;
        }
    }

    async fn verify_doubted(&self) -> Result<(), Errno> {
        loop {
            let doubted = self.writes.doubted(TOGETHER);
            if doubted.is_empty() {
                return Ok(());
            }
            let verified = each(doubted.iter().map(|key| self.verify(key)).collect()).await;
            verified.into_iter().collect::<Result<(), Errno>>()?;
        }
    }

    /// Reads a page, compares it with its checksums, and writes it again. A page that cannot be read while the rest of the
    /// device can is lost.
    async fn verify(&self, (slot, page): &Key) -> Result<(), Errno> {
        let held = self.writes.hold(*slot, *page..*page + 1).await;
        let doubts = self.writes.doubts();
        // The page holds the slot's unit: an eviction waits for it.
        let Some((pin, _)) = self.table.pin_used(*slot) else { return Ok(()) };
        let within = u64::from(*page) * PAGE as u64;
        let mut bytes = match self.read_once(&pin, (within, PAGE as u64)).await {
            Ok(bytes) => bytes,
            Err(Unreadable::Device(errno)) => return Err(errno),
            Err(Unreadable::Mismatch(_, bytes)) if held.knows_all() => bytes,
            Err(Unreadable::Place(_) | Unreadable::Mismatch(..)) => {
                held.unreadable();
                return Ok(());
            }
        };
        if held.verify(&mut bytes) {
            let (kind, places) = (IoKind::Write { fua: false }, self.places(&pin, within));
            let op = FlashOp::data(kind, places, bytes);
            let guards = || Guards { pin: Some(pin.clone()), ..Guards::default() };
            self.flash.insist(op, guards).await.map_err(|error| error.errno())?;
        }
        held.verified(doubts);
        Ok(())
    }

    /// Byte `within` of a pinned unit on the device, and on the volume.
    fn places(&self, pin: &SlotPin, within: u64) -> (u64, u64) {
        let shape = &self.cx.shape;
        (offset_of(shape, &self.plan, pin, within), place_of(shape, pin, within))
    }
}
