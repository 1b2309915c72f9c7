// SPDX-License-Identifier: MIT OR Apache-2.0
//! The pace of population: it yields to foreground requests (design rule 6).
//!
//! While clients use the origin, three things bound population:
//! - *depth*: one population read is in flight at most;
//! - *share*: reads that took `t` together earn a rest of `t * (1 / share - 1)`. Rests are saved up
//!   until they are a few visits long, so that client reads meet no population now and then;
//! - *size*: a population read may take at most about twice as long as a client's slow read (mean
//!   and two deviations of the visits). Where visits differ much (disks: a seek may be short or
//!   long) or are dear, reads grow to a whole MiB; where all visits are alike and bytes are dear
//!   (a cloud volume at 125 MB/s), they shrink. A client that queues behind one waits for no more
//!   than some other client did anyway.
//!
//! A visit's time is learned from client reads that met no population on their way. A bound that
//! grew with what clients have in flight, or with how long they wait, would feed itself: slower
//! answers, more in flight, more population, slower answers.
//!
//! While no client uses the origin, every running worker goes on at once, with the largest reads.
//!
//! Why not a fixed rate: what a SAN bears and what a disk bears differ a hundredfold; the time
//! that reads take is the measure that all share, and needs no knowledge of the device.

use std::cell::Cell;

use crate::buf::PAGE;
use crate::config::{FOREGROUND_MEMORY, Limits};
use crate::exec::{Exec, Guard, Nanos, WaitList};

/// Client reads up to this size tell how long a visit takes.
const SMALL_BYTES: u64 = 64 << 10;
/// Population reads are not made smaller than this.
const LEAST_BYTES: u64 = 64 << 10;
/// The first population read: between what disks and what fast volumes end up with.
const FIRST_BYTES: u64 = 256 << 10;
/// A slow visit is so many deviations above the mean.
const SLOW: f64 = 2.0;
/// A read that takes longer than this many visits is too large ...
const TOO_LONG: f64 = 2.0;
/// ... and one that takes less than this many could be larger.
const SHORT: f64 = 1.4;
/// A rest is saved up until it is this many visits long.
const REST_VISITS: f64 = 4.0;
/// Weight of the newest value in the averages.
const NEWEST: f64 = 0.125;

/// Why an operation on the origin happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    /// A client waits for it.
    Client,
    /// It brings data for the cache.
    Population,
    /// It brings dirty data from flash.
    WriteBack,
    /// Anything else; not counted by the pace.
    Unpaced,
}

/// The pace, see the module.
pub(crate) struct Pace {
    share: f64,
    most_bytes: u64,
    foreground: Cell<u32>,
    foreground_ended: Cell<Option<Nanos>>,
    /// Average time of small client reads, and of population reads of the present size.
    visit_ns: Cell<f64>,
    visit_square: Cell<f64>,
    step_ns: Cell<f64>,
    step_bytes: Cell<u64>,
    steps: Cell<u32>,
    /// Rest that steps have earned and population has not taken.
    rest_owed: Cell<f64>,
    /// When the last step ended, and when the next may begin.
    step_ended: Cell<Nanos>,
    rest_until: Cell<Nanos>,
    waiting: WaitList,
}

fn average(cell: &Cell<f64>, value: f64) {
    let old = cell.get();
    cell.set(if old == 0.0 { value } else { old + NEWEST * (value - old) });
}

impl Pace {
    pub(crate) fn new(limits: &Limits) -> Self {
        let most_bytes = limits.population_io_bytes.max(PAGE as u64);
        Self {
            share: limits.population_share.clamp(0.001, 1.0),
            most_bytes,
            foreground: Cell::new(0),
            foreground_ended: Cell::new(None),
            visit_ns: Cell::new(0.0),
            visit_square: Cell::new(0.0),
            step_ns: Cell::new(0.0),
            step_bytes: Cell::new(FIRST_BYTES.min(most_bytes)),
            steps: Cell::new(0),
            rest_owed: Cell::new(0.0),
            step_ended: Cell::new(0),
            rest_until: Cell::new(0),
            waiting: WaitList::default(),
        }
    }

    /// An operation on the origin begins.
    pub(crate) fn began(&self, why: Use) {
        if why == Use::Client {
            self.foreground.set(self.foreground.get() + 1);
        }
    }

    /// It ended; `read`: bytes that it read.
    pub(crate) fn ended(&self, why: Use, read: Option<u64>, took: Nanos, now: Nanos) {
        match why {
            Use::Client => {
                self.foreground.set(self.foreground.get() - 1);
                self.foreground_ended.set(Some(now));
                if let Some(bytes) = read {
                    self.visited(bytes, took, now);
                }
            }
            Use::Population => self.stepped(read.unwrap_or(0), took, now),
            Use::WriteBack | Use::Unpaced => {}
        }
    }

