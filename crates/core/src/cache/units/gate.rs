// SPDX-License-Identifier: MIT OR Apache-2.0
//! The gate: under write-back, clients of a unit wait while the unit is admitted or evicted (PRWC 2.4: the lock table with a
//! counter and a bit per segment).
//!
//! Invariants: no client is inside a shut unit; a client that enters one waits until it is opened. One task at a time keeps a
//! unit shut. At most 64 units are shut at a time by a clear, one by a miss, two by an
//! exchange; only units in use have a count.
//!
//! The syncer enters like a client, but only where none is: what it copies is then no older than the last change that ended,
//! and no other task shuts the unit under it. Clients do not wait for it.
//!
//! Why clean caches need none: the origin holds all data, and claims keep a population from validating stale pages
//! (`claims.rs`). Why shutting polls: it rarely has to wait, and must time out on clients that hang.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use crate::exec::{Exec, Guard, MILLISECOND, Nanos, WaitList};
use crate::mutant;

/// Interval at which a shut unit is checked until no client is inside.
const POLL: Nanos = MILLISECOND / 10;

#[derive(Default)]
struct State {
    shut: BTreeSet<u32>,
    inside: BTreeMap<u32, u32>,
}

#[derive(Default)]
struct Shared {
    state: RefCell<State>,
    waiting: WaitList,
}

/// The gate of one attachment.
#[derive(Clone, Default)]
pub(crate) struct Gate(Rc<Shared>);

/// A client's stay in a unit.
pub(crate) struct Pass {
    gate: Gate,
    unit: u32,
}

/// Units that stay shut until this is dropped.
pub(crate) struct Shut<G: Guard> {
    gate: Gate,
    exec: Exec<G>,
    units: Vec<u32>,
}

impl Gate {
    /// Waits until the unit is open, and enters it.
    pub(crate) async fn enter<G: Guard>(&self, unit: u32, exec: &Exec<G>) -> Pass {
        while self.is_shut(unit) {
            self.0.waiting.wait(exec).await;
        }
        *self.0.state.borrow_mut().inside.entry(unit).or_default() += 1;
        Pass { gate: self.clone(), unit }
    }

    /// Enters an open unit without a client inside.
    pub(crate) fn enter_alone(&self, unit: u32) -> Option<Pass> {
        if self.is_busy(unit) && !mutant::is_active("synced-under-write") {
            return None;
        }
        *self.0.state.borrow_mut().inside.entry(unit).or_default() += 1;
        Some(Pass { gate: self.clone(), unit })
    }

    /// Whether a unit is shut, or a client is inside.
    pub(crate) fn is_busy(&self, unit: u32) -> bool {
        let state = self.0.state.borrow();
        state.shut.contains(&unit) || state.inside.contains_key(&unit)
    }

    fn is_shut(&self, unit: u32) -> bool {
        self.0.state.borrow().shut.contains(&unit) && !mutant::is_active("exchange-unlocked")
    }

    /// Shuts units that no other task keeps shut, and waits until no client is inside; `None` if that takes longer than
    /// `patience`.
    pub(crate) async fn shut<G: Guard>(
        &self,
        units: Vec<u32>,
        patience: Nanos,
        exec: &Exec<G>,
    ) -> Option<Shut<G>> {
        let deadline = exec.now() + patience;
        while units.iter().any(|unit| self.is_shut(*unit)) {
            if exec.now() >= deadline {
                return None;
            }
            exec.sleep(POLL).await;
        }
        self.0.state.borrow_mut().shut.extend(&units);
        let shut = Shut { gate: self.clone(), exec: exec.clone(), units };
        while shut.units.iter().any(|unit| self.0.state.borrow().inside.contains_key(unit)) {
            if mutant::is_active("exchange-unlocked") {
                break;
            }
            if exec.now() >= deadline {
                return None;
            }
            exec.sleep(POLL).await;
        }
        Some(shut)
    }
}

impl<G: Guard> Shut<G> {
    /// Opens one of the units.
    pub(crate) fn open(&mut self, unit: u32) {
        self.units.retain(|u| *u != unit);
        self.gate.0.state.borrow_mut().shut.remove(&unit);
        self.gate.0.waiting.wake_all(&self.exec);
    }
}

impl<G: Guard> Drop for Shut<G> {
    fn drop(&mut self) {
        let mut state = self.gate.0.state.borrow_mut();
        self.units.iter().for_each(|unit| {
            state.shut.remove(unit);
        });
        drop(state);
        self.gate.0.waiting.wake_all(&self.exec);
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        let mut state = self.gate.0.state.borrow_mut();
        if let Some(count) = state.inside.get_mut(&self.unit) {
            *count -= 1;
            if *count == 0 {
                state.inside.remove(&self.unit);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[test]
    fn a_client_inside_finishes_and_a_later_one_waits() {
        let (exec, gate): (Exec, Gate) = Default::default();
        let log = Rc::new(RefCell::new(Vec::new()));
        let client = |name: &'static str, stay: Nanos| {
            let (e, g, l) = (exec.clone(), gate.clone(), Rc::clone(&log));
            async move {
                let _pass = g.enter(7, &e).await;
                e.sleep(stay).await;
                l.borrow_mut().push(name);
            }
        };
        exec.spawn(client("first", MILLISECOND));
        let (e, g, l) = (exec.clone(), gate.clone(), Rc::clone(&log));
        exec.spawn(async move {
            assert!(g.shut(vec![7], POLL, &e).await.is_none(), "a client is inside for longer");
            let shut = g.shut(vec![7, 8], 9 * MILLISECOND, &e).await;
            l.borrow_mut().push("shut");
            e.sleep(MILLISECOND).await;
            l.borrow_mut().push("open");
            drop(shut);
        });
        exec.run(0);
        exec.run(POLL);
        exec.spawn(client("second", 1));
        exec.run(POLL);
        while let Some(at) = exec.next_deadline() {
            exec.run(at);
        }
        assert_eq!(*log.borrow(), ["first", "shut", "open", "second"]);
    }
}
