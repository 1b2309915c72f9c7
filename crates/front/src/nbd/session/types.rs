// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a session says to its driver.

use larder_core::request::Errno;

/// Bounds of one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The most requests open at a time.
    pub requests: usize,
    /// The most bytes of payload of open requests; one request is always let in.
    pub payload_bytes: u64,
    /// Bytes of the receive buffer.
    pub recv_bytes: usize,
    /// The longest payload of a refused write that is read and thrown away.
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
    /// The client asked for it.
    #[error("the client disconnected")]
    Disconnect,
    /// The client closed its side between requests.
    #[error("the client closed the connection without a disconnect request")]
    PeerClosed,
    /// The client closed its side within a request.
    #[error("the client closed the connection in the middle of a request")]
    PeerClosedInRequest,
    /// [`Session::stop`](larder_volume::session::Session::stop) was called.
    #[error("the server is shutting down")]
    Stopped,
    /// What came is no request.
    #[error("request magic is {0:#010x}, expected 0x25609513: the stream is out of step")]
    BadMagic(u32),
    /// A write longer than what is worth reading to its end.
    #[error("a write of {0} bytes, above the maximum payload and too long to be skipped")]
    Oversize(u32),
    /// A reply could not be sent.
    #[error("sending failed: {0}")]
    Send(Errno),
}

/// Where a session stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Requests come and go.
    Open,
    /// No more is received; what is in flight is still answered. A receive that is under way may
    /// be cancelled.
    Closing(Why),
    /// The connection can be closed at once. Memory may still be out, see
    /// [`Session::memory_out`](larder_volume::session::Session::memory_out), and results may still come for tickets; they are dropped.
    Closed(Why),
}
