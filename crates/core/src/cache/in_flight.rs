// SPDX-License-Identifier: MIT OR Apache-2.0
//! Writes of a clean cache in flight: requests for the same pages take turns, and reads may return the pages as they were
//! before a write.
//!
//! A write makes its pages invalid before it changes the origin, so that no record states them as clean. It makes them valid
//! again when it has ended on the origin and on flash.
//!
//! **Turns.** A write waits until earlier writes of its pages have ended on both devices. Otherwise none of them could make the
//! pages valid ([`claims`](crate::claims)), and a page that is written all the time would never be. A read of a page that is
//! being written to flash waits for that and hits. The origin would take longer. It would also do harm: while it is read, a
//! further write leaves no old pages (below), so more reads go to the origin. Invariants:
//! - writes that take turns and share a page begin in the order of their arrival;
//! - no request waits longer than [`PATIENCE`], and none for a write that began that long ago: flash that hangs delays a client,
//!   and stalls none;
//! - no request waits for a write that cannot make its pages valid;
//! - writes of equal ranges that wait when another of them begins are answered with it, and not executed: they count as executed
//!   just before it, which no client can tell from another order, since none was answered and no client saw one of them. The
//!   bytes are those of the last that arrived, and it is FUA if one of them is;
//! - a write that waited goes to the cache that is attached afterwards, not to the one that it waited in: it holds no claim yet,
//!   so a cache that was attached meanwhile does not know of it.
//!
//! **Old pages.** Flash keeps the old bytes until its own write, which begins after the write of the origin has ended.
//! Meanwhile a read may return them: the write was not answered, so the read precedes it. That holds only while no client can
//! have seen the new bytes. So the old pages of a write are dropped
//! - at a client's read of the origin that shares a page with the write and overlaps it in time: it may return the new bytes,
//!   and a later read must not go back behind it. It does not matter which of the two began first, nor in which attachment;
//! - at another change of one of these pages: it may be answered before the write is;
//! - when the write of the origin has ended, before the client is answered and before flash is written.
//!
//! Why not the new bytes, from the write's memory: a write that fails would have been seen by some reads and not by later
//! ones. Why not only invalid pages: a popular page that is written now and then would be read from the origin for as long as
//! each write takes.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

use super::units::table::{SlotPin, Table};
use super::units::writes::WriteTarget;
use crate::buf::Buf;
use crate::claims::{Claim, Claims};
use crate::exec::{Exec, Nanos, SECOND, Signal, WaitList};
use crate::flash::InFlight;
use crate::mutant;
use crate::pages::{Pages, overlap};
use crate::request::Errno;
use crate::shape::Place;

/// How long a request waits.
const PATIENCE: Nanos = SECOND;

/// A write that waits for its turn or is in flight.
struct Write {
    pages: Pages,
    /// The bytes of the volumes that it writes.
    range: Range<u64>,
    fua: bool,
    /// What it writes, while it waits.
    buf: RefCell<Option<Buf>>,
    join: Cell<Join>,
    /// Its task waits for this after it has joined.
    answered: Signal,
    /// Until when others wait for it.
    in_the_way: Cell<Nanos>,
    /// Where flash has its pages, and which of them were valid before; none while it waits.
    target: OnceCell<WriteTarget>,
    /// Whether reads may return the pages as they were before.
    returns_old: Cell<bool>,
    /// Whether its write of the origin has ended.
    origin_done: Cell<bool>,
    /// Requests that wait for its end.
    ended: WaitList,
    /// Writes that are answered with it.
    joined: RefCell<Vec<Rc<Write>>>,
}

/// Whether a write is carried out by another one.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Join {
    Alone,
    Joined,
    Ended(Result<(), Errno>),
}

/// What a write's turn is.
pub(crate) enum Turn {
    /// To be executed, with its bytes.
    Begins(Writing, Option<Buf>),
    /// Another write of the same range took its place, with this result.
    Joined(Result<(), Errno>),
}

type Writes = RefCell<BTreeMap<u32, Vec<Rc<Write>>>>;

/// The writes in flight of a shard, and the reads of the origin that end their old pages.
pub(crate) struct WritesInFlight {
    exec: Exec<InFlight>,
    /// Of each unit, in the order of their arrival.
    writes: Rc<Writes>,
    /// The clients' reads of the origin.
    reads: Claims,
}

