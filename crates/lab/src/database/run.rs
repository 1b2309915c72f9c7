// SPDX-License-Identifier: MIT OR Apache-2.0
//! The phases of a run: flash is filled, the database warms up, is counted, and may crash.
//!
//! # A restart
//! Clients and memory are lost at once; operations in flight do not reach the devices.
//! Flash's directory is read back (the page log's own recovery). Then the changes since the
//! begin of the last whole checkpoint are made again in their order by one process, as PostgreSQL does:
//! each needs its page, which comes from flash or disk into an empty pool and may be evicted
//! again; it changes the page only if that does not have it yet. Pages are not in the database's log as
//! a whole (`full_page_writes` would have put them there after each checkpoint, and nothing
//! would have to be read). Reading the log, undoing and starting processes take no time.
//!
//! Invariant: after a restart no page is older than the last change that was logged.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::rc::Rc;

use super::buckets::Buckets;
use super::clients::{Database, Done, checkpoint, checkpoints, client};
use super::extension::{Extension, Nothing};
use super::in_place::Slots;
use super::journal::Change;
use super::log::Log;
use super::machine::{DISK, FLASH, Io, Machine, Tally};
use super::pool::{Pool, PoolCounts};
use super::processors::Processors;
use super::{Crash, Devices, Outcome, PAGE_BYTES, Restart, Spec, System};
use crate::load::trace::tpcc::business::Business;

/// Runs a database.
#[must_use]
pub fn run(spec: &Spec, devices: Devices) -> Outcome {
    let mut machine = Machine::new(devices.disk, devices.flash);
    let io = Rc::clone(&machine.io);
    match spec.system {
        System::None => Run::of(spec, machine, Rc::new(Nothing(io))),
        System::InPlace(how) => {
            let slots = Slots::new(spec.flash_pages, how, spec.caches, spec.sync, io);
            Run::of(spec, machine, Rc::new(slots))
        }
        System::Buckets(order) => {
            Run::of(spec, machine, Rc::new(Buckets::new(spec.flash_pages, order, io)))
        }
        System::Log(how) => {
            machine.hurried = true;
            let bytes = u64::from(spec.flash_pages) * PAGE_BYTES;
            let log = Log::format(bytes, how, spec.caches, spec.sync, io);
            match machine.result(log) {
                Some(log) => Run::of(spec, machine, log),
                // Flash that is too small for a log counts as none.
                None => Outcome::default(),
            }
        }
    }
}

impl Machine {
    /// Runs a task to its end, and returns its result.
    fn result<T: 'static>(&mut self, task: impl Future<Output = Option<T>> + 'static) -> Option<T> {
        let (slot, over) = (Rc::new(RefCell::new(None)), Rc::new(Cell::new(false)));
        let (into, ended) = (Rc::clone(&slot), Rc::clone(&over));
        self.io.exec.spawn(async move {
            let result = task.await;
            *into.borrow_mut() = result;
            ended.set(true);
        });
        self.run(|_| over.get());
        slot.borrow_mut().take()
    }
}

/// Everything that is counted, at a moment.
#[derive(Clone, Copy)]
struct Moment {
    now: u64,
    done: Done,
    pool: PoolCounts,
    disk: Tally,
    flash: Tally,
    entered: u64,
    wear: Option<larder_model::Wear>,
}

struct Run<'a, E> {
    spec: &'a Spec,
    machine: Machine,
    database: Rc<Database<E>>,
}

impl<'a, E: Extension> Run<'a, E> {
    fn of(spec: &'a Spec, machine: Machine, extension: Rc<E>) -> Outcome {
        let io = Rc::clone(&machine.io);
        let business = Business::new(spec.warehouses, PAGE_BYTES, spec.seed);
        let database = database(spec, io, extension, business);
        let mut run = Self { spec, machine, database };
        run.run()
    }

    fn run(&mut self) -> Outcome {
        self.start();
        self.machine.hurried = true;
        let filled_laps = self.fill();
        self.machine.hurried = false;
        self.database.computing.set(self.spec.computing);
        self.database.pool.journal.borrow_mut().keep();
        self.checkpoints();
        self.transactions(self.spec.warm_transactions);
        let before = self.moment();
        self.transactions(self.spec.transactions);
        let mut outcome = self.counted(before);
        outcome.filled_laps = filled_laps;
        outcome.restart = match self.spec.crash {
            None => None,
            Some(crash) if crash.stops => self.stop(),
            Some(crash) => self.crash(crash),
        };
        if self.spec.audit {
            outcome.audited = self.audit();
        }
        let written = self.machine.io.tally(DISK).written_bytes / PAGE_BYTES;
        outcome.totals = (self.database.pool.counts().dirty_left, written);
        outcome
    }

    fn start(&self) {
        self.database.pool.extension.start();
        self.clients();
    }

    fn clients(&self) {
        self.database.clients.set(self.spec.clients);
        for _ in 0..self.spec.clients {
            self.machine.io.exec.spawn(client(Rc::clone(&self.database)));
        }
    }

    fn checkpoints(&self) {
        let checkpoints = checkpoints(Rc::clone(&self.database), self.spec.checkpoint);
        self.machine.io.exec.spawn(checkpoints);
    }

