// SPDX-License-Identifier: MIT OR Apache-2.0
//! The days of a desktop ([`super::super::desktop`]) as a trace, with backups at the ends of days.
//!
//! The paper replays its traces as fast as devices go and states no times, so they are ours:
//! a day is `day_span` (six hours: everything is a quarter here), its visits begin evenly over all of
//! it, and the requests of a visit, like those of a backup, follow each other by [`Spec::gap`]. A
//! backup begins when its day is over, and the next day when both are.
//!
//! Invariant: at most the requests of one day are in memory.

use larder_core::exec::Nanos;
use larder_trace::Record;

use super::super::desktop::{Ask, Desktop, Scale, User};
use super::record;

/// A quarter of the paper's sizes, as in the benches.
const SCALE: Scale = Scale::QUARTER;

/// A day.
fn day_span() -> Nanos {
    SCALE.day()
}

/// What is asked for.
#[derive(Clone, Debug, PartialEq)]
pub struct Spec {
    /// Whose desktop.
    pub user: User,
    /// Days, at most [`DAYS`](super::super::desktop::DAYS).
    pub days: u32,
    /// Days, from 0 on, at whose end there is a backup.
    pub backups: Vec<u32>,
    /// From a request of a visit or a backup to the next one.
    pub gap: Nanos,
}

/// The generator, see the module.
pub struct DesktopTrace {
    spec: Spec,
    desktop: Desktop,
    /// The day that comes next, and whether the backup of the one before is still to come.
    next: (u32, bool),
    asks: std::vec::IntoIter<Ask>,
    /// When this day or backup began, the time for one visit, and visits begun.
    begin: Nanos,
    visit: Nanos,
    visits: u64,
    /// The last request and its time.
    last: Option<(Ask, Nanos)>,
}

impl DesktopTrace {
    /// A trace that ends with the last day.
    #[must_use]
    pub fn new(spec: Spec, seed: u64) -> Self {
        Self {
            desktop: Desktop::new(&spec.user, SCALE, seed),
            next: (0, false),
            asks: Vec::new().into_iter(),
            begin: 0,
            visit: 0,
            visits: 0,
            last: None,
            spec,
        }
    }

    /// The requests of the next day or backup; false after the last one.
    fn open(&mut self) -> bool {
        let (day, backup) = self.next;
        let now = self.last.map_or(0, |(_, at)| at + self.spec.gap);
        let asks = if backup {
            self.visit = 0;
            self.begin = now.max(u64::from(day) * day_span());
            self.next.1 = false;
            self.desktop.backup(day - 1)
        } else if day < self.spec.days {
            let asks = self.desktop.day(day);
            let begins = asks.windows(2).filter(|pair| !goes_on(&pair[0], &pair[1])).count();
            self.visit = day_span() / (begins as u64 + 1);
            self.begin = now.max(u64::from(day) * day_span());
            self.next = (day + 1, self.spec.backups.contains(&day));
            asks
        } else {
            return false;
        };
        self.visits = 0;
        self.asks = asks.into_iter();
        true
    }
}

/// Whether a request belongs to the visit of the one before it.
fn goes_on(before: &Ask, ask: &Ask) -> bool {
    before.offset + before.len == ask.offset && before.writes == ask.writes
}

impl Iterator for DesktopTrace {
    type Item = Record;

    fn next(&mut self) -> Option<Record> {
        let ask = loop {
            match self.asks.next() {
                Some(ask) => break ask,
                None if !self.open() => return None,
                None => {}
            }
        };
        let after = self.last.map(|(last, at)| (goes_on(&last, &ask), at + self.spec.gap));
        let at = match after {
            Some((true, at)) if self.visits > 0 => at,
            _ => {
                let at = self.begin + self.visits * self.visit;
                self.visits += 1;
                at.max(after.map_or(0, |(_, at)| at))
            }
        };
        self.last = Some((ask, at));
        record(at, ask.writes, ask.offset, ask.len)
    }
}

#[cfg(test)]
mod tests {
    use larder_core::exec::MILLISECOND;
    use larder_trace::Op;

    use super::super::super::desktop::USERS;
    use super::*;

    fn trace(days: u32, backups: Vec<u32>) -> Vec<Record> {
        let spec = Spec { user: USERS[2], days, backups, gap: MILLISECOND };
        DesktopTrace::new(spec, 1).collect()
    }

    #[test]
    fn days_are_those_of_the_desktop_at_their_times() {
        let records = trace(2, Vec::new());
        let mut desktop = Desktop::new(&USERS[2], SCALE, 1);
        let days = [desktop.day(0), desktop.day(1)];
        assert_eq!(records.len(), days[0].len() + days[1].len());
        for (record, ask) in records.iter().zip(days.iter().flatten()) {
            assert_eq!((record.offset_bytes, u64::from(record.len_bytes)), (ask.offset, ask.len));
            assert_eq!(record.op == Op::Write, ask.writes);
        }
        assert!(records.is_sorted_by_key(|r| r.ts_us));
        let day_us = day_span() / 1000;
        let first = records.partition_point(|r| r.ts_us < day_us);
        assert_eq!(first, days[0].len());
        // Half of the requests in half of the day, and all of it used.
        let half = records.partition_point(|r| r.ts_us < day_us / 2);
        assert!((half as f64 / first as f64 - 0.5).abs() < 0.03, "{half} {first}");
        assert!(records[first - 1].ts_us > day_us * 99 / 100);
    }

    #[test]
    fn a_backup_comes_when_its_day_is_over_and_at_its_own_pace() {
        let records = trace(2, vec![0]);
        let mut desktop = Desktop::new(&USERS[2], SCALE, 1);
        let (day, backup) = (desktop.day(0).len(), desktop.backup(0).len());
        let taken = &records[day..day + backup];
        assert!(
            taken[0].ts_us >= day_span() / 1000 && taken.iter().all(|r| r.len_bytes == 64 << 10)
        );
        assert!(taken.windows(2).all(|pair| pair[1].ts_us - pair[0].ts_us == 1_000));
        assert!(records[day + backup].ts_us > taken[backup - 1].ts_us);
        assert!(records.is_sorted_by_key(|r| r.ts_us));
    }
}
