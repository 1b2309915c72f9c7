// SPDX-License-Identifier: MIT OR Apache-2.0
//! Who changes which pages of a logged volume: one at a time.
//!
//! A write merges a part of a page into the rest; a page that leaves is written to the origin; a trim makes
//! the origin zero. Each holds its pages for as long as it takes, and whoever comes waits. Readers hold
//! nothing, but wait for a trim of what they did not find: until it is done the origin has older bytes.
//!
//! Why not the claims of the unit caches: those let overlapping writes run and then trust neither; here the
//! log is the truth, and two changes of a page need an order.

use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;

use crate::exec::{Exec, Guard, Signal};

struct Held {
    id: u64,
    pages: Range<u64>,
    trim: bool,
}

#[derive(Default)]
struct Table {
    held: Vec<Held>,
    waiting: Vec<Rc<Signal>>,
    next: u64,
}

/// The table.
pub(super) struct Holds<G: Guard> {
    table: Rc<RefCell<Table>>,
    exec: Exec<G>,
}

/// Some pages, until it is dropped.
pub(crate) struct Hold<G: Guard> {
    table: Rc<RefCell<Table>>,
    exec: Exec<G>,
    id: u64,
}

impl<G: Guard> Holds<G> {
    pub(super) fn new(exec: Exec<G>) -> Self {
        Self { table: Rc::default(), exec }
    }

    fn meets(&self, pages: &Range<u64>, trims_only: bool) -> bool {
        let table = self.table.borrow();
        let meets = |h: &&Held| h.pages.start < pages.end && pages.start < h.pages.end;
        table.held.iter().filter(meets).any(|h| h.trim || !trims_only)
    }

    async fn wait(&self) {
        let signal = Rc::new(Signal::default());
        self.table.borrow_mut().waiting.push(Rc::clone(&signal));
        signal.wait(&self.exec).await;
    }

    /// Waits until nobody has any of the pages, and takes them.
    pub(super) async fn take(&self, pages: Range<u64>, trim: bool) -> Hold<G> {
        while self.meets(&pages, false) {
            self.wait().await;
        }
        let mut table = self.table.borrow_mut();
        let id = table.next;
        table.next += 1;
        table.held.push(Held { id, pages, trim });
        drop(table);
        Hold { table: Rc::clone(&self.table), exec: self.exec.clone(), id }
    }

    /// Waits for a trim of the page; whether there was one.
    pub(super) async fn trims_end(&self, page: u64) -> bool {
        let pages = page..page + 1;
        let any = self.meets(&pages, true);
        while self.meets(&pages, true) {
            self.wait().await;
        }
        any
    }
}

impl<G: Guard> Drop for Hold<G> {
    fn drop(&mut self) {
        let mut table = self.table.borrow_mut();
        table.held.retain(|h| h.id != self.id);
        let waiting = std::mem::take(&mut table.waiting);
        drop(table);
        waiting.iter().for_each(|signal| signal.set(&self.exec));
    }
}
