// SPDX-License-Identifier: MIT OR Apache-2.0
//! The cache engine: plain data structures, and paths of straight-line `async` code over them.
//!
//! Purpose: everything that decides what is read, written, kept and dropped, for every preset and
//! every driver. Read [`shard`] for its face, then the path you look for: `read`, `write`,
//! `flush`, `populate`, `update`, `owned`.
//!
//! Invariants: no file, socket, clock, thread or runtime is named in this crate (a test reads the
//! sources); no `unsafe`; every structure is bounded by the volume's size, the flash's size or
//! what is in flight.
#![forbid(unsafe_code)]

pub mod buf;
pub mod cache;
pub mod checksum;
pub mod desk;
pub mod event;
pub mod exec;
pub mod extent;
pub mod journal;
pub mod label;
pub mod memory;
pub mod mutant;
pub mod pagelog;
pub mod pages;
pub mod preset;
pub mod request;
pub mod shape;
pub mod shard;
pub mod stats;

mod attached;
mod claims;
mod flash;
mod flush;
mod gate;
mod health;
mod logged;
mod owned;
mod pace;
mod populate;
mod read;
mod update;
mod validity;
mod write;

pub use larder_policy as policy;
