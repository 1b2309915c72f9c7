// SPDX-License-Identifier: MIT OR Apache-2.0
//! A connection of an NBD device, and the requests that are on their way on it.
//!
//! Invariants: a retired connection has no operations, only ghosts: requests that may still change
//! something.

use std::collections::HashMap;
use std::net::Shutdown;

use larder_core::exec::Nanos;
use larder_nbd::client::Stream;

use super::step::Step;

/// A request on its way.
pub(super) struct Flying {
    /// Its operation; without one it is a ghost.
    pub(super) op: Option<usize>,
    pub(super) step: Step,
    pub(super) sent: Nanos,
    /// Of a flush: how many writes had been answered when it was sent.
    pub(super) covers: u64,
}

/// A connection.
pub(super) struct Link {
    pub(super) stream: Option<Stream>,
    pub(super) flying: HashMap<u64, Flying>,
    /// Nothing is sent on it any more.
    pub(super) retired: bool,
    /// A thread is sending on it right now.
    pub(super) sending: bool,
    /// How many writes had been answered when it was made. Its server is known to be the one that
    /// answered all later ones, and may be another than that of the earlier ones.
    pub(super) born: u64,
    /// Its server says what is allocated.
    pub(super) tells_status: bool,
}

impl Link {
    pub(super) fn new(stream: Option<Stream>, born: u64, tells_status: bool) -> Self {
        let (flying, retired, sending) = (HashMap::new(), false, false);
        Self { stream, flying, retired, sending, born, tells_status }
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