    /// Runs without devices until flash is full and has been overwritten; how many laps that took.
    fn fill(&mut self) -> f64 {
        let database = Rc::clone(&self.database);
        let extension = &database.pool.extension;
        let all = extension.frames().all.max(1);
        let enough = all * u64::from(self.spec.fill_laps);
        let most = self.spec.fill_transactions;
        let (none, looked) = (extension.frames().all == 0, Cell::new(0_u32));
        self.machine.run(|_| {
            // Pools are warm long before; looking each time takes longer than all else.
            looked.set(looked.get() + 1);
            let done = database.done.get().transactions;
            let full = looked.get().is_multiple_of(64) && extension.entered() >= enough;
            done >= most || (!none && full)
        });
        extension.entered() as f64 / all as f64
    }

    fn transactions(&mut self, count: u64) {
        let database = Rc::clone(&self.database);
        let until = database.done.get().transactions + count;
        self.machine.run(|_| database.done.get().transactions >= until);
    }

    fn moment(&mut self) -> Moment {
        self.machine.mark();
        Moment {
            now: self.machine.now,
            done: self.database.done.get(),
            pool: self.database.pool.counts(),
            disk: self.machine.io.tally(DISK),
            flash: self.machine.io.tally(FLASH),
            entered: self.database.pool.extension.entered(),
            wear: self.machine.wear(),
        }
    }

    fn counted(&mut self, before: Moment) -> Outcome {
        let now = self.moment();
        let wear = now.wear.zip(before.wear);
        Outcome {
            span_ns: now.now - before.now,
            transactions: now.done.transactions - before.done.transactions,
            new_orders: now.done.new_orders - before.done.new_orders,
            pool: now.pool.since(&before.pool),
            disk: now.disk.since(&before.disk),
            flash: now.flash.since(&before.flash),
            entered: now.entered - before.entered,
            frames: self.database.pool.extension.frames(),
            wear: wear.map(|(now, before)| now.since(&before)),
            filled_laps: 0.0,
            totals: (0, 0),
            audited: (0, 0),
            restart: None,
        }
    }

    /// Looks up every page that was ever evicted and is not in the pool.
    fn audit(&mut self) -> (u64, u64) {
        let database = Rc::clone(&self.database);
        database.stops.set(true);
        self.machine.run(|_| database.clients.get() == 0);
        let audit = async move { Some(database.pool.audit().await) };
        self.machine.result(audit).unwrap_or((0, 1))
    }

    /// A clean stop: clients end, and changed pages are made safe.
    fn stop(&mut self) -> Option<Restart> {
        let database = Rc::clone(&self.database);
        database.stops.set(true);
        self.machine.run(|_| database.clients.get() == 0);
        let begin = self.machine.now;
        self.machine.result(async move {
            checkpoint(&database, 0).await;
            database.pool.extension.stop().await;
            Some(())
        })?;
        Some(Restart { stop_ns: self.machine.now - begin, ..Restart::default() })
    }

    fn crash(&mut self, crash: Crash) -> Option<Restart> {
        let (database, half) = (Rc::clone(&self.database), self.spec.checkpoint / 2);
        // In the middle between the begins of two, of which the first has ended.
        let before = database.checkpoint_at.get();
        self.machine.run(|now| {
            let begin = database.checkpoint_at.get();
            begin > before && now >= begin + half && database.pool.journal.borrow().is_between()
        });
        let changes = database.pool.journal.borrow_mut().take();
        let latest = database.pool.take_latest();
        let business = database.business.replace(Business::new(1, PAGE_BYTES, 0));
        self.machine.io.exec.stop();
        self.machine.drain();

        let mut restart = Restart { changes: changes.len() as u64, ..Restart::default() };
        let begin = self.machine.now;
        let io = Rc::clone(&self.machine.io);
        let extension = Rc::clone(&database.pool.extension);
        let (extension, bytes) = self.machine.result(async move { extension.reopen(io).await })?;
        (restart.directory_bytes, restart.directory_ns) = (bytes, self.machine.now - begin);

        let io = Rc::clone(&self.machine.io);
        self.database = self::database(self.spec, io, extension, business);
        self.database.pool.extension.start();
        let begin = self.machine.now;
        self.machine.result(redo(Rc::clone(&self.database), changes))?;
        restart.redo_ns = self.machine.now - begin;
        let counts = self.database.pool.counts();
        (restart.redo_fetches, restart.redo_flash_hits) = (counts.misses, counts.flash_hits);
        self.database.pool.set_latest(latest);
        self.go_on(crash, &mut restart);
        Some(restart)
    }

    /// The database after its restart.
    fn go_on(&mut self, crash: Crash, restart: &mut Restart) {
        self.database.computing.set(self.spec.computing);
        self.clients();
        self.checkpoints();
        let begin = self.machine.now;
        for number in 1..=u64::from(crash.spans) {
            let before = self.database.done.get().new_orders;
            // Nothing stands still for as long as a span is.
            self.machine.run(|now| now >= begin + number * crash.span);
            restart.new_orders.push(self.database.done.get().new_orders - before);
        }
        restart.wrong = self.database.pool.counts().wrong;
    }
}

/// Makes changes again.
async fn redo<E: Extension>(database: Rc<Database<E>>, changes: VecDeque<Change>) -> Option<()> {
    for change in changes {
        database.pool.redo(change).await;
    }
    Some(())
}

fn database<E: Extension>(
    spec: &Spec,
    io: Rc<Io>,
    extension: Rc<E>,
    business: Business,
) -> Rc<Database<E>> {
    let pool = Pool::new(spec.pool_pages, extension, Rc::clone(&io));
    Rc::new(Database {
        io,
        pool,
        business: RefCell::new(business),
        processors: Processors::new(spec.processors),
        computing: Cell::default(),
        done: Cell::default(),
        checkpoint_at: Cell::default(),
        stops: Cell::default(),
        clients: Cell::new(0),
    })
}
