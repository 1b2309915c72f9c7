// SPDX-License-Identifier: MIT OR Apache-2.0
//! The users of the pool: clients, and the checkpoint.
//!
//! Invariant: a client has one transaction at a time, a transaction one access at a time.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use larder_core::exec::Nanos;

use super::extension::Extension;
use super::machine::Io;
use super::pool::Pool;
use super::processors::Processors;
use crate::load::trace::tpcc::business::{Business, Kind};

/// What clients have done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Done {
    pub(super) transactions: u64,
    pub(super) new_orders: u64,
}

/// The database as its tasks share it.
pub(super) struct Database<E> {
    pub(super) io: Rc<Io>,
    pub(super) pool: Pool<E>,
    pub(super) business: RefCell<Business>,
    pub(super) processors: Processors,
    /// Time that a transaction takes of a processor; none while flash is filled.
    pub(super) computing: Cell<Nanos>,
    pub(super) done: Cell<Done>,
    /// When the last checkpoint began.
    pub(super) checkpoint_at: Cell<Nanos>,
    /// Clients end with their transaction.
    pub(super) stops: Cell<bool>,
    /// Clients that have not ended.
    pub(super) clients: Cell<u32>,
}

/// A client, until all must stop.
pub(super) async fn client<E: Extension>(database: Rc<Database<E>>) {
    while !database.stops.get() {
        let (kind, accesses) = database.business.borrow_mut().transaction();
        database.processors.compute(&database.io.exec, database.computing.get()).await;
        for access in accesses {
            database.pool.access(access.page, access.how).await;
        }
        let mut done = database.done.get();
        done.transactions += 1;
        done.new_orders += u64::from(kind == Kind::NewOrder);
        database.done.set(done);
        // Others have their turn, also where all is in the pool.
        database.io.exec.sleep(1).await;
    }
    database.clients.set(database.clients.get() - 1);
}

/// Checkpoints, without end.
pub(super) async fn checkpoints<E: Extension>(database: Rc<Database<E>>, interval: Nanos) {
    let exec = &database.io.exec;
    loop {
        let begin = exec.now();
        database.checkpoint_at.set(begin);
        checkpoint(&database, interval / 2).await;
        let passed = exec.now() - begin;
        exec.sleep(interval.saturating_sub(passed).max(1)).await;
    }
}

/// Makes all changed pages safe, spread over a time.
pub(super) async fn checkpoint<E: Extension>(database: &Database<E>, spread: Nanos) {
    let exec = &database.io.exec;
    let (begin, pages) = (exec.now(), database.pool.changed());
    database.pool.journal.borrow_mut().begin();
    let count = (pages.len() as u64).max(1);
    for (number, page) in (1..).zip(pages) {
        database.pool.checkpoint(page).await;
        let until = begin + spread * number / count;
        if until > exec.now() {
            exec.sleep(until - exec.now()).await;
        }
    }
    database.pool.extension.settle().await;
    database.pool.journal.borrow_mut().end();
}
