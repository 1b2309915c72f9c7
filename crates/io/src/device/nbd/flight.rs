// SPDX-License-Identifier: MIT OR Apache-2.0
//! A connection of an NBD device and its requests in flight.
//!
//! Invariant: a retired connection has no operations, only ghosts: requests that the server may still execute.

use std::collections::HashMap;
use std::net::Shutdown;

use larder_core::exec::Nanos;
use larder_nbd::client::Stream;

use super::step::Step;

/// A request in flight.
pub(super) struct Flying {
    /// The operation; `None` for a ghost.
    pub(super) op: Option<usize>,
    pub(super) step: Step,
    pub(super) sent: Nanos,
    /// For a flush: how many writes were acknowledged when it was sent.
    pub(super) covers: u64,
}

/// A connection.
pub(super) struct Link {
    pub(super) stream: Option<Stream>,
    pub(super) flying: HashMap<u64, Flying>,
    /// Nothing further is sent on the connection.
    pub(super) retired: bool,
    /// A thread is sending on the connection.
    pub(super) sending: bool,
    /// How many writes were acknowledged when the connection was made. Its server executed all later ones; it may not
    /// be the process that executed the earlier ones.
    pub(super) born: u64,
    /// The server reports what is allocated.
    pub(super) has_status: bool,
}

impl Link {
    pub(super) fn new(stream: Option<Stream>, born: u64, has_status: bool) -> Self {
        let (flying, retired, sending) = (HashMap::new(), false, false);
        Self { stream, flying, retired, sending, born, has_status }
    }

    pub(super) fn shutdown(&mut self, how: Shutdown) {
        if let Some(stream) = &self.stream {
            let _ = stream.shutdown(how);
        }
    }

    pub(super) fn end(&mut self) {
        self.shutdown(Shutdown::Both);
    }
}
