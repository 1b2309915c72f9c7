// SPDX-License-Identifier: MIT OR Apache-2.0
//! Write-back in the naps of the checkpointer; `pace.rs` has the rules, and how much is due.

use std::time::{Duration, Instant};

use larder_core::pagelog::Host;
use larder_shared::now;

use crate::pace::Plan;
use crate::pool::Pool;
use crate::server;

/// The plan of this process's checkpoint.
#[must_use]
pub fn plan() -> Option<Plan> {
    let (checkpoint, seconds) = server::checkpoint()?;
    Some(Plan { checkpoint, time: Duration::try_from_secs_f64(seconds).ok()? })
}

impl Pool {
    /// The checkpointer naps: writes back what is due, for at most this long.
    pub fn drain_ahead(&self, plan: Plan, nap: Duration) {
        let begin = Instant::now();
        if !self.policy().drains_at_commit() || !self.works() {
            return;
        }
        let log = self.flash().log();
        let mut due = self.pace.due(plan, &log.undrained(), begin);
        let before = log.host().hurry(true);
        while !due.is_empty() && !self.is_overdue() && begin.elapsed() < nap {
            match now(log.drain_ahead(due.clone())) {
                Ok(done) if done > due.start => due.start = done,
                _ => break,
            }
            self.pace.reached(due.start);
        }
        log.host().hurry(before);
    }
}
