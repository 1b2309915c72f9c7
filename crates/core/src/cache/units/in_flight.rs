// SPDX-License-Identifier: MIT OR Apache-2.0
//! Writes of cached pages in flight: requests for the same pages take turns, and reads may return the pages as they were
//! before.
//!
//! A write makes its pages invalid before it changes the origin, so that no record states them as clean. It makes them valid
//! again when it has ended on the origin and on flash.
//!
//! **Turns.** A write that overlaps another waits until that one has ended on both devices. Otherwise neither could make a
//! page valid ([`claims`](crate::claims)), and a page that is written all the time would never be. A read that comes
//! while flash is written waits too, and hits: it is soon, and a read of the origin would keep the next write from leaving old
//! pages, and that write others. Invariants:
//! - a request waits for [`PATIENCE`] at most, and all that wait for a write continue when the first has lost patience: flash
//!   that hangs delays clients, and stalls none;
//! - a write that waited goes to the cache that is attached afterwards, not to the one that it waited in: it holds no claim yet,
//!   so a cache that was attached meanwhile does not know of it.
//!
//! **Old pages.** Flash keeps the old bytes until its own write, which begins after the write of the origin has ended.
//! Meanwhile a read may return them: the write was not answered, so the read precedes it. That holds only while no client can
//! have seen the new bytes. Invariants:
//! - a client's read of the origin that shares a page with the write, and overlaps it in time, ends this: it may return the new
//!   bytes, and a later read must not go back behind it. It does not matter which of the two began first;
//! - another change of a page in flight ends this too: it may be answered before the write is;
//! - when the write of the origin has ended, it ends before the client is answered and before flash is written.
//!
//! Why not the new bytes, from the write's memory: a write that fails would have been seen by some reads and not by later
//! ones. Why not only invalid pages: a popular page that is written now and then would be read from the origin for as long as
//! each write takes.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use super::table::SlotPin;
use super::writes::WriteTarget;
use crate::claims::{Claim, Claims};
use crate::exec::{Exec, Nanos, SECOND, WaitList};
use crate::flash::InFlight;
use crate::mutant;
use crate::pages::{PageSet, Pages, overlap};
use crate::shape::Place;

/// How long a request waits for its turn.
const PATIENCE: Nanos = SECOND;

/// A write in flight, and which of its pages were valid before it.
struct Write {
    pages: Pages,
    valid: PageSet,
    pin: SlotPin,
    /// Its write of the origin has not ended, and no client can have seen its bytes.
    unseen: Cell<bool>,
    /// Its write of the origin has ended, and the flash copy is being written.
    on_flash: Cell<bool>,
    /// Requests that wait for its end.
    waiting: WaitList,
    /// One of them has lost patience; none waits for it any more.
    late: Cell<bool>,
}

type Writes = Rc<RefCell<BTreeMap<u32, Vec<Rc<Write>>>>>;

/// The writes in flight of one attachment.
pub(crate) struct WritesInFlight {
    exec: Exec<InFlight>,
    writes: Writes,
    /// The clients' reads of the origin, also those from before the attach.
    reads: Claims,
}

/// A write in flight that has ended on the origin, but not on flash.
pub(crate) struct OnFlash {
    exec: Exec<InFlight>,
    write: Rc<Write>,
}

/// A write, until this is dropped.
pub(crate) struct Writing {
    exec: Exec<InFlight>,
    writes: Writes,
    unit: u32,
    write: Rc<Write>,
}

impl WritesInFlight {
    /// No write is in flight.
    pub(crate) fn new(exec: &Exec<InFlight>, reads: &Claims) -> Self {
        Self { exec: exec.clone(), writes: Writes::default(), reads: reads.clone() }
    }

    /// Waits for the turn of a write.
    pub(crate) async fn turn(&self, place: &Place) {
        let until = self.exec.now() + PATIENCE;
        while let Some(write) = self.before(place) {
            if !write.ended(until, &self.exec).await {
                return;
            }
        }
    }

