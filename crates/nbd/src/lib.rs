// SPDX-License-Identifier: MIT OR Apache-2.0
//! The Network Block Device protocol, as far as both ends of it need it: its bytes, how an export
//! is named, and the client's side.
//!
//! Purpose: one place for what a server and a client share. [`codec`] knows the bytes, [`uri`] how
//! an export is named, [`deadline`] how a blocking negotiation is bounded in time, [`status`] what is a hole, [`tls`] how it goes on encrypted, and [`client`]
//! is the client: its negotiation and two halves for two threads. The server's negotiation and
//! transmission phase are in `larder-front`; the device that uses the client is in `larder-io`.
//!
//! Invariants: whatever the peer sends, nothing here panics, allocates beyond a stated bound or
//! waits without one. No `unsafe`.
//!
//! Why not an NBD crate: those that exist know one request at a time or want an async runtime.
//!
//! The protocol is the one of `doc/proto.md` in NetworkBlockDevice/nbd, baseline plus structured
//! replies, TLS and the metadata context `base:allocation`, without the extended headers.
#![forbid(unsafe_code)]

pub mod client;
pub mod codec;
pub mod deadline;
pub mod status;
pub mod tls;
pub mod uri;
