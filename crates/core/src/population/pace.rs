// SPDX-License-Identifier: MIT OR Apache-2.0
//! The pace of population: it yields to foreground requests (design rule 6).
//!
//! While clients use the origin, three things bound population:
//! - *depth*: one population read is in flight at most;
//! - *share*: population reads of total duration `t` are followed by rests of `t * (1 / share - 1)`. Rests accumulate
//!   until they are a few client reads long, so that some client reads run without population;
//! - *size*: a population read takes at most about twice as long as a slow client read (mean plus two standard
//!   deviations). If client reads vary (disks: short and long seeks) or are slow, population reads grow to 1 MiB. If
//!   client reads are alike and bandwidth is scarce (a cloud volume at 125 MB/s), population reads shrink. A client that
//!   queues behind one thus waits no longer than behind other clients.
//!
//! The duration of a client read is measured while no population is in flight. A bound that grew with the clients' queue
//! or latency would be a feedback loop: slower answers, longer queues, more population, slower answers.
//!
//! While no client uses the origin, every running worker continues at once, with the largest reads.
//!
//! Why not a fixed rate: the bandwidths of a SAN and of a disk differ a hundredfold. The duration of reads is a measure
//! that needs no knowledge of the device.

use std::cell::Cell;

use crate::buf::PAGE;
use crate::config::{FOREGROUND_MEMORY, Limits};
use crate::exec::{Exec, Guard, Nanos, WaitList};

/// Client reads up to this size are measured.
const SMALL_BYTES: u64 = 64 << 10;
/// The smallest population read.
const LEAST_BYTES: u64 = 64 << 10;
/// The first population read: between the final sizes on disks and on fast volumes.
const FIRST_BYTES: u64 = 256 << 10;
/// A slow client read lasts this many standard deviations longer than the mean.
const SLOW: f64 = 2.0;
/// A population read that lasts longer than this many slow client reads is too large ...
const TOO_LONG: f64 = 2.0;
/// ... and one that lasts less than this many may grow.
const SHORT: f64 = 1.4;
/// A rest begins when it is this many client reads long.
const REST_VISITS: f64 = 4.0;
/// Weight of the newest value in the averages.
const NEWEST: f64 = 0.125;

/// The purpose of an operation on the origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    /// A client waits for it.
    Client,
    /// Reads data for the cache.
    Population,
    /// Writes dirty data of flash to the origin.
    WriteBack,
    /// A trim, a zeroing, a flush, or any operation of a page log. The pace ignores it. A trim, a zeroing and a flush take as
    /// long as their range and the device's caches make them, which is no measure of a read. A page log has no population.
    Unpaced,
}

/// The pace of population from one origin, for one shard. A *visit* is a small client read of the origin.
pub(crate) struct Pace {
    share: Cell<f64>,
    most_bytes: Cell<u64>,
    foreground: Cell<u32>,
    foreground_ended: Cell<Option<Nanos>>,
    /// Average time of visits, of its square, and of population reads of the current size.
    visit_ns: Cell<f64>,
    visit_square: Cell<f64>,
    step_ns: Cell<f64>,
    step_bytes: Cell<u64>,
    steps: Cell<u32>,
    /// Rest due for the steps since the last rest, in nanoseconds.
    rest_owed: Cell<f64>,
    /// When the last step ended, and when the next may begin.
    step_ended: Cell<Nanos>,
    rest_until: Cell<Nanos>,
    waiting: WaitList,
}

fn share_of(limits: &Limits) -> f64 {
    limits.population_share.clamp(0.001, 1.0)
}

fn average(cell: &Cell<f64>, value: f64) {
    let old = cell.get();
    cell.set(if old == 0.0 { value } else { old + NEWEST * (value - old) });
}

