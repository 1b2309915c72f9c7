// SPDX-License-Identifier: MIT OR Apache-2.0
//! Admission: which units enter the cache, and when.
//!
//! Three policies, which differ in what they are asked: [`Selective`] collects misses for background workers,
//! [`OnMiss`] decides about a unit with the very request that missed it, [`Periodic`] exchanges units now and then.
//!
//! Why no common trait: a caller must know which of the three it drives, and a method that two of three policies answer
//! with "no" hides that.

mod on_miss;
mod periodic;
mod regulator;
mod selective;

pub use on_miss::{OnMiss, OnMissSettings};
pub use periodic::{Periodic, PeriodicSettings, Slots, Step, Swap};
pub use regulator::{Class, Regulator};
pub use selective::{Selective, SelectiveSettings};
