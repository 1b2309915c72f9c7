// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pages as they were before a write that is in flight.
//!
//! A write makes its pages invalid before it changes the origin, so that no record states them as clean. Flash keeps their
//! old bytes until its own write, which begins after the write of the origin has ended. Meanwhile a read may return them: the
//! write was not answered, so the read precedes it.
//!
//! That holds only while no client can have seen the new bytes. Invariants:
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
use crate::mutant;
use crate::pages::{PageSet, Pages, overlap};
use crate::shape::Place;

/// A write of the origin in flight, and which of its pages were valid before it.
struct Write {
    pages: Pages,
    valid: PageSet,
    pin: SlotPin,
    /// No client can have seen its bytes.
    unseen: Cell<bool>,
}

type Writes = Rc<RefCell<BTreeMap<u32, Vec<Rc<Write>>>>>;

/// The writes in flight of one attachment.
pub(crate) struct OldPages {
    writes: Writes,
    /// The clients' reads of the origin, also those from before the attach.
    reads: Claims,
}

/// A write of the origin, until this is dropped.
pub(crate) struct Writing {
    writes: Writes,
    unit: u32,
    write: Rc<Write>,
}

impl OldPages {
    /// No write is in flight.
    pub(crate) fn new(reads: &Claims) -> Self {
        Self { writes: Writes::default(), reads: reads.clone() }
    }

    /// A write of the origin begins. Its pages are invalid from now on.
    pub(crate) fn write_begins(&self, place: &Place, target: &WriteTarget) -> Option<Writing> {
        let (unit, pages) = (place.unit, &place.pages);
        let read = self.reads.any(u64::from(unit), pages) && !mutant::is_active("old-under-read");
        if target.valid.is_empty() || read {
            return None;
        }
        let (pages, valid, pin) = (pages.clone(), target.valid, target.pin.clone());
        let write = Rc::new(Write { pages, valid, pin, unseen: Cell::new(true) });
        self.writes.borrow_mut().entry(unit).or_default().push(Rc::clone(&write));
        Some(Writing { writes: Rc::clone(&self.writes), unit, write })
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
    pub(crate) fn find(&self, place: &Place) -> Option<SlotPin> {
        let writes = self.writes.borrow();
        let covers = |w: &&Rc<Write>| w.unseen.get() && place.pages.clone().all(|p| w.valid.has(p));
        writes.get(&place.unit)?.iter().find(covers).map(|w| w.pin.clone())
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        let mut writes = self.writes.borrow_mut();
        if let Some(of_unit) = writes.get_mut(&self.unit) {
            of_unit.retain(|write| !Rc::ptr_eq(write, &self.write));
            if of_unit.is_empty() {
                writes.remove(&self.unit);
            }
        }
    }
}