/// A write, until this is dropped.
pub(crate) struct Writing {
    exec: Exec<InFlight>,
    writes: Rc<Writes>,
    unit: u32,
    write: Rc<Write>,
}

impl WritesInFlight {
    /// No write is in flight.
    pub(crate) fn new(exec: &Exec<InFlight>) -> Self {
        Self { exec: exec.clone(), writes: Rc::default(), reads: Claims::default() }
    }

    /// Waits for the turn of a write, which has arrived.
    pub(crate) async fn turn(&self, place: &Place, fua: bool, buf: Option<Buf>) -> Turn {
        let write = Rc::new(Write {
            pages: place.pages.clone(),
            range: place.offset..place.offset + place.len,
            fua,
            buf: RefCell::new(buf),
            join: Cell::new(Join::Alone),
            answered: Signal::default(),
            joined: RefCell::default(),
            in_the_way: Cell::new(Nanos::MAX),
            target: OnceCell::new(),
            returns_old: Cell::new(false),
            origin_done: Cell::new(false),
            ended: WaitList::default(),
        });
        let writing = self.arrived(place.unit, write);
        let until = self.exec.now() + PATIENCE;
        while self.exec.now() < until
            && writing.write.join.get() == Join::Alone
            && let Some(other) = self.before(&writing)
        {
            other.wait(until, &self.exec).await;
        }
        loop {
            match writing.write.join.get() {
                Join::Alone => {
                    let buf = writing.write.buf.take();
                    return Turn::Begins(writing, buf);
                }
                Join::Joined => writing.write.answered.wait(&self.exec).await,
                Join::Ended(result) => return Turn::Joined(result),
            }
        }
    }

    fn arrived(&self, unit: u32, write: Rc<Write>) -> Writing {
        self.writes.borrow_mut().entry(unit).or_default().push(Rc::clone(&write));
        Writing { exec: self.exec.clone(), writes: Rc::clone(&self.writes), unit, write }
    }

    /// The last of the earlier writes that this one has to wait for.
    fn before(&self, writing: &Writing) -> Option<Rc<Write>> {
        let (writes, pages) = (self.writes.borrow(), &writing.write.pages);
        let of_unit = writes.get(&writing.unit)?.iter();
        let earlier = of_unit.take_while(|other| !Rc::ptr_eq(other, &writing.write));
        earlier.filter(|other| other.is_in_the_way(pages, self.exec.now())).last().cloned()
    }

    /// Whether a page of a read is being written to a slot of this table.
    pub(crate) fn is_on_its_way(&self, place: &Place, table: &Rc<Table>) -> bool {
        self.to_flash(place, table).is_some()
    }

    /// Waits until a page that [is on its way](Self::is_on_its_way) is on flash.
    pub(crate) async fn on_flash(&self, place: &Place, table: &Rc<Table>) {
        if let Some(write) = self.to_flash(place, table) {
            write.wait(Nanos::MAX, &self.exec).await;
        }
    }

    fn to_flash(&self, place: &Place, table: &Rc<Table>) -> Option<Rc<Write>> {
        let (writes, now) = (self.writes.borrow(), self.exec.now());
        let to_table = writes.get(&place.unit)?.iter().filter(|w| w.target_in(table).is_some());
        let mut to_flash = to_table.filter(|w| w.origin_done.get());
        to_flash.find(|w| w.is_in_the_way(&place.pages, now)).cloned()
    }

    /// A change of these pages begins.
    pub(crate) fn change_begins(&self, place: &Place) {
        if !mutant::is_active("old-beside-change") {
            self.drop_old(place.unit, &place.pages);
        }
    }

    /// A client's read of these pages from the origin begins, and ends when the claim is dropped.
    pub(crate) fn read_begins(&self, unit: u32, pages: &Pages) -> Rc<Claim> {
        if !mutant::is_active("old-after-read") {
            self.drop_old(unit, pages);
        }
        self.reads.claim(u64::from(unit), pages.clone())
    }

