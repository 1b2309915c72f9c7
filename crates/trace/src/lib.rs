// SPDX-License-Identifier: MIT OR Apache-2.0
//! Block traces: readers and writers of several formats, and what a trace is like.
//!
//! [`Trace`] names a file and how it is understood; [`Records`] are its requests, in order.
//! [`Writer`] writes them again. [`info`] computes what `larder trace info` shows.
//!
//! Invariants: memory does not grow with the trace (where a figure needs that, it says how much
//! before it begins); every record is lawful (see [`Record`]); what is malformed ends the reading
//! with one line that says where, what and what is accepted; after it nothing more is yielded.
#![forbid(unsafe_code)]

mod dev;
mod error;
mod extents;
mod fields;
mod format;
pub mod info;
mod open;
mod record;
mod source;
mod write;

pub use error::{Place, TraceError};
pub use extents::{Extents, Packed};
pub use format::Format;
pub use format::csv::Columns;
pub use open::{Options, Records, Trace};
pub use record::{DEVICE_BYTES, Op, PAGE_BYTES, Record};
pub use write::Writer;
