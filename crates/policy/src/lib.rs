// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pure cache decisions: admission (by heat or on a miss), replacement, the device that serves a hit, the regions that a
//! journal keeps touched, and what a write-back cache copies to the origin next; a bound on flash writes. Beside them the miss-ratio curve of a running load.
//!
//! Each policy is one short file. The engine passes events and the time, and the policy returns a decision. A policy
//! knows no device, clock, thread or byte.
//!
//! Invariants: equal calls give equal decisions; every structure is bounded by its settings or by the number of slots.
//! The crate is built without `std`, so the compiler rejects I/O, clocks and threads.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod admission;
pub mod balance;
pub mod curve;
pub mod heat;
pub mod replacement;
mod streams;
pub mod syncer;
pub mod touched;
pub mod write_budget;

/// A point in time or a span, in nanoseconds.
pub type Nanos = u64;
