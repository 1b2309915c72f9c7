// SPDX-License-Identifier: MIT OR Apache-2.0
//! A volume whose origin does not change for a while: for a snapshot of the origin by what is below it.
//!
//! Dirty data is copied to the origin and the origin is flushed; then writes, trims and zeroings of clients wait, those before them
//! end, and what they left dirty is copied and flushed too. From then until the [`Quiet`] is dropped the origin has exactly what
//! was acknowledged. Reads are answered meanwhile, and so is FLUSH.
//!
//! Invariants: a hold ends with its guard, whose owner bounds it: clients of a file system wait for their writes. If it is not reached,
//! nothing is held.

use std::time::{Duration, Instant};

use super::error::VolumeError;
use super::overlaps::Pass;
use super::volume::Volume;

/// Writes wait until this is dropped.
pub struct Quiet {
    _pass: Pass,
}

impl Volume {
    /// Holds writes, once the origin has everything.
    ///
    /// # Errors
    /// A device fails, or it is not reached within `bound`; then nothing is held.
    pub fn quiesce(&self, bound: Duration) -> Result<Quiet, VolumeError> {
        let deadline = Instant::now() + bound;
        let left = || deadline.saturating_duration_since(Instant::now());
        // Most of the work, while clients still write.
        self.flush(left())?;
        self.begin_overlaps(left())?;
        let whole = 0..self.space().end - self.space().start;
        let pass = self.overlaps().take(whole, left()).ok_or_else(|| {
            let why = "writes of clients did not end";
            VolumeError::TooSlow(format!("{why} within {} s; nothing is held", bound.as_secs()))
        })?;
        self.flush(left())?;
        Ok(Quiet { _pass: pass })
    }
}
