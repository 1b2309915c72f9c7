// SPDX-License-Identifier: MIT OR Apache-2.0
//! The cache engine: plain data structures, and paths of straight-line `async` code over them.
//!
//! It makes every caching decision, for every preset and every driver. `shard.rs` is its public interface; `cache/mod.rs`
//! dispatches a request to the kind of cache.
//!
//! Invariants: this crate uses no file, socket, clock, thread or runtime (`xtask tidy` checks it) and no `unsafe`; the size
//! of the volume, the size of the flash or the operations in flight bound every structure.
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
pub mod range_rules;
pub mod ranges;
pub mod request;
pub mod shape;
pub mod shard;
pub mod size;
pub mod stats;
pub mod volumes;

mod bad_reads;
mod bytes;
mod cache;
mod claims;
mod context;
mod fill;
mod flash;
mod merge;
mod origin;
mod origins;
mod out_of_use;
mod overdue;
mod population;
mod runs;
mod unflushed;
mod write_pool;

pub use larder_policy as policy;
