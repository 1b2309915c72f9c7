// SPDX-License-Identifier: MIT OR Apache-2.0
//! Budgets and time limits of the engine.

use crate::exec::{Nanos, SECOND};

/// What is not one of the five choices but bounds the engine: budgets and time limits. The
/// defaults that the paper gives are the paper's.
#[derive(Clone, Debug, PartialEq)]
pub struct Limits {
    /// Bytes of client data that may wait for their flash write after the client was answered
    /// (SCE 3.6: 8 MiB).
    pub write_through_bytes: u64,
    /// The largest population read (design rule 6: population is split; smaller ones where that
    /// is kinder to clients).
    pub population_io_bytes: u64,
    /// While clients use the origin, the share of the time in which population may.
    pub population_share: f64,
    /// A flash operation that takes longer is answered from the origin.
    pub flash_timeout: Nanos,
    /// A flash device that leaves an operation unanswered for this long is given up.
    pub flash_dead_after: Nanos,
    /// This many flash errors within [`Limits::flash_error_window`] and the device is given up.
    pub flash_errors: u32,
    /// See [`Limits::flash_errors`].
    pub flash_error_window: Nanos,
    /// How often what units hold is logged, where metadata is kept: what a crash may cost.
    pub checkpoint: Nanos,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            write_through_bytes: 8 << 20,
            population_io_bytes: 1 << 20,
            population_share: 0.8,
            flash_timeout: 2 * SECOND,
            flash_dead_after: 30 * SECOND,
            flash_errors: 16,
            flash_error_window: 60 * SECOND,
            checkpoint: SECOND,
        }
    }
}

/// How long after the last foreground read of the origin population still counts it as busy: long
/// enough that a few clients of a disk, which reads a hundred times a second, count as present.
pub(crate) const FOREGROUND_MEMORY: Nanos = SECOND;
