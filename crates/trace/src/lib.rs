// SPDX-License-Identifier: MIT OR Apache-2.0
//! Block traces: readers and writers of several formats, and statistics.
//!
//! [`Trace`] is a file and how to read it; [`Records`] are its requests, in order. [`Writer`] writes requests. [`info`]
//! computes what `larder trace info` shows.
//!
//! Invariants: memory does not grow with the trace, except for statistics that report the memory before they begin.
//! Every record is valid (see [`Record`]). Malformed input ends the iteration with a one-line error that states where,
//! what, and what is accepted.
#![forbid(unsafe_code)]

mod dev;
mod error;
mod extents;
mod fields;
mod format;
mod held;
pub mod info;
mod open;
mod record;
mod source;
pub mod watch;
mod write;

pub use error::{Place, TraceError};
pub use extents::{Extents, Packed};
pub use format::Format;
pub use format::csv::Columns;
pub use held::{RECORD_BYTES, from_btr, to_btr};
pub use open::{Options, Records, Trace};
pub use record::{DEVICE_BYTES, LONG_BYTES, Op, PAGE_BYTES, Record};
pub use write::Writer;
