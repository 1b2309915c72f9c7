// SPDX-License-Identifier: MIT OR Apache-2.0
//! Budgets and time limits of the engine.

use std::cell::Cell;
use std::rc::Rc;

use crate::buf::PAGE;
use crate::exec::{Nanos, SECOND};

/// Budgets and time limits. Where SCE states a value, it is the default.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// Bytes of client data that may wait for their flash write after the answer (SCE 3.6: 8 MiB).
    pub write_through_bytes: u64,
    /// The largest population read (design rule 6); the pace may choose smaller ones.
    pub population_io_bytes: u64,
    /// Whether reads admit units and pages in the background: population, and exchanges of periodic updates.
    pub populates: bool,
    /// The share of the time in which population may use the origin while clients use it.
    pub population_share: f64,
    /// A flash operation that takes longer is answered from the origin.
    pub flash_timeout: Nanos,
    /// After this time without an answer to an operation the flash device has failed.
    pub flash_dead_after: Nanos,
    /// After this many errors within [`Limits::flash_error_window`] the flash device has failed.
    pub flash_errors: u32,
    /// See [`Limits::flash_errors`].
    pub flash_error_window: Nanos,
    /// Of several volumes that share a cache: an origin that leaves an operation unanswered for longer does not hold up the
    /// others.
    pub origin_patience: Nanos,
    /// Bytes of memory for copies of pages on flash, over all shards; 0: none. A page log has no such tier.
    pub ram_bytes: u64,
    /// Bytes of memory for checksums of cached pages, over all shards, if they are verified.
    pub verify_bytes: u64,
    /// Bytes that are written to flash in a day, over all shards; 0: as many as the load makes.
    pub flash_write_budget: u64,
    /// The time of day at moment 0 of the engine's clock, for updates at times of day.
    pub time_of_day: Nanos,
    /// Under the write policy `ordered`: how long a change may wait for the origin while others are accepted.
    pub ordered_lag: Nanos,
    /// Interval at which changes of units are logged if metadata is durable. A crash loses the changes of one interval.
    pub checkpoint: Nanos,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            write_through_bytes: 8 << 20,
            population_io_bytes: 1 << 20,
            populates: true,
            population_share: 0.8,
            flash_timeout: 2 * SECOND,
            flash_dead_after: 30 * SECOND,
            flash_errors: 16,
            flash_error_window: 60 * SECOND,
            origin_patience: 5 * SECOND,
            ram_bytes: 0,
            verify_bytes: 64 << 20,
            flash_write_budget: 0,
            time_of_day: 0,
            ordered_lag: 30 * SECOND,
            checkpoint: SECOND,
        }
    }
}

impl Limits {
    /// Whether a population read may be so large.
    #[must_use]
    pub fn is_population_io(bytes: u64) -> bool {
        (PAGE as u64..=1 << 20).contains(&bytes) && bytes.is_multiple_of(PAGE as u64)
    }

    /// With those of `other` that may change while a shard runs. Those that may not: `checkpoint`, in which a journal counts time
    /// (`journal/due.rs`); the memory that is laid out when flash is attached; the patience with origins.
    #[must_use]
    pub(crate) fn adjusted(self, other: &Self) -> Self {
        Self {
            write_through_bytes: other.write_through_bytes,
            population_io_bytes: other.population_io_bytes,
            populates: other.populates,
            population_share: other.population_share,
            flash_timeout: other.flash_timeout,
            flash_dead_after: other.flash_dead_after,
            flash_errors: other.flash_errors,
            flash_write_budget: other.flash_write_budget,
            ordered_lag: other.ordered_lag,
            ..self
        }
    }
}

/// The limits of a shard: its parts read them when they need them, since they may change.
pub(crate) type LimitsInUse = Rc<Cell<Limits>>;

/// How long the origin counts as busy after the last client operation: long enough for a few clients of a disk that makes
/// a hundred reads a second.
pub(crate) const FOREGROUND_MEMORY: Nanos = SECOND;
