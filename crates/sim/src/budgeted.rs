// SPDX-License-Identifier: MIT OR Apache-2.0
//! A day under a budget of flash writes, in virtual time.
//!
//! The load: a request every second, some of them writes, over 4096 units under 1024 slots, by a Zipf law with exponent 1 whose ranks move to
//! other units, a fiftieth of them each hour. So a cache has something to admit all day.

use std::ops::Range;

use larder_core::buf::PAGE;
use larder_core::config::{Choices, Limits};
use larder_core::exec::{MILLISECOND, Nanos, SECOND};
use larder_core::request::Kind;
use larder_model::{Jitter, SplitMix64};

use crate::device::SimDevice;
use crate::scenario::choices_of;
use crate::world::{World, lawful};

const UNITS: u64 = 4096;
const SLOTS: u64 = 1024;
const DAY_SECONDS: u64 = 86_400;
/// The hours after which a rank is another unit.
const MOVES: u64 = 50;

/// What a day gave.
#[derive(Clone, Copy, Debug)]
pub struct Day {
    /// Bytes written to flash.
    pub written: u64,
    /// Reads that hit, as a share of all.
    pub hit_ratio: f64,
}

/// The choices of a preset, with units that a small world has many of.
#[must_use]
pub fn small_units(preset: &str) -> Choices {
    let mut choices = choices_of(preset);
    choices.unit_bytes = choices.unit_bytes.min(64 << 10);
    choices
}

/// The second day of the load, of which so many percent write, with so many bytes a day; 0: without a budget. The first day warms the
/// cache.
#[must_use]
pub fn day(choices: &Choices, budget: u64, write_percent: u64, seed: u64) -> Day {
    let bytes = UNITS * choices.unit_bytes;
    let device = |seed, from: Nanos| {
        SimDevice::new(Box::new(Jitter::new(seed, from, 2 * from)), None, seed, 1)
    };
    let limits = Limits::default();
    let mut world = World::new(device(1, MILLISECOND), bytes, &lawful(choices), &limits);
    world.attach(device(2, MILLISECOND / 20), SLOTS, 512);
    let (mut random, law) = (SplitMix64::new(seed), law());
    run(&mut world, choices, ((0..DAY_SECONDS, write_percent), &law), &mut random);
    let (before, written) = (world.requests(), world.counters().flash_write_bytes);
    let limits = Limits { flash_write_budget: budget, ..limits };
    world.shards().iter().for_each(|shard| shard.adjust(&limits));
    run(&mut world, choices, ((DAY_SECONDS..2 * DAY_SECONDS, write_percent), &law), &mut random);
    let after = world.requests();
    let reads = (after.reads - before.reads).max(1);
    Day {
        written: world.counters().flash_write_bytes - written,
        hit_ratio: (after.read_hits - before.read_hits) as f64 / reads as f64,
    }
}

/// The load, for some seconds of its time.
fn run(
    world: &mut World,
    choices: &Choices,
    ((seconds, write_percent), law): ((Range<u64>, u64), &[f64]),
    random: &mut SplitMix64,
) {
    let all = law.last().copied().unwrap_or_default();
    for second in seconds {
        let at = random.below(1 << 52) as f64 / (1_u64 << 52) as f64 * all;
        let rank = law.partition_point(|sum| *sum < at) as u64;
        let moved = (second / 3600 + rank % MOVES) / MOVES;
        let place = SplitMix64::new(rank << 32 | moved).below(UNITS);
        let page = random.below(choices.unit_bytes / PAGE as u64) * PAGE as u64;
        let kind = match random.below(100) < write_percent {
            true => Kind::Write { fua: false },
            false => Kind::Read,
        };
        world.request(second, kind, place * choices.unit_bytes + page, PAGE as u64, &[]);
        let until = (second + 1) * SECOND;
        while world.advance(until) {}
        world.idle_until(until);
        while world.next_finished().is_some() {}
    }
}

/// The sums of the law's weights up to each rank.
fn law() -> Vec<f64> {
    let mut sum = 0.0;
    let weights = (1..=UNITS).map(|rank| {
        sum += 1.0 / rank as f64;
        sum
    });
    weights.collect()
}

/// Rule 17: in a day no more is written than the budget and a twentieth of it.
pub fn a_day_keeps_its_budget() -> Result<(), String> {
    for preset in ["sce", "larder", "flashcache"] {
        let choices = small_units(preset);
        let budget = day(&choices, 0, 10, 1).written / 2;
        let kept = day(&choices, budget, 10, 1).written;
        if kept > budget + budget / 20 {
            return Err(format!("{preset} wrote {kept} bytes in a day of {budget}"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a test

    use super::*;

    #[test]
    fn a_day_keeps_its_budget_and_uses_it() {
        a_day_keeps_its_budget().unwrap();
        for preset in ["sce", "larder", "flashcache"] {
            let choices = small_units(preset);
            let free = day(&choices, 0, 10, 2);
            let half = day(&choices, free.written / 2, 10, 2);
            assert!(half.written > free.written * 4 / 10, "{preset}: {free:?}, {half:?}");
        }
    }
}
