// SPDX-License-Identifier: MIT OR Apache-2.0
//! Holds: order the changes of a page, in the log and on the origin.
//!
//! A write, which completes partial pages and puts them, and a trim, which drops pages, hold their pages in the log. An
//! eviction or drain, which writes a page to the origin, and a trim, which makes the origin zero, hold the pages on the
//! origin. Holds of one kind exclude each other. A writer may wait for room in the log while it holds pages there; the task
//! that makes room takes holds on the origin only, so it never waits for a writer.
//!
//! Readers hold nothing. A reader that misses waits for a trim of the page, since the origin has older bytes until the trim
//! ends. A tombstone is evicted only after its trim. If the origin fails the trim and the log has failed too, the pages are
//! *lost*: reads get EIO instead of the origin's older bytes.
//!
//! Why not the claims of the unit caches: these let overlapping writes run and validate neither; here the log holds the
//! current version, and two changes of a page need an order.

use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;

use crate::exec::{Exec, Guard, WaitList};

/// The purpose of a hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum For {
    /// Puts the pages.
    Write,
    /// Drops the pages; `recorded`: their tombstone is in the log.
    Trim { recorded: bool },
    /// Changes the pages on the origin.
    Origin,
}

struct Held {
    id: u64,
    pages: Range<u64>,
    what: For,
}

/// Numbers of trims.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Trims {
    pub ended: u64,
    /// Trims that the origin failed.
    pub failed: u64,
}

#[derive(Default)]
struct Table {
    held: Vec<Held>,
    next: u64,
    trims: Trims,
    lost: Vec<Range<u64>>,
}

/// The holds, and the tasks that wait for a change.
#[derive(Default)]
struct Shared {
    table: RefCell<Table>,
    waiting: WaitList,
}

/// The holds of a log.
pub(super) struct Holds<G: Guard> {
    shared: Rc<Shared>,
    exec: Exec<G>,
}

/// Holds pages until it is dropped.
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

    /// Waits until no other hold of the same kind overlaps the pages, and holds them.
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

    /// Waits for trims of the page; returns whether there was one.
    pub(super) async fn trims_end(&self, page: u64) -> bool {
        self.until_none(&(page..page + 1), |what| matches!(what, For::Trim { .. })).await
    }

    /// Waits for the trims in progress: the origin is not zero in their pages yet.
    pub(super) async fn open_trims_end(&self) {
        let before = self.shared.table.borrow().next;
        let left = || {
            let table = self.shared.table.borrow();
            table.held.iter().any(|h| h.id < before && matches!(h.what, For::Trim { .. }))
        };
        while left() {
            self.wait().await;
        }
    }

    /// Whether a trim of any of these pages is in progress.
    pub(super) fn has_trims(&self, pages: &Range<u64>) -> bool {
        self.any(pages, |what| matches!(what, For::Trim { .. }))
    }

    /// Waits for the trims in progress whose tombstone is in the log.
    pub(super) async fn recorded_trims_end(&self) {
        self.until_none(&(0..u64::MAX), |what| what == For::Trim { recorded: true }).await;
    }

    /// The numbers of trims.
    pub(super) fn trims(&self) -> Trims {
        self.shared.table.borrow().trims
    }

    /// A tombstone of these pages was put.
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

    /// The origin failed the trim: the caller puts zero pages instead, and the tombstone may be evicted.
    pub(super) fn cancel_trim(&self, pages: &Range<u64>) {
        for held in &mut self.shared.table.borrow_mut().held {
            if held.pages.start <= pages.start
                && pages.end <= held.pages.end
                && held.what != For::Origin
            {
                held.what = For::Trim { recorded: false };
            }
        }
        self.shared.table.borrow_mut().trims.failed += 1;
        self.shared.waiting.wake_all(&self.exec);
    }

    /// Marks pages as lost.
    pub(super) fn lose(&self, pages: Range<u64>) {
        self.shared.table.borrow_mut().lost.push(pages);
    }

    /// The pages have a version again.
    pub(super) fn find(&self, pages: &Range<u64>) {
        let lost = &mut self.shared.table.borrow_mut().lost;
        let parts = |lost: Range<u64>| {
            let (before, after) =
                (lost.start..lost.end.min(pages.start), lost.start.max(pages.end)..lost.end);
            [before, after].into_iter().filter(|part| !part.is_empty())
        };
        if !lost.is_empty() {
            *lost = std::mem::take(lost).into_iter().flat_map(parts).collect();
        }
    }

    /// Whether any of the pages is lost.
    pub(super) fn has_lost(&self, pages: &Range<u64>) -> bool {
        let meets = |lost: &Range<u64>| lost.start < pages.end && pages.start < lost.end;
        self.shared.table.borrow().lost.iter().any(meets)
    }

    /// Whether a page that the log does not have is lost.
    pub(super) fn is_lost(&self, page: u64) -> bool {
        self.shared.table.borrow().lost.iter().any(|pages| pages.contains(&page))
    }

    /// Waits until the origin is zero in the page of a tombstone.
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

#[cfg(test)]
mod tests {
    use super::*;

    struct NoGuard;

    impl Guard for NoGuard {
        fn late(&self, _: Result<(), crate::request::Errno>) {}
    }

    /// A page that was lost with a refused trim is found again when it is written.
    #[test]
    fn lost_pages_end_where_they_are_written() {
        let holds = Holds::<NoGuard>::new(Exec::default());
        holds.lose(3..9);
        holds.lose(20..21);
        holds.find(&(5..7));
        let lost: Vec<u64> = (0..30).filter(|page| holds.is_lost(*page)).collect();
        assert_eq!(lost, [3, 4, 7, 8, 20]);
        assert!(holds.has_lost(&(6..8)) && !holds.has_lost(&(9..20)));
        holds.find(&(0..30));
        assert!(!holds.has_lost(&(0..u64::MAX)));
    }
}
