// SPDX-License-Identifier: MIT OR Apache-2.0
//! The NBD server without sockets.
//!
//! Purpose: the server's side of the protocol. [`handshake`] is the negotiation, [`export`] the exports, [`session`]
//! the transmission phase as a state machine that borrows and lends buffers. The wire format, URIs and the client are
//! in `larder-nbd`.
//!
//! Invariants: whatever the peer sends, this module does not panic, does not allocate beyond a stated bound and does
//! not wait beyond one. No `unsafe`.
//!
//! Why not an NBD crate: the existing ones read a request into their own memory and require an async runtime; here
//! payload goes from the socket into the buffer from which the device is written.
#![forbid(unsafe_code)]

pub mod export;
pub mod handshake;
pub mod session;
