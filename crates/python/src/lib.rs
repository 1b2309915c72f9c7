// SPDX-License-Identifier: MIT OR Apache-2.0
//! `_larder`, the extension module of the Python package `larder` (python/larder).
//!
//! A thin layer: it converts arguments, calls `larder-trace` and `larder-lab` as the command line does, and returns numbers or
//! JSON text. The Python side gives them names and types.
//!
//! Invariants: work that reads a trace runs without the interpreter's lock, except under a policy written in Python; it ends
//! within a fraction of a second after a signal or [`watch::Watch::stop`]; every failure is one Python exception.
//!
//! Why the stable ABI of CPython 3.11: one wheel serves all later versions, and 3.11 is the first with buffers in it.

mod error;
mod plugin;
mod runs;
mod study;
mod trace;
mod watch;

use pyo3::prelude::*;

#[pymodule]
fn _larder(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("LarderError", module.py().get_type::<error::LarderError>())?;
    module.add("RECORD_BYTES", larder_trace::RECORD_BYTES)?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<study::Study>()?;
    module.add_class::<trace::Trace>()?;
    module.add_class::<watch::Watch>()?;
    module.add_function(wrap_pyfunction!(runs::advise, module)?)?;
    module.add_function(wrap_pyfunction!(runs::hits, module)?)?;
    module.add_function(wrap_pyfunction!(runs::info, module)?)?;
    module.add_function(wrap_pyfunction!(runs::parse_size, module)?)?;
    module.add_function(wrap_pyfunction!(runs::simulate, module)?)?;
    module.add_function(wrap_pyfunction!(plugin::hits_under, module)?)
}
