// SPDX-License-Identifier: MIT OR Apache-2.0
//! Origins of a shared cache that do not answer (design rule 14).
//!
//! An origin is *overdue* while an operation on it is unanswered for longer than the patience (`Limits::origin_patience`). Then
//! work of one volume no longer holds up that of others: a task that works for several volumes waits for it by
//! [`Overdue::in_time`], which leaves it to a task of its own when the origin is overdue. When the origin answers, the work
//! continues where it was, and its volume is like any other again.
//!
//! Invariants: work that is left behind keeps what it holds (pins, claims, units that are shut), so nothing of its volume is
//! changed under it. While an origin is overdue no further work of the kind begins, so what is left behind is bounded by the
//! tasks that wait. An overdue origin has nothing durable that it had not before.
//!
//! A trim or a zeroing does not make an origin overdue: it takes as long as its range. A volume that has its cache to itself is
//! never overdue: nothing could continue without it.
//!
//! Why no time limit on the operation: its buffer stays with the kernel in any case, and an answer that comes late is as good
//! as any.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use crate::exec::{Exec, Nanos, Signal};
use crate::flash::InFlight;
use crate::mutant;
use crate::volumes::VolumeSet;

/// Which origins are overdue.
pub(crate) struct Overdue {
    exec: Exec<InFlight>,
    patience: Nanos,
    /// For each volume: when its operations in flight began, by their numbers. Empty if there is one volume only.
    open: Vec<RefCell<BTreeMap<u64, Nanos>>>,
    overdue: Cell<VolumeSet>,
    numbers: Cell<u64>,
    /// Tasks that work for a volume while others wait, by their numbers.
    working: RefCell<BTreeMap<u64, Rc<Signal>>>,
    /// Works that were left behind.
    behind: Cell<u32>,
    /// The watch has nothing to wait for but an operation.
    rests: Cell<bool>,
    wake: Signal,
}

/// An operation in flight, until this is dropped.
pub(crate) struct Open<'a> {
    of: &'a Overdue,
    volume: u32,
    number: u64,
}

/// A task that is woken when an origin becomes overdue, until this is dropped.
struct Working<'a> {
    of: &'a Overdue,
    number: u64,
    signal: Rc<Signal>,
}

impl Overdue {
    pub(crate) fn new(volumes: u32, patience: Nanos, exec: &Exec<InFlight>) -> Rc<Self> {
        let several = if volumes > 1 { volumes } else { 0 };
        Rc::new(Self {
            exec: exec.clone(),
            patience,
            open: (0..several).map(|_| RefCell::default()).collect(),
            overdue: Cell::default(),
            numbers: Cell::new(0),
            working: RefCell::default(),
            behind: Cell::new(0),
            rests: Cell::new(false),
            wake: Signal::default(),
        })
    }

    /// The volumes whose origin is overdue.
    pub(crate) fn volumes(&self) -> VolumeSet {
        self.overdue.get()
    }

    /// Whether work that was left behind has not ended.
    pub(crate) fn is_behind(&self) -> bool {
        self.behind.get() > 0
    }

    fn number(&self) -> u64 {
        self.numbers.replace(self.numbers.get() + 1)
    }

    /// An operation on the origin of a volume begins.
    pub(crate) fn begin(&self, volume: u32) -> Option<Open<'_>> {
        let open = self.open.get(volume as usize)?;
        let number = self.number();
        open.borrow_mut().insert(number, self.exec.now());
        if self.rests.replace(false) {
            self.wake.set(&self.exec);
        }
        Some(Open { of: self, volume, number })
    }

    /// Works for these volumes; returns `None`, and leaves the rest of the work to a task of its own, when one of them is overdue.
    /// Then it does not begin at all. `waits`: the mutant that waits.
    pub(crate) async fn in_time<T: 'static>(
        self: &Rc<Self>,
        waits: &str,
        volumes: VolumeSet,
        work: impl Future<Output = T> + 'static,
    ) -> Option<T> {
        if self.open.is_empty() || mutant::is_active(waits) {
            return Some(work.await);
        }
        if self.volumes().meets(volumes) {
            return None;
        }
        let mut work = Box::pin(work);
        let done = self.until(volumes, work.as_mut()).await;
        if done.is_none() {
            self.behind.set(self.behind.get() + 1);
            let of = Rc::clone(self);
            self.exec.spawn(async move {
                drop(work.await);
                of.behind.set(of.behind.get() - 1);
            });
        }
        done
    }

    /// Works until it is done, or one of these volumes is overdue.
    pub(crate) async fn until<F: Future>(
        &self,
        volumes: VolumeSet,
        mut work: Pin<&mut F>,
    ) -> Option<F::Output> {
        let working = self.working();
        let poll = |context: &mut Context<'_>| {
            if let Poll::Ready(done) = work.as_mut().poll(context) {
                return Poll::Ready(Some(done));
            }
            if self.volumes().meets(volumes) {
                return Poll::Ready(None);
            }
            working.signal.is_set(&self.exec);
            Poll::Pending
        };
        std::future::poll_fn(poll).await
    }

    /// An origin became overdue: tasks that work for its volume leave that behind.
    pub(crate) fn wake_working(&self) {
        self.working.borrow().values().for_each(|task| task.set(&self.exec));
    }

    /// Waits until [`check`](Self::check) may find a change; `next` is what it returned.
    pub(crate) async fn change(&self, next: Option<Nanos>) {
        match next {
            Some(at) => self.wake.wait_for(at - self.exec.now(), &self.exec).await,
            None => {
                self.rests.set(true);
                self.wake.wait(&self.exec).await;
            }
        }
    }

    fn working(&self) -> Working<'_> {
        let (number, signal) = (self.number(), Rc::<Signal>::default());
        self.working.borrow_mut().insert(number, Rc::clone(&signal));
        Working { of: self, number, signal }
    }

    /// Finds out which origins are overdue now; returns those that were not before, those that no longer are, and when the next
    /// one may be.
    pub(crate) fn check(&self) -> (VolumeSet, VolumeSet, Option<Nanos>) {
        let (before, now) = (self.volumes(), self.exec.now());
        let due = |open: &RefCell<BTreeMap<u64, Nanos>>| {
            open.borrow().first_key_value().map(|(_, began)| began + self.patience)
        };
        let due: Vec<Option<Nanos>> = self.open.iter().map(due).collect();
        let late = |at: &&(u32, Option<Nanos>)| at.1.is_some_and(|at| at <= now);
        let each: Vec<(u32, Option<Nanos>)> = (0..).zip(due).collect();
        let overdue: VolumeSet = each.iter().filter(late).map(|(volume, _)| *volume).collect();
        self.overdue.set(overdue);
        let next = each.iter().filter_map(|(_, at)| at.filter(|at| *at > now)).min();
        (overdue.without(before), before.without(overdue), next)
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        let Some(open) = self.of.open.get(self.volume as usize) else { return };
        open.borrow_mut().remove(&self.number);
        if self.of.volumes().has(self.volume) {
            self.of.wake.set(&self.of.exec);
        }
    }
}

impl Drop for Working<'_> {
    fn drop(&mut self) {
        self.of.working.borrow_mut().remove(&self.number);
    }
}
