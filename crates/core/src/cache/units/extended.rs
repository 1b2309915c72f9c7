// SPDX-License-Identifier: MIT OR Apache-2.0
//! Extended reads in flight: a miss that reads an aligned block of the origin around its request.
//!
//! The client that missed is answered when the origin answers; the flash write follows. A request for other pages of the
//! block that arrives meanwhile waits for that read and is answered from its memory.
//!
//! Invariants: a request joins a read only if no other claim has shared its pages since the read began. So no write that
//! completed before the request began can be missing from the bytes: it would have claimed its pages meanwhile. Two
//! extended reads in flight never overlap, because the second would disqualify both from validation.

use std::cell::RefCell;
use std::rc::Rc;

use crate::buf::{Buf, PAGE};
use crate::claims::Claim;
use crate::exec::{Exec, Signal, WaitList};
use crate::flash::InFlight;
use crate::mutant;
use crate::pages::{Pages, overlap};
use crate::shape::Place;

/// The extended reads in flight of one attachment.
#[derive(Clone, Default)]
pub(crate) struct OpenReads(Rc<RefCell<Vec<Rc<Read>>>>);

struct Read {
    unit: u32,
    pages: Pages,
    claim: Rc<Claim>,
    waiters: RefCell<Vec<Rc<Waiter>>>,
    ended: WaitList,
}

/// What came of an attempt to join an extended read.
pub(crate) enum Joined {
    /// None in flight covers the request.
    Alone,
    /// The bytes of the request.
    Read(Buf),
    /// The read failed, or its memory is held by a flash write that does not end.
    Failed,
}

/// A request that waits for an extended read.
struct Waiter {
    /// First byte within the unit.
    within: u64,
    len: u64,
    bytes: RefCell<Option<Buf>>,
    done: Signal,
}

/// An extended read, until it is dropped.
pub(crate) struct ExtendedRead {
    reads: OpenReads,
    read: Rc<Read>,
    exec: Exec<InFlight>,
}

impl OpenReads {
    /// Begins an extended read of pages of a unit, which the claim holds.
    pub(crate) fn begin(
        &self,
        (unit, pages): (u32, &Pages),
        claim: &Rc<Claim>,
        exec: &Exec<InFlight>,
    ) -> ExtendedRead {
        let read = Rc::new(Read {
            unit,
            pages: pages.clone(),
            claim: Rc::clone(claim),
            waiters: RefCell::default(),
            ended: WaitList::default(),
        });
        self.0.borrow_mut().push(Rc::clone(&read));
        ExtendedRead { reads: self.clone(), read, exec: exec.clone() }
    }

    fn find(&self, wanted: impl Fn(&Read) -> bool) -> Option<Rc<Read>> {
        self.0.borrow().iter().find(|read| wanted(read)).cloned()
    }

    /// Whether an extended read of some of these pages is in flight.
    pub(crate) fn overlaps(&self, unit: u32, pages: &Pages) -> bool {
        self.find(|read| read.unit == unit && overlap(&read.pages, pages)).is_some()
    }

    /// Waits until no extended read of these pages is in flight.
    pub(crate) async fn ended(&self, unit: u32, pages: &Pages, exec: &Exec<InFlight>) {
        while let Some(read) = self.find(|r| r.unit == unit && overlap(&r.pages, pages)) {
            read.ended.wait(exec).await;
        }
    }

    /// Waits for an extended read in flight that covers a request, if there is one.
    pub(crate) async fn join(&self, place: &Place, exec: &Exec<InFlight>) -> Joined {
        let pages = &place.pages;
        let covers = |read: &Read| {
            let conflicts = read.claim.conflicts();
            let stale = mutant::is_active("join-ignores-writes");
            read.unit == place.unit
                && read.pages.start <= pages.start
                && pages.end <= read.pages.end
                && (stale || !pages.clone().any(|page| conflicts.has(page)))
        };
        let Some(read) = self.find(covers) else { return Joined::Alone };
        let (within, len) = (place.within, place.len);
        let (bytes, done) = (RefCell::default(), Signal::default());
        let waiter = Rc::new(Waiter { within, len, bytes, done });
        read.waiters.borrow_mut().push(Rc::clone(&waiter));
        waiter.done.wait(exec).await;
        waiter.bytes.take().map_or(Joined::Failed, Joined::Read)
    }
}

impl ExtendedRead {
    /// Answers the requests that wait; `bytes` begin at the first page of the read.
    pub(crate) fn serve(&self, bytes: &Buf) {
        let first = u64::from(self.read.pages.start) * PAGE as u64;
        for waiter in self.read.waiters.take() {
            let at = (waiter.within - first) as usize;
            waiter.bytes.replace(Some(Buf::copy_of(&bytes[at..at + waiter.len as usize])));
            waiter.done.set(&self.exec);
        }
    }
}

impl Drop for ExtendedRead {
    fn drop(&mut self) {
        self.reads.0.borrow_mut().retain(|read| !Rc::ptr_eq(read, &self.read));
        self.read.waiters.take().iter().for_each(|waiter| waiter.done.set(&self.exec));
        self.read.ended.wake_all(&self.exec);
    }
}
