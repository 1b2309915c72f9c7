// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where a worker finds a client: a connection, or a queue.
//!
//! Invariant: the serials of a worker are never used again, and its places are. A result, or a request for memory that was
//! granted, names both, so it never reaches the next client of a place.

use super::queue::Queue;

/// Where a client is served, as a number in a table of the worker.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Place {
    Connection(u32),
    Queue(u32),
}

/// A client.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Client {
    pub place: Place,
    /// Distinguishes clients that use the same place one after another.
    pub serial: u64,
    /// Its volume.
    pub volume: u32,
}

/// A queue being served.
pub(crate) struct Served {
    pub serial: u64,
    pub volume: u32,
    pub queue: Box<dyn Queue>,
}
