// SPDX-License-Identifier: MIT OR Apache-2.0
//! The cache engine: plain data structures, and paths of straight-line `async` code over them.
//!
//! Everything that decides which data is read, written, kept and dropped, for every preset and every driver. `shard.rs`
//! is its face, `cache/mod.rs` the door at which a request meets the kind of cache that serves it.
//!
//! Invariants: no file, socket, clock, thread or runtime is named in this crate (a test reads the
//! sources); no `unsafe`; every structure is bounded by the volume's size, the flash's size or
//! what is in flight.
#![forbid(unsafe_code)]

pub mod buf;
pub mod checksum;
pub mod config;
pub mod desk;
pub mod event;
pub mod exec;
pub mod extent;
pub mod format;
pub mod journal;
pub mod mutant;
pub mod pagelog;
pub mod pages;
pub mod request;
pub mod shape;
pub mod shard;
pub mod size;
pub mod stats;

mod bytes;
mod cache;
mod claims;
mod context;
mod fill;
mod flash;
mod origin;
mod out_of_use;
mod population;
mod runs;
mod write_pool;

pub use larder_policy as policy;