impl Pace {
    pub(crate) fn new(limits: &Limits) -> Self {
        let most_bytes = limits.population_io_bytes.max(PAGE as u64);
        Self {
            share: Cell::new(share_of(limits)),
            most_bytes: Cell::new(most_bytes),
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

    /// The share and the largest read change.
    pub(crate) fn adjust(&self, limits: &Limits) {
        if self.share.replace(share_of(limits)) != share_of(limits) {
            // What the other share owed.
            self.rest_owed.set(0.0);
            self.rest_until.set(0);
        }
        self.most_bytes.set(limits.population_io_bytes.max(PAGE as u64));
        if self.step_bytes.get() > self.most_bytes.get() {
            self.step_bytes.set(self.most_bytes.get());
            self.step_ns.set(0.0);
        }
    }

    /// An operation on the origin begins.
    pub(crate) fn began(&self, why: Use) {
        if why == Use::Client {
            self.foreground.set(self.foreground.get() + 1);
        }
    }

    /// An operation on the origin ended. `read`: its bytes, if it is a read.
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

    /// Learns from the time that a client read took.
    fn visited(&self, bytes: u64, took: Nanos, now: Nanos) {
        let alone = self.steps.get() == 0 && self.step_ended.get() + took <= now;
        if bytes <= SMALL_BYTES && alone {
            average(&self.visit_ns, took as f64);
            average(&self.visit_square, (took as f64).powi(2));
        }
    }

    /// How long a slow visit takes; 0 before the first visit.
    fn slow_visit_ns(&self) -> f64 {
        let mean = self.visit_ns.get();
        let variance = (self.visit_square.get() - mean * mean).max(0.0);
        mean + SLOW * variance.sqrt()
    }

    fn busy(&self, now: Nanos) -> bool {
        let recent = |at: Nanos| now.saturating_sub(at) < FOREGROUND_MEMORY;
        self.foreground.get() > 0 || self.foreground_ended.get().is_some_and(recent)
    }

    /// Bytes of the next population read.
    pub(crate) fn step_bytes(&self, now: Nanos) -> u64 {
        if self.busy(now) { self.step_bytes.get() } else { self.most_bytes.get() }
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

    /// Learns from the time that a population read took.
    fn stepped(&self, bytes: u64, took: Nanos, now: Nanos) {
        let (size, visit) = (self.step_bytes.get(), self.slow_visit_ns());
        if bytes != size || visit == 0.0 || !self.busy(now) {
            return;
        }
        average(&self.step_ns, took as f64);
        let visits = self.step_ns.get() / visit;
        let next = if visits > TOO_LONG {
            (size / 2).max(LEAST_BYTES.min(self.most_bytes.get()))
        } else if visits < SHORT {
            (size * 2).min(self.most_bytes.get())
        } else {
            size
        };
        if next != size {
            self.step_bytes.set(next);
            self.step_ns.set(0.0);
        }
    }

    /// How many client reads take as long as the population of so many bytes; `None` before the first client read.
    pub(crate) fn visits_of(&self, bytes: u64) -> Option<f64> {
        let visit = self.visit_ns.get();
        let step = if self.step_ns.get() > 0.0 { self.step_ns.get() } else { SHORT * visit };
        (visit > 0.0).then(|| step / visit * bytes as f64 / self.step_bytes.get() as f64)
    }

    /// Ends the step that began at `began`, after its flash writes. `share`: what population may take of the origin, if
    /// that is not the usual share.
    pub(crate) fn end_step<G: Guard>(&self, exec: &Exec<G>, began: Nanos, share: Option<f64>) {
        let now = exec.now();
        self.steps.set(self.steps.get() - 1);
        self.step_ended.set(now);
        let took = (now - began) as f64;
        let owed = self.rest_owed.get() + took * (1.0 / share.unwrap_or(self.share.get()) - 1.0);
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

    /// The final size of population reads if a visit takes `visit_ms` and a byte takes `byte_ns` more.
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
    fn reads_grow_if_visits_are_slow_and_shrink_if_bandwidth_is_low() {
        assert_eq!(settled(12, 6.0), 1 << 20, "a disk");
        assert_eq!(settled(2, 8.0), 128 << 10, "a cloud volume: 1 ms for 128 KiB");
        assert_eq!(settled(1, 20.0), 64 << 10, "a slow network");
    }

    #[test]
    fn without_clients_reads_have_the_largest_size() {
        let pace = Pace::new(&Limits::default());
        assert_eq!(pace.step_bytes(0), Limits::default().population_io_bytes);
    }
}
