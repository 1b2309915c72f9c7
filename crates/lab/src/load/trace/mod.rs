// SPDX-License-Identifier: MIT OR Apache-2.0
//! Loads as traces: generators that need no [`World`](larder_sim::world::World), for `larder trace gen`.
//!
//! Each is an iterator of [`Record`]s. Invariants: equal specs and seeds give equal records on
//! every machine (mathematics is that of [`super::maths`]); times never go back; memory depends on
//! the spec and not on how many records are taken, except for the orders of [`tpcc`] that wait for
//! their delivery: TPC-C places more than it delivers, 20 bytes' worth in a hundred transactions.
//!
//! Why times at all, where no device answers: they show which requests belong together and which were
//! in flight at once. A trace has no devices, so how long an answer takes is part of the spec
//! ([`Pace::service`]); who replays a trace on a slower device than that asks for more than its
//! clients would have.

pub mod desktop;
pub mod holland;
pub mod log;
pub mod moving;
pub mod named;
pub mod oltp;
pub mod plain;
pub mod scan;
pub mod tpcc;

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use larder_core::exec::{Nanos, SECOND};
use larder_model::SplitMix64;
use larder_trace::{Op, Record};

use super::around;
use super::maths::ln;

/// When transactions come, and how fast they continue.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pace {
    /// What makes transactions begin.
    pub begin: Begin,
    /// From a request to its answer, which a client waits for before it asks for more.
    pub service: Nanos,
}

/// What makes transactions begin.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Begin {
    /// So many clients; each thinks, for half to one and a half times the mean, between its
    /// transactions.
    Clients {
        /// How many.
        count: u32,
        /// Mean time from one transaction's end to the next one's begin.
        think: Nanos,
    },
    /// So many transactions a second, however many are in flight: gaps are exponential.
    Rate(f64),
}

/// Whose turn it is, and when.
struct Turns {
    pace: Pace,
    random: SplitMix64,
    /// Which client continues next, and when; the number makes the order of equal times definite.
    due: BinaryHeap<Reverse<(Nanos, u64)>>,
    /// With a rate: the next transaction's begin and number.
    arrival: (Nanos, u64),
}

impl Turns {
    fn new(pace: Pace, seed: u64) -> Self {
        // Another sequence than the one that the load draws from.
        let mut random = SplitMix64::new(SplitMix64::new(!seed).next_u64());
        let mut due = BinaryHeap::new();
        let mut arrival = (Nanos::MAX, 0);
        match pace.begin {
            Begin::Clients { count, think } => {
                let first = |client| Reverse((around(&mut random, think), client));
                due.extend((0..u64::from(count)).map(first));
            }
            Begin::Rate(rate) => arrival.0 = exponential(&mut random, rate),
        }
        Self { pace, random, due, arrival }
    }

    /// When the next turn is.
    fn next_at(&self) -> Nanos {
        let due = self.due.peek().map_or(Nanos::MAX, |Reverse((at, _))| *at);
        due.min(self.arrival.0)
    }

    /// The next turn: when and whose. A client that is not known yet begins a transaction.
    fn take(&mut self) -> (Nanos, u64) {
        let now = self.next_at();
        if let Some(Reverse((at, who))) = self.due.peek().copied()
            && at == now
        {
            self.due.pop();
            return (at, who);
        }
        let (at, who) = self.arrival;
        if let Begin::Rate(rate) = self.pace.begin {
            self.arrival = (at + exponential(&mut self.random, rate), who + 1);
        }
        (at, who)
    }

    /// It sent a request and continues when that is answered.
    fn asked(&mut self, now: Nanos, who: u64) {
        self.due.push(Reverse((now + self.pace.service, who)));
    }

    /// Its transaction is over.
    fn ended(&mut self, now: Nanos, who: u64) {
        if let Begin::Clients { think, .. } = self.pace.begin {
            self.due.push(Reverse((now + around(&mut self.random, think), who)));
        }
    }
}

/// A gap between events that come `rate` times a second.
fn exponential(random: &mut SplitMix64, rate: f64) -> Nanos {
    let uniform = ((random.next_u64() >> 11) + 1) as f64 / (1_u64 << 53) as f64;
    (-ln(uniform) / rate * SECOND as f64) as Nanos
}

/// A request of device 0; nothing where a trace cannot say it, behind its 16 TiB.
fn record(at: Nanos, writes: bool, offset: u64, len: u64) -> Option<Record> {
    let op = if writes { Op::Write } else { Op::Read };
    Record::new(at / 1000, 0, op, offset, len).ok()
}

#[cfg(test)]
mod tests {
    use larder_core::exec::MILLISECOND;

    use super::*;

    /// Transactions of three requests, until some time; when each began.
    fn begins(begin: Begin, until: Nanos) -> Vec<Nanos> {
        let mut turns = Turns::new(Pace { begin, service: MILLISECOND }, 7);
        let mut left = std::collections::HashMap::new();
        let mut begins = Vec::new();
        let mut last = 0;
        loop {
            let (now, who) = turns.take();
            assert!(now >= last);
            last = now;
            if now > until {
                return begins;
            }
            let left = left.entry(who).or_insert_with(|| {
                begins.push(now);
                3
            });
            *left -= 1;
            if *left > 0 {
                turns.asked(now, who);
            } else {
                *left = 3;
                turns.ended(now, who);
            }
        }
    }

    #[test]
    fn a_rate_is_kept_and_gaps_are_exponential() {
        let begins = begins(Begin::Rate(100.0), 100 * SECOND);
        assert!((9_500..10_500).contains(&begins.len()), "{}", begins.len());
        let gaps: Vec<_> = begins.windows(2).map(|w| w[1] - w[0]).collect();
        let longer = gaps.iter().filter(|gap| **gap > 10 * MILLISECOND).count();
        // 1 / e of them are longer than the mean.
        assert!((longer as f64 / gaps.len() as f64 - 0.368).abs() < 0.02, "{longer}");
    }

    #[test]
    fn clients_wait_for_answers_and_think() {
        let mut turns = Turns::new(
            Pace {
                begin: Begin::Clients { count: 1, think: 8 * MILLISECOND },
                service: MILLISECOND,
            },
            7,
        );
        let (mut now, mut who) = turns.take();
        let begin = now;
        for _ in 0..1_000 {
            turns.asked(now, who);
            (now, who) = turns.take();
            turns.ended(now, who);
            (now, who) = turns.take();
        }
        let mean = (now - begin) / 1_000;
        assert!((8_800_000..9_200_000).contains(&mean), "{mean}");
    }
}
