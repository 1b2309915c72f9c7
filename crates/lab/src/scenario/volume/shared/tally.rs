// SPDX-License-Identifier: MIT OR Apache-2.0
//! The volumes of a point, and what their clients saw.

use larder_core::desk::Requests;
use larder_core::stats::Counters;
use larder_core::volumes::Share;

use super::super::Setup;
use crate::latencies::Latencies;
use crate::load::clients::{Seen, What};

/// Volumes, and how they share.
pub struct Arrangement {
    pub(super) parts: Vec<Volume>,
    pub(super) apart: bool,
    pub(super) takes_turns: bool,
    pub(super) turn_samples: u64,
}

/// One of them.
pub(super) struct Volume {
    pub(super) setup: Setup,
    pub(super) share: Share,
}

/// What the clients of a volume saw.
#[derive(Default)]
pub(super) struct Tally {
    /// In each of its turns.
    pub(super) turns: Vec<Turn>,
    /// From the second turn on.
    pub(super) read_ns: Latencies,
}

/// What the clients of a volume saw in one of its turns.
#[derive(Clone, Copy, Default)]
pub(super) struct Turn {
    pub(super) samples: u64,
    pub(super) reads: u64,
    pub(super) read_hits: u64,
    pub(super) writes: u64,
    pub(super) transactions: u64,
}

/// What a world did, for all its volumes.
#[derive(Default)]
pub(super) struct Totals {
    pub(super) requests: Requests,
    pub(super) counters: Counters,
}

impl Arrangement {
    /// Whether a volume has a turn.
    pub(super) fn is_active(&self, number: usize, turn: u64) -> bool {
        !self.takes_turns || turn % self.parts.len() as u64 == number as u64
    }
}

impl Tally {
    /// One more thing ended. What ends while the volume rests belongs to the turn in which it began.
    pub(super) fn add(&mut self, seen: Seen) {
        let counts = self.turns.len() > 1;
        let Some(turn) = self.turns.last_mut() else { return };
        match seen.what {
            What::Read { hit } => {
                turn.reads += 1;
                turn.read_hits += u64::from(hit);
                if counts {
                    self.read_ns.record(seen.took);
                }
            }
            What::Write => turn.writes += 1,
            What::Transaction => turn.transactions += 1,
        }
    }

    /// All turns that count.
    pub(super) fn counted(&self) -> Turn {
        self.turns.iter().skip(1).fold(Turn::default(), |sum, turn| Turn {
            samples: sum.samples + turn.samples,
            reads: sum.reads + turn.reads,
            read_hits: sum.read_hits + turn.read_hits,
            writes: sum.writes + turn.writes,
            transactions: sum.transactions + turn.transactions,
        })
    }
}

impl Turn {
    pub(super) fn hit_ratio(&self) -> f64 {
        self.read_hits as f64 / self.reads.max(1) as f64
    }
}
