// SPDX-License-Identifier: MIT OR Apache-2.0
//! A bound on the bytes that are written to flash in a day, so that it lasts as long as its owner planned.
//!
//! Bytes are granted at a constant rate. What was not used is kept for 36 minutes, so that a burst need not wait, and what was
//! written beyond it is paid back. Units are *admitted* while something is left. Flash *copies* of writes to what is cached continue into
//! a debt of the same size, because a page that is not copied becomes invalid, and its unit was worth a slot. So in any day at most the
//! budget and a twentieth of it are written, unless what must be written is more: records of a journal, and dirty data.
//!
//! What is admitted first when bytes are granted again is the next miss, or the hottest of the recent ones: a random sample in time, in
//! which what is read often is found soonest (as the dynamic random admission of CacheLib, Berg et al., OSDI 2020).
//!
//! Why not a bound for each hour: loads differ by the hour. Why not all of a day at once: a night's scan would take it.

use crate::Nanos;

/// The part of a day's bytes that may be kept, and owed.
const SLACK: Nanos = DAY / 40;
const DAY: Nanos = 86_400_000_000_000;

/// A budget of one shard.
#[derive(Clone, Copy, Debug)]
pub struct WriteBudget {
    per_day: u64,
    /// When, and at how many bytes written, nothing was left and nothing owed.
    since: Nanos,
    base: u64,
}

impl WriteBudget {
    /// A budget of so many bytes a day (at least 1), from now on, when `written` bytes have been written in all.
    #[must_use]
    pub fn new(per_day: u64, now: Nanos, written: u64) -> Self {
        Self { per_day: per_day.max(1), since: now, base: written }
    }

    /// Bytes a day.
    #[must_use]
    pub fn per_day(&self) -> u64 {
        self.per_day
    }

    fn granted(&self, span: Nanos) -> u64 {
        (u128::from(span) * u128::from(self.per_day) / u128::from(DAY)) as u64
    }

    /// Bytes that are left, or owed if negative, when `written` have been written in all.
    pub fn left(&mut self, now: Nanos, written: u64) -> i64 {
        let span = now.saturating_sub(self.since);
        let spent = written.saturating_sub(self.base);
        let most = self.granted(SLACK);
        let granted = self.granted(span);
        if granted > spent + most {
            // What is not used is kept for so long and no longer.
            (self.since, self.base) = (now.saturating_sub(SLACK), written);
            return most as i64;
        }
        granted as i64 - spent as i64
    }

    /// Whether units are admitted.
    pub fn admits(&mut self, now: Nanos, written: u64) -> bool {
        self.left(now, written) > 0
    }

    /// Whether writes of what is cached are copied to flash.
    pub fn copies(&mut self, now: Nanos, written: u64) -> bool {
        self.left(now, written) > -(self.granted(SLACK) as i64)
    }

    /// How long it takes until units are admitted, if nothing more is written; at least 1.
    pub fn wait(&mut self, now: Nanos, written: u64) -> Nanos {
        let owed = (1 - self.left(now, written)).max(0) as u128;
        let span = owed * u128::from(DAY) / u128::from(self.per_day);
        (span.min(u128::from(DAY)) as Nanos).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Nanos = DAY / 24;

    /// Writes as much as is admitted, each `each` bytes, checked every second; returns the bytes.
    fn writes(
        budget: &mut WriteBudget,
        from: Nanos,
        to: Nanos,
        each: u64,
        written: &mut u64,
    ) -> u64 {
        let before = *written;
        let mut now = from;
        while now < to {
            while budget.admits(now, *written) {
                *written += each;
            }
            now += 1_000_000_000;
        }
        *written - before
    }

    #[test]
    fn a_greedy_load_writes_the_budget_of_a_day() {
        let (mut budget, mut written) = (WriteBudget::new(24_000_000, 0, 7), 7);
        let day = writes(&mut budget, 0, DAY, 1000, &mut written);
        assert!((24_000_000 - 1000..=24_000_000 + 1000).contains(&day), "{day}");
    }

    #[test]
    fn little_is_kept_of_what_was_not_used_and_debts_are_paid() {
        let (mut budget, mut written) = (WriteBudget::new(24_000_000, 0, 0), 0);
        let kept = budget.left(20 * HOUR, written);
        assert_eq!(kept, 600_000, "a fortieth");
        let hour = writes(&mut budget, 20 * HOUR, 21 * HOUR, 1000, &mut written);
        assert!((1_600_000..=1_601_000).contains(&hour), "{hour}");
        // Copies, which wait only for a larger debt.
        while budget.copies(21 * HOUR, written) {
            written += 1000;
        }
        assert!((-601_000..=-599_000).contains(&budget.left(21 * HOUR, written)));
        let wait = budget.wait(21 * HOUR, written);
        assert!(!budget.admits(21 * HOUR + wait / 2, written));
        assert!(budget.admits(21 * HOUR + wait + 1_000_000_000, written));
    }

    #[test]
    fn the_largest_budgets_do_not_overflow() {
        let mut budget = WriteBudget::new(1 << 60, 0, 0);
        assert!(budget.admits(DAY, 1 << 50) && budget.wait(DAY, 1 << 50) > 0);
        let mut least = WriteBudget::new(0, 0, 0);
        assert!(!least.admits(1, 0) && least.wait(0, u64::MAX / 4) == DAY);
    }
}