    /// A client's read of the origin took so long.
    fn visited(&self, bytes: u64, took: Nanos, now: Nanos) {
        let alone = self.steps.get() == 0 && self.step_ended.get() + took <= now;
        if bytes <= SMALL_BYTES && alone {
            average(&self.visit_ns, took as f64);
            average(&self.visit_square, (took as f64).powi(2));
        }
    }

    /// How long a slow visit takes; 0 when no visit was seen.
    fn slow_visit_ns(&self) -> f64 {
        let mean = self.visit_ns.get();
        let variance = (self.visit_square.get() - mean * mean).max(0.0);
        mean + SLOW * variance.sqrt()
    }

    fn busy(&self, now: Nanos) -> bool {
        let recent = |at: Nanos| now.saturating_sub(at) < FOREGROUND_MEMORY;
        self.foreground.get() > 0 || self.foreground_ended.get().is_some_and(recent)
    }

    /// How large the next population read may be.
    pub(crate) fn step_bytes(&self, now: Nanos) -> u64 {
        if self.busy(now) { self.step_bytes.get() } else { self.most_bytes }
    }

    /// Waits until a population read may begin.
    pub(crate) async fn begin_step<G: Guard>(&self, exec: &Exec<G>) {
        while self.busy(exec.now()) {
            let rest = self.rest_until.get().saturating_sub(exec.now());
            if self.steps.get() > 0 {
                self.waiting.wait(exec).await;
            } else if rest > 0 {
                exec.sleep(rest).await;
            } else {
                break;
            }
        }
        self.steps.set(self.steps.get() + 1);
    }

    /// The population read of a step ended: learns from the time it took.
    fn stepped(&self, bytes: u64, took: Nanos, now: Nanos) {
        let (size, visit) = (self.step_bytes.get(), self.slow_visit_ns());
        if bytes != size || visit == 0.0 || !self.busy(now) {
            return;
        }
        average(&self.step_ns, took as f64);
        let visits = self.step_ns.get() / visit;
        let next = if visits > TOO_LONG {
            (size / 2).max(LEAST_BYTES.min(self.most_bytes))
        } else if visits < SHORT {
            (size * 2).min(self.most_bytes)
        } else {
            size
        };
        if next != size {
            self.step_bytes.set(next);
            self.step_ns.set(0.0);
        }
    }

    /// A step that began at `began` is over, its flash writes included.
    pub(crate) fn end_step<G: Guard>(&self, exec: &Exec<G>, began: Nanos) {
        let now = exec.now();
        self.steps.set(self.steps.get() - 1);
        self.step_ended.set(now);
        let took = (now - began) as f64;
        let owed = self.rest_owed.get() + took * (1.0 / self.share - 1.0);
        let visit = if self.visit_ns.get() > 0.0 { self.visit_ns.get() } else { took };
        let rests = owed >= REST_VISITS * visit;
        self.rest_owed.set(if rests { 0.0 } else { owed });
        if rests {
            self.rest_until.set(now + owed as Nanos);
        }
        while self.waiting.wake_one(exec) && !self.busy(now) {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exec::MILLISECOND;

    /// Where the size settles when a visit costs `visit` and a byte `byte` nanoseconds.
    fn settled(visit_ms: u64, byte_ns: f64) -> u64 {
        let limits = Limits { population_io_bytes: 1 << 20, ..Limits::default() };
        let pace = Pace::new(&limits);
        pace.began(Use::Client);
        let visit = visit_ms * MILLISECOND;
        for _ in 0..200 {
            pace.visited(4096, visit, visit);
            let size = pace.step_bytes(0);
            pace.stepped(size, visit + (size as f64 * byte_ns) as u64, 0);
        }
        pace.step_bytes(0)
    }

    #[test]
    fn reads_grow_where_visits_are_dear_and_shrink_where_bytes_are() {
        assert_eq!(settled(12, 6.0), 1 << 20, "a disk");
        assert_eq!(settled(2, 8.0), 128 << 10, "a cloud volume: 1 ms for 128 KiB");
        assert_eq!(settled(1, 20.0), 64 << 10, "a thin wire");
    }

    #[test]
    fn without_clients_reads_are_as_large_as_may_be() {
        let pace = Pace::new(&Limits::default());
        assert_eq!(pace.step_bytes(0), Limits::default().population_io_bytes);
    }
}
