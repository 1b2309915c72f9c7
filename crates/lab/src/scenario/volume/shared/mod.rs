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
mod keys;
mod settings;
mod tally;
#[cfg(test)]
mod tests;

use anyhow::Result;
use larder_core::volumes::Share;
use serde_json::Value as Json;

pub use self::keys::{Sharing, VolumeSettings};
pub use self::tally::Arrangement;
use self::tally::{Tally, Totals, Turn, Volume};
use super::Setup;
use super::run::shared_world;
use crate::load::Oltp;
use crate::load::clients::{Clients, Place, run_together};

/// Runs a point.
///
/// # Errors
/// If the choices contradict each other.
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
