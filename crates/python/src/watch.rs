// SPDX-License-Identifier: MIT OR Apache-2.0
//! Work without the interpreter's lock, that signals stop and whose progress is reported.
//!
//! The work runs on a thread of its own. The calling thread waits for it, and between two waits handles signals and calls
//! the report. After an exception of either it stops the work, waits for its end, and raises.
//!
//! Why not on the calling thread: signals and reports need the lock, and the loops that do the work know no interpreter.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use larder_trace::watch::{self, watched};
use pyo3::exceptions::{PyKeyboardInterrupt, PyRuntimeError};
use pyo3::prelude::*;

/// The interval between two checks of signals.
const EVERY: Duration = Duration::from_millis(50);

/// Counts the requests that work has read, and stops it from another thread.
#[pyclass(frozen, module = "larder._larder")]
pub(crate) struct Watch {
    watch: Arc<watch::Watch>,
    report: Option<Py<PyAny>>,
}

#[pymethods]
impl Watch {
    /// `report` is called with the number of requests read, some times a second.
    #[new]
    #[pyo3(signature = (report=None))]
    fn new(report: Option<Py<PyAny>>) -> Self {
        Self { watch: Arc::default(), report }
    }

    /// Requests read, over all passes.
    #[getter]
    fn requests(&self) -> u64 {
        self.watch.requests()
    }

    /// Stops the work; it raises KeyboardInterrupt.
    fn stop(&self) {
        self.watch.stop();
    }
}

impl Watch {
    /// For work on the calling thread.
    pub(crate) fn inner(&self) -> Arc<watch::Watch> {
        self.watch.clone()
    }

    /// Calls the report.
    pub(crate) fn report(&self, py: Python<'_>) -> PyResult<()> {
        match &self.report {
            Some(report) => report.call1(py, (self.watch.requests(),)).map(|_| ()),
            None => Ok(()),
        }
    }

    /// Does the work, see the module.
    pub(crate) fn run<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce() -> PyResult<T> + Send,
    ) -> PyResult<T> {
        let watch = self.watch.clone();
        let done = py.detach(|| {
            std::thread::scope(|scope| {
                let (send, receive) = channel();
                let job = move || {
                    let result = catch_unwind(AssertUnwindSafe(|| watched(Some(watch), work)));
                    // The receiver waits for it.
                    let _ = send.send(result);
                };
                let thread = std::thread::Builder::new().name("larder".to_owned());
                match thread.spawn_scoped(scope, job) {
                    Ok(_) => self.wait(&receive),
                    Err(error) => {
                        Err(PyRuntimeError::new_err(format!("a thread cannot be started: {error}")))
                    }
                }
            })
        });
        match done? {
            Some(Ok(_)) if self.watch.is_stopped() => {
                Err(PyKeyboardInterrupt::new_err("the work was stopped"))
            }
            Some(Ok(result)) => {
                self.report(py)?;
                result
            }
            Some(Err(panic)) => Err(PyRuntimeError::new_err(format!(
                "internal error, please report it: {}",
                words(panic.as_ref())
            ))),
            None => Err(PyRuntimeError::new_err("internal error: a thread ended without a result")),
        }
    }

    /// Waits for the result; none if the thread sends none.
    fn wait<T>(&self, receive: &Receiver<T>) -> PyResult<Option<T>> {
        let mut raised = None;
        loop {
            let result = match receive.recv_timeout(EVERY) {
                Err(RecvTimeoutError::Timeout) => {
                    if raised.is_none() {
                        let look =
                            |py: Python<'_>| py.check_signals().and_then(|()| self.report(py));
                        raised = Python::attach(look).err();
                        if raised.is_some() {
                            self.watch.stop();
                        }
                    }
                    continue;
                }
                result => result.ok(),
            };
            return raised.map_or(Ok(result), Err);
        }
    }
}

/// The message of a panic.
fn words(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic")
}
