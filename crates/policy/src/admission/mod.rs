// SPDX-License-Identifier: MIT OR Apache-2.0
//! Admission: which units are cached, and when.
//!
//! Three policies with different interfaces: [`Selective`] collects misses for background workers, [`OnMiss`] decides
//! within the request that missed, and [`Periodic`] exchanges units at intervals.
//!
//! Five more refine background population: [`ExtendedReads`] decides how much a miss reads, [`Benefit`] which units are
//! exchanged in a full cache, [`Investment`] how much of the origin population takes, [`Singles`] how much of flash
//! holds single pages instead of whole units, and [`Sequential`] which sequential streams bypass the cache.
//!
//! Why no common trait: the caller must know which of the three it drives, and a method that two of them answer with
//! "no" would hide that.

mod benefit;
mod extended;
mod investment;
mod on_miss;
mod parts;
mod periodic;
mod regulator;
mod selective;
mod sequential;
mod singles;

/// One of `over` places for a unit: neighbours are spread (Fibonacci hashing).
fn spread(unit: u64, over: u64) -> u64 {
    (unit.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) % over
}

/// A mean of all values while they are few, and of the recent ones later.
#[derive(Clone, Copy, Debug, Default)]
struct Mean {
    value: f64,
    count: u32,
}

impl Mean {
    /// Recent values, once there are many.
    const RECENT: u32 = 64;

    fn add(&mut self, value: f64) {
        self.add_of(value, Self::RECENT);
    }

    /// Adds a value, where so many values are recent.
    fn add_of(&mut self, value: f64, recent: u32) {
        self.count = self.count.saturating_add(1);
        self.value += (value - self.value) / f64::from(self.count.min(recent));
    }
}

pub use benefit::{BYTES_PER_UNIT as BENEFIT_BYTES_PER_UNIT, Benefit};
pub use extended::{ExtendedReads, ExtendedSettings};
pub use investment::{Investment, InvestmentSettings};
pub use on_miss::{OnMiss, OnMissSettings};
pub use periodic::{DAY, Periodic, PeriodicSettings, Schedule, Slots, Step, Swap};
pub use regulator::{Class, Regulator};
pub use selective::{Selective, SelectiveSettings};
pub use sequential::{Sequence, Sequential, SequentialSettings};
pub use singles::{Singles, SinglesSettings};
