// SPDX-License-Identifier: MIT OR Apache-2.0
//! Several volumes over one flash: one cache, or a part of the flash for each.
//!
//! Purpose: whether volumes gain by sharing, and what a least share costs. Volumes that take turns have clients one after the
//! other; those of the others rest.
//!
//! Invariants: a volume has the same clients, origin and turns however the flash is shared. A volume counts from its second
//! turn on, since the cache is cold in the first. Without turns an hour counts as a turn of all volumes.
//!
//! Why not a world with a list of setups everywhere: benches and traces have one volume, and a setup alone is that.

mod figures;
mod settings;
#[cfg(test)]
mod tests;

use anyhow::Result;
use larder_core::desk::Requests;
use larder_core::stats::Counters;
use larder_core::volumes::Share;
use serde_json::Value as Json;

pub use self::settings::{Sharing, VolumeSettings};
use super::Setup;
use super::run::shared_world;
use crate::latencies::Latencies;
use crate::load::Oltp;
use crate::load::clients::{Clients, Place, Seen, What, run_together};

/// Volumes, and how they share.
pub struct Arrangement {
    parts: Vec<Volume>,
    apart: bool,
    takes_turns: bool,
    turn_samples: u64,
}

/// One of them.
struct Volume {
    setup: Setup,
    share: Share,
}

/// What the clients of a volume saw.
#[derive(Default)]
struct Tally {
    /// In each of its turns.
    turns: Vec<Turn>,
    /// From the second turn on.
    read_ns: Latencies,
}

/// What the clients of a volume saw in one of its turns.
#[derive(Clone, Copy, Default)]
struct Turn {
    samples: u64,
    reads: u64,
    read_hits: u64,
    writes: u64,
    transactions: u64,
}

/// What a world did, for all its volumes.
#[derive(Default)]
struct Totals {
    requests: Requests,
    counters: Counters,
}

/// Runs a point.
///
/// # Errors
/// If there is no such device profile.
pub(super) fn point(arrangement: &Arrangement) -> Result<Json> {
    let numbers: Vec<usize> = (0..arrangement.parts.len()).collect();
    let worlds = numbers.chunks(if arrangement.apart { 1 } else { numbers.len() });
    let mut totals = Totals::default();
    let mut tallies = Vec::new();
    for numbers in worlds {
        let found = run(arrangement, numbers, &mut totals)?;
        tallies.extend(found);
    }
    Ok(figures::json(arrangement, &tallies, &totals))
}

/// Runs some of the volumes in one world.
fn run(of: &Arrangement, numbers: &[usize], totals: &mut Totals) -> Result<Vec<Tally>> {
    let parts: Vec<&Volume> = numbers.iter().map(|number| &of.parts[*number]).collect();
    let pairs: Vec<(&Setup, Share)> = parts.iter().map(|part| (&part.setup, part.share)).collect();
    let mut world = shared_world(&pairs)?;
    let starts: Vec<u64> = world.volumes().ranges().map(|range| range.start).collect();
    let clients = |(index, (setup, _)): (usize, &(&Setup, Share))| {
        let bytes = (setup.data_bytes, setup.active_bytes);
        let load = Oltp::image(setup.pattern, bytes, setup.page_bytes, setup.seed);
        let place = Place { start: starts[index], first_id: (index as u64) << 32 };
        Clients::resting(setup.plan.clone(), load, place)
    };
    let mut clients: Vec<Clients> = pairs.iter().enumerate().map(clients).collect();
    let mut tallies: Vec<Tally> = numbers.iter().map(|_| Tally::default()).collect();
    let (sample, span) = (pairs[0].0.sample, pairs[0].0.span);
    for done in 0..span / sample {
        let (turn, begins) = (done / of.turn_samples, done % of.turn_samples == 0);
        for ((number, clients), tally) in numbers.iter().zip(&mut clients).zip(&mut tallies) {
            let active = of.is_active(*number, turn);
            if begins && active {
                tally.turns.push(Turn::default());
                clients.wake(world.now());
            } else if begins {
                clients.rest();
            }
            if let Some(turn) = tally.turns.last_mut().filter(|_| active) {
                turn.samples += 1;
            }
        }
        let until = (done + 1) * sample;
        run_together(&mut clients, &mut world, until, |index, seen| tallies[index].add(seen));
    }
    totals.requests += world.requests();
    totals.counters += world.counters();
    Ok(tallies)
}

impl Arrangement {
    /// Whether a volume has a turn.
    fn is_active(&self, number: usize, turn: u64) -> bool {
        !self.takes_turns || turn % self.parts.len() as u64 == number as u64
    }
}

impl Tally {
    /// One more thing ended. What ends while the volume rests belongs to the turn in which it began.
    fn add(&mut self, seen: Seen) {
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
    fn counted(&self) -> Turn {
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
    fn hit_ratio(&self) -> f64 {
        self.read_hits as f64 / self.reads.max(1) as f64
    }
}
