// SPDX-License-Identifier: MIT OR Apache-2.0
//! Who changes which pages of a logged volume, one at a time: in the log, and on the origin.
//!
//! A write merges a part of a page into the rest and puts it; a trim drops pages: either holds its pages in the
//! log, and whoever comes waits. A page that leaves or is drained is written to the origin, a trim makes the
//! origin zero: either holds the pages there. A writer may wait for room in the log while it holds pages, so
//! whoever makes room never waits for one: it holds pages on the origin alone.
//!
//! Readers hold nothing, but wait for a trim of what they did not find: until it is done the origin has older
//! bytes. A tombstone leaves the log only after its trim. Where neither the origin nor a log that has failed took
//! what a trim says, the pages are *lost*: the origin's bytes are older than what the tombstone ended.
//!
//! Why not the claims of the unit caches: those let overlapping writes run and then trust neither; here the
//! log is the truth, and two changes of a page need an order.

use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;

use crate::exec::{Exec, Guard, WaitList};

/// What pages are held for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum For {
    /// To be put.
    Write,
    /// To be dropped; whether a tombstone says so already.
    Trim { recorded: bool },
    /// To be changed on the origin.
    Origin,
}

struct Held {
    id: u64,
    pages: Range<u64>,
    what: For,
}

/// Trims, counted.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Trims {
    pub ended: u64,
    /// Those that the origin refused.
    pub given_up: u64,
}

#[derive(Default)]
struct Table {
    held: Vec<Held>,
    next: u64,
    trims: Trims,
    lost: Vec<Range<u64>>,
}

/// The table, and the tasks that wait for a change of it.
#[derive(Default)]
struct Shared {
    table: RefCell<Table>,
    waiting: WaitList,
}

/// The table.
pub(super) struct Holds<G: Guard> {
    shared: Rc<Shared>,
    exec: Exec<G>,
}

/// Some pages, until it is dropped.
pub(crate) struct Hold<G: Guard> {
    shared: Rc<Shared>,
    exec: Exec<G>,
    id: u64,
}

impl<G: Guard> Holds<G> {
    pub(super) fn new(exec: Exec<G>) -> Self {
        Self { shared: Rc::default(), exec }
    }

    fn any(&self, pages: &Range<u64>, matters: impl Fn(For) -> bool) -> bool {
        let table = self.shared.table.borrow();
        let meets = |h: &&Held| h.pages.start < pages.end && pages.start < h.pages.end;
        table.held.iter().filter(meets).any(|h| matters(h.what))
    }

    async fn wait(&self) {
        self.shared.waiting.wait(&self.exec).await;
    }

    async fn until_none(&self, pages: &Range<u64>, matters: impl Fn(For) -> bool + Copy) -> bool {
        let any = self.any(pages, matters);
        while self.any(pages, matters) {
            self.wait().await;
        }
        any
    }

    /// Waits until nobody has any of the pages for the like, and takes them.
    pub(super) async fn take(&self, pages: Range<u64>, what: For) -> Hold<G> {
        let on_origin = what == For::Origin;
        self.until_none(&pages, |other| (other == For::Origin) == on_origin).await;
        let mut table = self.shared.table.borrow_mut();
        let id = table.next;
        table.next += 1;
        table.held.push(Held { id, pages, what });
        drop(table);
        Hold { shared: Rc::clone(&self.shared), exec: self.exec.clone(), id }
    }

    /// Waits for a trim of the page; whether there was one.
    pub(super) async fn trims_end(&self, page: u64) -> bool {
        self.until_none(&(page..page + 1), |what| matches!(what, For::Trim { .. })).await
    }

    /// Waits for the trims that are under way: what they dropped the origin does not have yet.
    pub(super) async fn trims_of_now(&self) {
        let before = self.shared.table.borrow().next;
        let left = || {
            let table = self.shared.table.borrow();
            table.held.iter().any(|h| h.id < before && matches!(h.what, For::Trim { .. }))
        };
        while left() {
            self.wait().await;
        }
    }

    /// How many trims there were.
    pub(super) fn trims(&self) -> Trims {
        self.shared.table.borrow().trims
    }

    /// A tombstone says that these pages are gone.
    pub(super) fn recorded(&self, pages: &Range<u64>) {
        for held in &mut self.shared.table.borrow_mut().held {
            if held.pages.start <= pages.start
                && pages.end <= held.pages.end
                && held.what != For::Origin
            {
                held.what = For::Trim { recorded: true };
            }
        }
    }

    /// The origin cannot be made so; what was trimmed is put, and its tombstone may leave.
    pub(super) fn give_up(&self, pages: &Range<u64>) {
        for held in &mut self.shared.table.borrow_mut().held {
            if held.pages.start <= pages.start
                && pages.end <= held.pages.end
                && held.what != For::Origin
            {
                held.what = For::Trim { recorded: false };
            }
        }
        self.shared.table.borrow_mut().trims.given_up += 1;
        self.shared.waiting.wake_all(&self.exec);
    }

    /// Nobody has what these pages are to be.
    pub(super) fn lose(&self, pages: Range<u64>) {
        self.shared.table.borrow_mut().lost.push(pages);
    }

    /// Whether that is so of a page that the log does not have.
    pub(super) fn is_lost(&self, page: u64) -> bool {
        self.shared.table.borrow().lost.iter().any(|pages| pages.contains(&page))
    }

    /// Waits until the origin is as the tombstone of this page says.
    pub(super) async fn tombstone_done(&self, page: u64) {
        self.until_none(&(page..page + 1), |what| what == For::Trim { recorded: true }).await;
    }
}

impl<G: Guard> Drop for Hold<G> {
    fn drop(&mut self) {
        let mut table = self.shared.table.borrow_mut();
        let trims = table.held.extract_if(.., |h| h.id == self.id);
        let trims = trims.filter(|h| matches!(h.what, For::Trim { .. })).count();
        table.trims.ended += trims as u64;
        drop(table);
        self.shared.waiting.wake_all(&self.exec);
    }
}
