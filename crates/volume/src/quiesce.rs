// SPDX-License-Identifier: MIT OR Apache-2.0
//! A volume whose origin does not change for a while: for a snapshot of the origin by what is below it.
//!
//! Dirty data is copied to the origin and the origin is flushed; then writes, trims and zeroings of clients wait, those before them
//! end, and what they left dirty is copied and flushed too. From then until the [`Quiet`] is dropped the origin has exactly what
//! was acknowledged. Reads are answered meanwhile; a FLUSH is too.
//!
//! Invariant: a hold ends with its guard. Who takes it bounds it: clients of a file system wait for their writes.

use std::sync::mpsc::channel;
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
        self.flush(bound)?;
        self.begin_overlaps()?;
        let (sender, receiver) = channel();
        let whole = 0..self.space().end - self.space().start;
        self.overlaps().enter(whole, true, move |pass| drop(sender.send(pass)));
        let pass = receiver.recv_timeout(left()).map_err(|_| {
            let why = "writes of clients did not end";
            VolumeError::TooSlow(format!("{why} within {} s; nothing is held", bound.as_secs()))
        })?;
        self.flush(left())?;
        Ok(Quiet { _pass: pass })
    }
}
