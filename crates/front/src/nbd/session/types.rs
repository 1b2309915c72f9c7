// SPDX-License-Identifier: MIT OR Apache-2.0
//! Limits and states of a session.

use larder_core::request::Errno;
use larder_volume::session::Abort;

/// Bounds of one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The most requests open at a time.
    pub requests: usize,
    /// The most bytes of payload of open requests; one request is always admitted.
    pub payload_bytes: u64,
    /// Bytes of the receive buffer.
    pub recv_bytes: usize,
    /// The longest payload of a rejected write that is read and discarded.
    pub skip_bytes: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self { requests: 128, payload_bytes: 32 << 20, recv_bytes: 256 << 10, skip_bytes: 64 << 20 }
    }
}

/// Why a session ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Why {
    /// The client sent a disconnect request.
    #[error("the client disconnected")]
    Disconnect,
    /// The client closed its side between two requests.
    #[error("the client closed the connection without a disconnect request")]
    PeerClosed,
    /// The client closed its side within a request.
    #[error("the client closed the connection in the middle of a request")]
    PeerClosedInRequest,
    /// [`Source::stop`](larder_volume::session::Source::stop) was called.
    #[error("the server is shutting down")]
    Stopped,
    /// A request has the wrong magic.
    #[error(
        "request magic is {0:#010x}, expected 0x25609513: the stream is not aligned with requests"
    )]
    BadMagic(u32),
    /// A rejected write is too long to be skipped.
    #[error("a write of {0} bytes exceeds the maximum payload and is too long to be skipped")]
    Oversize(u32),
    /// The server ended it.
    #[error("{0}")]
    Aborted(Abort),
    /// A reply could not be sent.
    #[error("sending failed: {0}")]
    Send(Errno),
}

/// The state of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Requests are received and served.
    Open,
    /// No more is received; requests in flight still get their reply. A receive in flight may be cancelled.
    Closing(Why),
    /// The connection can be closed at once. Memory may still be lent, see
    /// [`Session::memory_out`](larder_volume::session::Session::memory_out). Late results are dropped.
    Closed(Why),
}
