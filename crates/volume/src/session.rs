// SPDX-License-Identifier: MIT OR Apache-2.0
//! A client's connection as its worker sees it: bytes in, requests out; results in, bytes out.
//!
//! Purpose: a front implements [`Session`] for its protocol, and a worker serves it without knowing
//! the protocol. The worker owns the socket and lends the session's memory to the ring:
//! [`Session::take_recv`] gives memory to receive into, [`Session::received`] brings it back,
//! [`Session::take_send`] and [`Session::sent`] do the same for replies. After each of these, and
//! after a result, the worker calls [`Source::next_request`] until it returns `None`, then asks
//! for memory to receive and to send.
//!
//! A session is a [`Source`] of requests over a byte stream; a [`Queue`](crate::queue::Queue) is one without a stream.
//!
//! Invariants that the worker relies on: one receive and one send are out at most; a result for a
//! ticket that no open request has is dropped; a closed session asks for no more memory.
//!
//! Why an object and not a type parameter: a call through a table costs nothing beside a request,
//! and one worker may serve sessions of several protocols.

use larder_core::buf::Buf;
use larder_core::extent::Extent;
use larder_core::request::{Errno, Kind};
use larder_io::SendBatch;

use crate::budget::Wake;

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// Of the engine.
    Io(Kind),
    /// A read that leaves the cache as it is.
    PassiveRead,
    /// What the range is: data or a hole.
    Status {
        /// Its first extent alone.
        one: bool,
    },
}

/// A request, validated.
#[derive(Debug)]
pub struct ClientRequest {
    /// Its name for [`Source::reply`].
    pub ticket: u64,
    /// What is asked.
    pub what: What,
    /// First byte; zero for a flush.
    pub offset: u64,
    /// Bytes; zero for a flush.
    pub len: u64,
    /// A write's payload, one buffer for each of `pieces(offset, len, stripe_bytes)`; else empty.
    pub bufs: Vec<Buf>,
}

/// Where a session stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// It takes requests.
    Open,
    /// It takes no more requests and answers those in flight. A receive in flight may be
    /// cancelled.
    Closing,
    /// The connection can be closed. Memory may still be out, and results may still come for
    /// tickets; they are dropped.
    Closed,
}

/// What a connection does. Its client holds the seat for something useful while it is `Working`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Doing {
    /// It made no request since its negotiation.
    Silent,
    /// All its requests are answered, and the client has read the replies.
    Idle,
    /// The payload of a write is arriving.
    Receiving,
    /// A request is in flight.
    Working,
    /// Replies wait for the client to read them.
    Sending,
}

/// Why the server ends a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Abort {
    /// The client closed both directions.
    #[error("the client is gone")]
    Gone,
    /// Replies were not read in time.
    #[error("the client does not read its replies")]
    Unread,
    /// Others waited for the memory that it holds.
    #[error("the client holds memory that other clients wait for, and makes no progress")]
    Starves,
    /// Nothing happened in time.
    #[error("the connection was idle for too long")]
    Idle,
}

/// Where a worker gets requests from, and hands their results to.
pub trait Source: Send {
    /// The next request, if one is complete and there is room for it.
    fn next_request(&mut self) -> Option<ClientRequest>;

    /// The result of a request. `bufs` is the data of a successful read, in order and of exactly
    /// its length; what another request brings is dropped.
    fn reply(&mut self, ticket: u64, result: Result<(), Errno>, bufs: Vec<Buf>);

    /// The answer to a question of status: extents from the beginning of its range on, which are
    /// not empty and do not go beyond its end. Only a source that asks for status has one.
    fn reply_status(&mut self, ticket: u64, _: &[Extent]) {
        self.reply(ticket, Err(Errno::EOPNOTSUPP), Vec::new());
    }

    /// The server shuts down: the source takes nothing more and answers what is in flight.
    fn stop(&mut self);

    /// Sets what is called when a request that waits for memory may be taken.
    fn set_wake(&mut self, wake: Wake);

    /// Memory of its buffers.
    fn memory_bytes(&self) -> u64;

    /// Where it stands.
    fn phase(&self) -> Phase;

    /// Why it closes or closed, for the log.
    fn why(&self) -> String;

    /// How many requests have begun and have no result yet.
    fn in_flight(&self) -> usize;
}

/// One connection's transmission phase, see the module.
pub trait Session: Source {
    /// Memory to receive into, and the place in it where to start; all behind that place may be
    /// filled. `None` while one is out, while requests wait to be taken, while too much is in
    /// flight, and at the end.
    fn take_recv(&mut self) -> Option<(Buf, usize)>;

    /// Brings the memory of [`take_recv`](Self::take_recv) back with `n` bytes more in it, from
    /// `at` on. Zero, also for a failed receive: the peer sends no more.
    fn received(&mut self, buf: Buf, at: usize, n: usize);

    /// The next replies, to be sent whole. One batch is out at a time.
    fn take_send(&mut self) -> Option<SendBatch>;

    /// Ends the batch that is out, and brings its memory back. `Ok` only if all of it was sent.
    fn sent(&mut self, batch: SendBatch, result: Result<(), Errno>);

    /// The part of its memory that other connections may wait for.
    fn common_bytes(&self) -> u64;

    /// Ends the session at once: waiting replies are not sent, results of requests in flight are dropped.
    fn abort(&mut self, why: Abort);

    /// What the connection does.
    fn doing(&self) -> Doing;

    /// Changes with every request, with every reply that was sent, and with every MiB that was received.
    fn progress(&self) -> u64;

    /// Memory is lent to a receive or a send.
    fn memory_out(&self) -> bool;
}