    fn drop_old(&self, unit: u32, pages: &Pages) {
        let writes = self.writes.borrow();
        let writes = writes.get(&unit).into_iter().flatten();
        writes.filter(|w| overlap(&w.pages, pages)).for_each(|w| w.returns_old.set(false));
    }

    /// The slot of this table that has the old bytes of all pages of a request.
    pub(crate) fn find_old(&self, place: &Place, table: &Rc<Table>) -> Option<SlotPin> {
        let writes = self.writes.borrow();
        let of_unit = writes.get(&place.unit).filter(|_| !table.is_closed(place.unit))?;
        let mut found =
            of_unit.iter().filter(|w| w.returns_old.get()).filter_map(|w| w.target_in(table));
        let covers = |old: &&WriteTarget| place.pages.clone().all(|page| old.valid.has(page));
        found.find(covers).map(|old| old.pin.clone())
    }

    /// Takes the place of all writes of the same range that wait. Returns the bytes of the last one, and whether one is FUA.
    pub(crate) fn join(&self, writing: &Writing) -> (Option<Buf>, bool) {
        let (writes, write) = (self.writes.borrow(), &writing.write);
        let waiting = |w: &&Rc<Write>| w.in_the_way.get() == Nanos::MAX && !Rc::ptr_eq(w, write);
        let of_unit = writes.get(&writing.unit).into_iter().flatten();
        for other in of_unit.filter(waiting).filter(|w| w.range == write.range) {
            other.join.set(Join::Joined);
            other.is_done(&self.exec);
            write.joined.borrow_mut().push(Rc::clone(other));
        }
        // They wait for its answer from now on, and no longer for its end.
        write.ended.wake_all(&self.exec);
        let joined = write.joined.borrow();
        let fua = joined.iter().any(|w| w.fua) && !mutant::is_active("join-drops-fua");
        (joined.last().and_then(|last| last.buf.take()), fua)
    }

    /// The write of this turn begins: its pages are invalid from now on. `restores`: whether it can make them valid again.
    pub(crate) fn write_begins(&self, writing: &Writing, target: &WriteTarget, restores: bool) {
        let write = &writing.write;
        write.in_the_way.set(self.exec.now() + PATIENCE);
        let read = self.reads.any(u64::from(writing.unit), &write.pages);
        write.returns_old.set(!read || mutant::is_active("old-under-read"));
        let _ = write.target.set(target.clone()); // it begins once
        writing.restores(restores);
    }
}

impl Write {
    fn is_in_the_way(&self, pages: &Pages, now: Nanos) -> bool {
        now < self.in_the_way.get() && overlap(&self.pages, pages)
    }

    /// No request waits for it any more.
    fn is_done(&self, exec: &Exec<InFlight>) {
        self.in_the_way.set(0);
        self.ended.wake_all(exec);
    }

    /// Its target, if that is in this table.
    fn target_in(&self, table: &Rc<Table>) -> Option<&WriteTarget> {
        self.target.get().filter(|target| target.pin.is_of(table))
    }

    /// Waits for its end, while it is in the way, and until this time at most.
    async fn wait(&self, until: Nanos, exec: &Exec<InFlight>) {
        let until = until.min(self.in_the_way.get());
        self.ended.wait_for(until.saturating_sub(exec.now()), exec).await;
    }
}

impl Writing {
    /// The write of the origin has ended. `restores`: whether flash is written, and the pages can become valid.
    pub(crate) fn origin_ended(&self, restores: bool) {
        self.write.origin_done.set(true);
        if !mutant::is_active("old-after-write") {
            self.write.returns_old.set(false);
        }
        self.restores(restores);
    }

    fn restores(&self, restores: bool) {
        if !restores {
            self.write.is_done(&self.exec);
        }
    }

    /// The client is answered with this result: so are those of the writes that joined.
    pub(crate) fn answered(&self, result: Result<(), Errno>) {
        for other in self.write.joined.take() {
            other.join.set(Join::Ended(result));
            other.answered.set(&self.exec);
        }
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        self.write.is_done(&self.exec);
        let mut writes = self.writes.borrow_mut();
        if let Some(of_unit) = writes.get_mut(&self.unit) {
            of_unit.retain(|write| !Rc::ptr_eq(write, &self.write));
            if of_unit.is_empty() {
                writes.remove(&self.unit);
            }
        }
    }
}
