// SPDX-License-Identifier: MIT OR Apache-2.0
//! Fixed scenarios in virtual time: what the engine must do that a random load shows badly.

use larder_core::config::{Choices, Limits, preset};
use larder_core::exec::{MILLISECOND, Nanos, SECOND};
use larder_core::request::Kind;
use larder_model::Jitter;

use crate::device::SimDevice;
use crate::world::{World, lawful};

const MICRO: Nanos = 1_000;

/// The choices of the preset `sce`.
#[must_use]
pub fn sce() -> Choices {
    match preset("sce") {
        Some(preset) => preset.choices(),
        None => unreachable!("the table has it"),
    }
}

/// A volume of `units` units under `slots` slots, on devices without bytes that take 1 to 2 ms
/// and 50 to 100 us.
#[must_use]
pub fn plain_world(choices: &Choices, units: u64, slots: u64) -> World {
    let origin = SimDevice::new(Box::new(Jitter::new(1, MILLISECOND, 2 * MILLISECOND)), None, 1, 1);
    let flash = SimDevice::new(Box::new(Jitter::new(2, 50 * MICRO, 100 * MICRO)), None, 2, 1);
    let bytes = units * choices.unit_bytes;
    let mut world = World::new(origin, bytes, 1, &lawful(choices), &Limits::default());
    world.attach(flash, slots, 512);
    world
}

/// Reads 4 KiB of a unit and waits for it.
pub fn read_unit(world: &mut World, choices: &Choices, unit: u64) {
    world.request(unit, Kind::Read, unit * choices.unit_bytes, 4096, &[]);
    while world.next_finished().is_none() && world.advance(Nanos::MAX) {}
}

/// Rule 6: units in steady use are not displaced by a stream of colder ones.
pub fn hot_units_stay() -> Result<(), String> {
    let choices = sce();
    let (units, slots) = (4_000, 200);
    let mut world = plain_world(&choices, units, slots);
    let all_hot = |world: &mut World| {
        let hits = world.requests().read_hits;
        (0..slots).for_each(|unit| read_unit(world, &choices, unit));
        world.requests().read_hits - hits == slots
    };
    while !all_hot(&mut world) {
        if world.now() > 3600 * SECOND {
            return Err("the hot units were never all cached".into());
        }
    }
    let (end, mut cold) = (world.now() + 60 * SECOND, slots);
    while world.now() < end {
        if !all_hot(&mut world) {
            return Err("a unit in steady use was displaced by a colder one".into());
        }
        for _ in 0..100 {
            // Twice, so that each is hot enough to be considered at all.
            (0..2).for_each(|_| read_unit(&mut world, &choices, cold));
            cold = slots + (cold + 1 - slots) % (units - slots);
        }
    }
    Ok(())
}
