// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the clients of a load count.
//!
//! Invariants: a request counts in the measured window, or in a second, when its answer came in
//! it; latencies run from the request's first byte sent to its answer received and are kept in
//! nanoseconds with three digits.

use std::time::Duration;

use larder_lab::latencies::Latencies;

/// The kinds that are counted separately.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Reads.
    Read,
    /// Writes.
    Write,
    /// Flushes, which are no requests of a trace and count for nothing but themselves.
    Flush,
}

/// The counts of a load, or of one of its clients.
#[derive(Clone, Debug)]
pub struct Tally {
    window: std::ops::Range<Duration>,
    /// Latencies of reads in the window.
    pub reads: Latencies,
    /// Latencies of writes in the window.
    pub writes: Latencies,
    /// Latencies of flushes in the window.
    pub flushes: Latencies,
    /// Bytes of reads and writes in the window.
    pub bytes: u64,
    /// Reads and writes answered in each second since the start.
    pub seconds: Vec<u64>,
    /// Pages, or rows of a table, that were read and found right since the start.
    pub verified: u64,
    /// Writes since the start that waited for an overlapping one.
    pub held_writes: u64,
}

impl Tally {
    /// Counts what ends in `window`, a span since the start.
    #[must_use]
    pub fn new(window: std::ops::Range<Duration>) -> Self {
        Self {
            window,
            reads: Latencies::new(),
            writes: Latencies::new(),
            flushes: Latencies::new(),
            bytes: 0,
            seconds: Vec::new(),
            verified: 0,
            held_writes: 0,
        }
    }

    /// A request was answered, so long after the start.
    pub fn add(&mut self, class: Class, bytes: u64, ended: Duration, latency: Duration) {
        if class != Class::Flush {
            let second = ended.as_secs() as usize;
            if self.seconds.len() <= second {
                self.seconds.resize(second + 1, 0);
            }
            self.seconds[second] += 1;
        }
        if !self.window.contains(&ended) {
            return;
        }
        self.bytes += bytes;
        let nanos = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
        match class {
            Class::Read => self.reads.record(nanos),
            Class::Write => self.writes.record(nanos),
            Class::Flush => self.flushes.record(nanos),
        }
    }

    /// Takes another's counts in, of the same window.
    pub fn merge(&mut self, other: &Self) {
        self.reads += &other.reads;
        self.writes += &other.writes;
        self.flushes += &other.flushes;
        self.bytes += other.bytes;
        self.seconds.resize(self.seconds.len().max(other.seconds.len()), 0);
        self.seconds.iter_mut().zip(&other.seconds).for_each(|(sum, n)| *sum += n);
        self.verified += other.verified;
        self.held_writes += other.held_writes;
    }

    /// Latencies of reads and writes in the window.
    #[must_use]
    pub fn all(&self) -> Latencies {
        let mut all = self.reads.clone();
        all += &self.writes;
        all
    }

    /// Reads and writes in the window.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.reads.count() + self.writes.count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn only_what_ends_in_the_window_is_measured_but_every_second_is_counted() {
        let mut tally = Tally::new(SECOND..3 * SECOND);
        for tenth in 0..40 {
            let (ended, latency) = (SECOND / 10 * tenth, Duration::from_micros(u64::from(tenth)));
            tally.add(Class::Read, 4096, ended, latency);
        }
        tally.add(Class::Flush, 0, 2 * SECOND, 5 * SECOND);
        assert_eq!(tally.seconds, [10; 4]);
        assert_eq!((tally.requests(), tally.bytes), (20, 20 * 4096));
        assert!((tally.reads.quantile_us(1.0) - 29.0).abs() < 0.1);
        assert!((tally.flushes.quantile_us(0.5) / 5e6 - 1.0).abs() < 0.01);
    }

    #[test]
    fn counts_of_clients_add_up() {
        let mut sum = Tally::new(Duration::ZERO..SECOND);
        let mut one = Tally::new(Duration::ZERO..SECOND);
        one.add(Class::Write, 10, SECOND / 2, SECOND);
        one.verified = 3;
        let mut two = one.clone();
        two.add(Class::Read, 1, SECOND * 2, SECOND);
        sum.merge(&one);
        sum.merge(&two);
        assert_eq!((sum.requests(), sum.bytes, sum.verified), (2, 20, 6));
        assert_eq!(sum.seconds, [2, 0, 1]);
    }
}
