// SPDX-License-Identifier: MIT OR Apache-2.0
//! Requests from within the process, and what workers report.

use larder_core::buf::Buf;
use larder_core::event::Event;
use larder_core::request::{Errno, Kind};

/// A request from within the process.
pub(crate) struct Call {
    pub kind: Kind,
    /// A read that leaves the cache as it is.
    pub passive: bool,
    /// In the space of all volumes; of a flush, where its volume begins.
    pub offset: u64,
    pub len: u64,
    /// A write's payload, as `pieces` cuts it.
    pub bufs: Vec<Buf>,
    /// Called with the outcome on the worker's thread.
    pub done: Box<dyn FnOnce(Result<Vec<Buf>, Errno>) + Send>,
}

/// A report of a worker to the volume.
pub(crate) struct Report {
    /// The worker's number.
    pub worker: u32,
    pub event: Event,
}