    /// The write of flash in flight that a read has to wait for.
    pub(crate) fn on_flash(&self, place: &Place) -> Option<OnFlash> {
        let write = self.before(place).filter(|w| w.on_flash.get())?;
        Some(OnFlash { exec: self.exec.clone(), write })
    }

    /// A write in flight that shares a page, if requests still wait for it.
    fn before(&self, place: &Place) -> Option<Rc<Write>> {
        let writes = self.writes.borrow();
        let of_unit = writes.get(&place.unit)?;
        of_unit.iter().find(|w| !w.late.get() && overlap(&w.pages, &place.pages)).cloned()
    }

    /// A write begins. Its pages are invalid from now on.
    pub(crate) fn write_begins(&self, place: &Place, target: &WriteTarget) -> Writing {
        let (unit, pages) = (place.unit, place.pages.clone());
        let read = self.reads.any(u64::from(unit), &pages) && !mutant::is_active("old-under-read");
        let write = Rc::new(Write {
            pages,
            valid: target.valid,
            pin: target.pin.clone(),
            unseen: Cell::new(!read),
            on_flash: Cell::new(false),
            waiting: WaitList::default(),
            late: Cell::new(false),
        });
        self.writes.borrow_mut().entry(unit).or_default().push(Rc::clone(&write));
        Writing { exec: self.exec.clone(), writes: Rc::clone(&self.writes), unit, write }
    }

    /// Another change of these pages begins.
    pub(crate) fn change_begins(&self, place: &Place) {
        if !mutant::is_active("old-beside-change") {
            self.seen(place.unit, &place.pages);
        }
    }

    /// A client's read of these pages from the origin begins, and ends when the claim is dropped.
    pub(crate) fn read_begins(&self, unit: u32, pages: &Pages) -> Rc<Claim> {
        if !mutant::is_active("old-after-read") {
            self.seen(unit, pages);
        }
        self.reads.claim(u64::from(unit), pages.clone())
    }

    fn seen(&self, unit: u32, pages: &Pages) {
        let writes = self.writes.borrow();
        let writes = writes.get(&unit).into_iter().flatten();
        writes.filter(|w| overlap(&w.pages, pages)).for_each(|w| w.unseen.set(false));
    }

    /// The slot that has the old bytes of all pages of a request.
    pub(crate) fn find_old(&self, place: &Place) -> Option<SlotPin> {
        let writes = self.writes.borrow();
        let covers = |w: &&Rc<Write>| w.unseen.get() && place.pages.clone().all(|p| w.valid.has(p));
        writes.get(&place.unit)?.iter().find(covers).map(|w| w.pin.clone())
    }
}

impl Write {
    /// Waits for its end; returns whether it came in time.
    async fn ended(&self, until: Nanos, exec: &Exec<InFlight>) -> bool {
        self.waiting.wait_for(until.saturating_sub(exec.now()), exec).await;
        let in_time = exec.now() < until;
        if !in_time {
            self.late.set(true);
            self.waiting.wake_all(exec);
        }
        in_time
    }
}

impl OnFlash {
    /// Waits for its end.
    pub(crate) async fn ended(self) {
        self.write.ended(self.exec.now() + PATIENCE, &self.exec).await;
    }
}

impl Writing {
    /// The write of the origin has ended.
    pub(crate) fn origin_ended(&self) {
        self.write.on_flash.set(true);
        if !mutant::is_active("old-after-write") {
            self.write.unseen.set(false);
        }
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        self.write.waiting.wake_all(&self.exec);
        let mut writes = self.writes.borrow_mut();
        if let Some(of_unit) = writes.get_mut(&self.unit) {
            of_unit.retain(|write| !Rc::ptr_eq(write, &self.write));
            if of_unit.is_empty() {
                writes.remove(&self.unit);
            }
        }
    }
}
