// SPDX-License-Identifier: MIT OR Apache-2.0
//! A replacement policy that is a Python object, with the methods of [`Replacement`].
//!
//! It runs on the calling thread, with the interpreter's lock. Its first exception ends the replay: the policy is not called
//! again, and the trace ends at its next batch.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Instant;

use larder_core::config::ReplacementChoice;
use larder_core::policy::replacement::Replacement;
use larder_lab::hits::replay::{Capacity, Policy};
use larder_trace::watch::watched;
use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::prelude::*;

use crate::error::refused;
use crate::runs::{Counted, counted, replay, replay_error};
use crate::trace::Trace;
use crate::watch::Watch;

/// Accesses between two reports of progress.
const REPORT_EVERY: u64 = 1 << 16;

/// The methods of a policy, each found once.
struct Methods {
    inserted: Py<PyAny>,
    accessed: Py<PyAny>,
    removed: Py<PyAny>,
    victim: Py<PyAny>,
}

impl Methods {
    fn of(policy: &Bound<'_, PyAny>) -> PyResult<Self> {
        let method = |name: &str| {
            let found = policy.getattr(name).ok().filter(|found| found.is_callable());
            let kind = policy.get_type();
            found.map(Bound::unbind).ok_or_else(|| {
                refused(format!(
                    "replacement: {kind} has no method {name}(); accepted: larder.Policy"
                ))
            })
        };
        Ok(Self {
            inserted: method("inserted")?,
            accessed: method("accessed")?,
            removed: method("removed")?,
            victim: method("victim")?,
        })
    }
}

/// The policy in a cache of `slots` slots.
struct Plugin {
    methods: Option<Methods>,
    slots: u32,
    calls: u64,
    watch: Py<Watch>,
    failed: Rc<RefCell<Option<PyErr>>>,
}

impl Plugin {
    /// Calls the policy, unless it has failed.
    fn call<T>(&mut self, of: impl FnOnce(&Methods, Python<'_>) -> PyResult<T>) -> Option<T> {
        let methods = self.methods.as_ref()?;
        match Python::attach(|py| of(methods, py)) {
            Ok(value) => Some(value),
            Err(error) => {
                self.methods = None;
                self.watch.get().inner().stop();
                self.failed.borrow_mut().get_or_insert(error);
                None
            }
        }
    }
}

impl Replacement for Plugin {
    fn inserted(&mut self, slot: u32, unit: u64) {
        self.call(|methods, py| methods.inserted.call1(py, (slot, unit)));
    }

    fn accessed(&mut self, slot: u32) {
        self.call(|methods, py| methods.accessed.call1(py, (slot,)));
    }

    fn removed(&mut self, slot: u32) {
        self.call(|methods, py| methods.removed.call1(py, (slot,)));
    }

    fn requested(&mut self) {
        self.calls += 1;
        if self.calls.is_multiple_of(REPORT_EVERY) {
            let watch = Python::attach(|py| self.watch.clone_ref(py));
            self.call(|_, py| py.check_signals().and_then(|()| watch.get().report(py)));
        }
    }

    fn victim(&mut self, incoming: u64, _: u32, _: &dyn Fn(u32) -> bool) -> Option<u32> {
        let slots = self.slots;
        self.call(|methods, py| {
            let found = methods.victim.bind(py).call1((incoming,))?;
            if found.is_none() {
                return Ok(None);
            }
            match found.extract::<u32>() {
                Ok(slot) if slot < slots => Ok(Some(slot)),
                _ => {
                    let last = slots - 1;
                    let got = found.repr()?;
                    Err(refused(format!(
                        "victim(): got {got}, accepted a slot, 0 to {last}, or None"
                    )))
                }
            }
        })
        .flatten()
    }
}

/// Hits and misses of a policy written in Python. `make` is called with the number of slots and returns the policy.
#[pyfunction]
pub(crate) fn hits_under(
    py: Python<'_>,
    trace: &Trace,
    make: &Bound<'_, PyAny>,
    unit: &str,
    capacity: &str,
    watch: &Bound<'_, Watch>,
) -> PyResult<Counted> {
    // The name is not used: the capacity does not depend on it.
    let mut replay = replay(trace, Policy::Engine(ReplacementChoice::Lru), unit, capacity)?;
    let begin = Instant::now();
    let slots = watch.get().run(py, || replay.units().map_err(|e| replay_error(trace, &e)))?;
    replay.capacity = Capacity::Bytes(u64::from(slots) * replay.unit_bytes);
    let methods = Methods::of(&make.call1((slots,))?)?;
    let failed = Rc::new(RefCell::new(None));
    let (methods, watch) = (Some(methods), watch.clone().unbind());
    let plugin = Plugin { methods, slots, calls: 0, watch, failed: failed.clone() };
    let inner = plugin.watch.get().inner();
    let hits = watched(Some(inner.clone()), || replay.run_under(|_| plugin, |_| ()));
    if let Some(error) = failed.take() {
        return Err(error);
    }
    if inner.is_stopped() {
        return Err(PyKeyboardInterrupt::new_err("the work was stopped"));
    }
    counted(trace, begin, hits)
}
