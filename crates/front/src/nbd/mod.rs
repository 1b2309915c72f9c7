// SPDX-License-Identifier: MIT OR Apache-2.0
//! The NBD server without sockets.
//!
//! Purpose: the server's half of the protocol. [`handshake`] is its negotiation, [`export`] what it
//! offers, [`session`] its transmission phase as a state machine that takes and gives memory. The
//! bytes, the names of exports and the client are in `larder-nbd`.
//!
//! Invariants: whatever the peer sends, nothing here panics, allocates beyond a stated bound or
//! waits without one. No `unsafe`.
//!
//! Why not an NBD crate: those that exist read a request into memory of their own and want an
//! async runtime; here payload goes from the socket into the very buffer that the device writes.
#![forbid(unsafe_code)]

pub mod export;
pub mod handshake;
pub mod session;
