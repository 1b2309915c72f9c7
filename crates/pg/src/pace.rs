// SPDX-License-Identifier: MIT OR Apache-2.0
//! Write-back in the naps of the checkpointer, so that the flushes at the end of a checkpoint find few dirty pages on flash.
//!
//! A checkpoint that is spread over time naps between its writes. Under a policy whose flushes drain the log, each nap writes
//! back a part of the dirty pages, the oldest positions first. [`Pace`] gives the goal: after a fraction of the checkpoint's
//! time, the same fraction of the positions from the last drain up to the head. So the head is reached at the end, and the disk
//! gets no burst. The time is the planned one, or that of the checkpoint before if it was shorter (a checkpoint that WAL
//! requested, or one with few buffers).
//!
//! # Invariants
//! 1. A page that was written back in a nap does not count as drained. A flush of a file drains the log as without naps.
//! 2. A nap takes no longer than the server asked for, except for the writes of one batch. So the server's schedule holds, and
//!    a checkpoint that is requested to be immediate waits for at most one batch.
//! 3. A nap neither waits for an overdue flash nor reports errors: the flush repeats what failed, and reports it.
//!
//! Why the oldest first: a page that changes often has only its newest version left, which lies near the head, so that few
//! pages are written twice. Why not all pages at the beginning of a checkpoint: in a steady load most pages that the flush
//! needs become dirty while the checkpoint runs.

use std::cell::Cell;
use std::ops::Range;
use std::time::{Duration, Instant};

/// What the server plans.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Differs between checkpoints.
    pub checkpoint: i64,
    /// How long the checkpoint writes.
    pub time: Duration,
}

/// A checkpoint that writes.
#[derive(Clone, Copy)]
struct Run {
    checkpoint: i64,
    begin: Instant,
    /// The end of the last drain, when it began.
    from: u64,
    /// Positions before were written back.
    done: u64,
}

/// How far the present checkpoint must be, see the module.
#[derive(Default)]
pub struct Pace {
    run: Cell<Option<Run>>,
    /// How long the one before wrote.
    last: Cell<Option<Duration>>,
}

impl Pace {
    /// The positions that are due now, of those that may have dirty pages.
    pub fn due(&self, plan: Plan, undrained: &Range<u64>, now: Instant) -> Range<u64> {
        let (begin, from) = (now, undrained.start);
        let new = Run { checkpoint: plan.checkpoint, begin, from, done: from };
        let run = self.run.get().filter(|run| run.checkpoint == plan.checkpoint).unwrap_or(new);
        self.run.set(Some(run));
        let time = self.last.get().map_or(plan.time, |last| last.min(plan.time));
        let fraction = match time.is_zero() {
            true => 1.0,
            false => (now.duration_since(run.begin).as_secs_f64() / time.as_secs_f64()).min(1.0),
        };
        let all = undrained.end.saturating_sub(run.from);
        let goal = run.from + (all as f64 * fraction) as u64;
        let done = run.done.max(undrained.start);
        done..goal.max(done)
    }

    /// Positions before were written back.
    pub fn reached(&self, done: u64) {
        self.run.set(self.run.get().map(|run| Run { done, ..run }));
    }

    /// The checkpoint no longer writes, but flushes.
    pub fn end(&self, now: Instant) {
        if let Some(run) = self.run.take() {
            self.last.set(Some(now.duration_since(run.begin)));
        }
    }

    /// Whether a checkpoint writes.
    #[must_use]
    pub fn is_under_way(&self) -> bool {
        self.run.get().is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn plan(checkpoint: i64, seconds: u32) -> Plan {
        Plan { checkpoint, time: seconds * SECOND }
    }

    #[test]
    fn the_goal_follows_the_time_and_reaches_the_head_at_its_end() {
        let (pace, begin) = (Pace::default(), Instant::now());
        let due =
            |seconds: u32, head| pace.due(plan(1, 10), &(100..head), begin + seconds * SECOND);
        assert_eq!(due(0, 1100), 100..100);
        assert_eq!(due(1, 1100), 100..200);
        pace.reached(180);
        assert_eq!(due(5, 2100), 180..1100, "pages that came meanwhile count");
        assert_eq!(due(10, 2100), 180..2100);
        assert_eq!(due(30, 2500), 180..2500, "a late checkpoint follows the head");
        pace.reached(2500);
        assert_eq!(due(31, 2500), 2500..2500);
    }

    #[test]
    fn each_checkpoint_begins_again_and_one_that_was_short_lets_the_next_hurry() {
        let (pace, begin) = (Pace::default(), Instant::now());
        let at = |tenths: u32| begin + tenths * SECOND / 10;
        assert_eq!(pace.due(plan(1, 10), &(0..1000), at(0)), 0..0);
        pace.end(at(20));
        assert!(!pace.is_under_way());
        assert_eq!(pace.due(plan(2, 10), &(1000..2000), at(100)), 1000..1000);
        assert!(pace.is_under_way());
        assert_eq!(pace.due(plan(2, 10), &(1000..2000), at(110)), 1000..1500);
        pace.reached(1500);
        // One that did not flush is over as well.
        assert_eq!(pace.due(plan(3, 10), &(1500..2500), at(200)), 1500..1500);
        assert_eq!(pace.due(plan(3, 10), &(1500..2500), at(210)), 1500..2000);
        pace.end(at(300));
        assert_eq!(pace.due(plan(4, 10), &(2500..3500), at(300)), 2500..2500);
        assert_eq!(
            pace.due(plan(4, 10), &(2500..3500), at(310)),
            2500..2600,
            "never beyond the plan"
        );
    }

    #[test]
    fn a_drain_by_others_is_no_work() {
        let (pace, begin) = (Pace::default(), Instant::now());
        pace.due(plan(1, 10), &(0..1000), begin);
        assert_eq!(pace.due(plan(1, 10), &(900..1000), begin + 5 * SECOND), 900..900);
        assert_eq!(pace.due(plan(1, 0), &(900..1000), begin + 5 * SECOND), 900..1000);
    }
}
