// SPDX-License-Identifier: MIT OR Apache-2.0
//! The Network Block Device protocol for servers and clients: wire format, URIs, TLS, and the client.
//!
//! Purpose: one place for what a server and a client share. [`codec`] has the wire format, [`uri`] the names of
//! exports, [`deadline`] the time limit of a blocking negotiation, [`status`] the block status, [`tls`] the encryption,
//! and [`client`] the client's negotiation with two halves for two threads. The server's negotiation and transmission
//! phase are in `larder-front`; the device that uses the client is in `larder-io`.
//!
//! Invariants: whatever the peer sends, this crate does not panic, does not allocate beyond a stated bound and does not
//! wait beyond one. No `unsafe`.
//!
//! Why not an NBD crate: the existing ones handle one request at a time or require an async runtime.
//!
//! The protocol is `doc/proto.md` of NetworkBlockDevice/nbd: the baseline, structured replies, TLS and the metadata
//! context `base:allocation`, without extended headers.
#![forbid(unsafe_code)]

pub mod client;
pub mod codec;
pub mod deadline;
pub mod status;
pub mod tls;
pub mod uri;
