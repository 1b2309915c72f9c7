// SPDX-License-Identifier: MIT OR Apache-2.0
//! A queue of requests that is not a byte stream, as its worker sees it: events in, requests out; results in, operations
//! out.
//!
//! Purpose: a front implements [`Queue`] for a block device whose peer is a driver in the kernel (ublk) or a virtual
//! machine (vhost-user). The worker runs the queue's operations in its own ring: after each event and each result it
//! calls [`next_request`](super::session::Source::next_request) until it returns `None`, and then [`Queue::next_op`]
//! until that returns `None`.
//!
//! Invariants that the worker relies on: a closed queue starts no operation. The worker removes a queue when it is closed
//! and no request of it is in flight; operations that have not ended then have no event. Dropping the queue is the sign
//! that its worker is done with it.
//!
//! Why it is a [`Source`] like a session: what follows a request is the same code (cutting at stripes, order of writes,
//! recording, FLUSH). Connections have seats, idle bounds and peers that do not read; a queue has none of these.

use larder_core::request::Errno;
use larder_io::QueueOp;

use super::session::Source;

/// A queue of requests, see the module.
pub trait Queue: Source {
    /// The next operation to start, with its name for [`ended`](Self::ended).
    fn next_op(&mut self) -> Option<(u64, QueueOp)>;

    /// An operation has ended. A command brings what it returned.
    fn ended(&mut self, token: u64, result: Result<u32, Errno>);
}
