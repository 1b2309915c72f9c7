// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pure cache decisions: who enters (admission, by heat), who leaves (replacement).
//!
//! Purpose: three of a cache's five choices live here, one short file each. They are told what
//! happened and at what time, and answer; they know no device, clock, thread or byte.
//!
//! Invariants: the same calls give the same answers; every structure is bounded by its settings
//! or by the number of slots. The crate is built without `std`, so that the compiler keeps I/O, clocks and threads out.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod admission;
pub mod heat;
pub mod replacement;

/// A point in time or a span, in nanoseconds.
pub type Nanos = u64;
