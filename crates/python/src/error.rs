// SPDX-License-Identifier: MIT OR Apache-2.0
//! The exception for input that is not accepted.

use pyo3::create_exception;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

create_exception!(
    larder,
    LarderError,
    PyValueError,
    "An argument or a trace is not accepted: what, where, and what is accepted, in one line."
);

/// An error with the text of `what`.
pub(crate) fn refused(what: impl std::fmt::Display) -> PyErr {
    LarderError::new_err(what.to_string())
}
