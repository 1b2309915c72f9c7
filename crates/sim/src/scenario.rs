// SPDX-License-Identifier: MIT OR Apache-2.0
//! Fixed scenarios in virtual time: what the engine must do that a random load shows badly.

use larder_core::config::{Choices, Limits, WritePolicy, preset};
use larder_core::event::Event;
use larder_core::exec::{MILLISECOND, Nanos, SECOND};
use larder_core::format::LogsPlan;
use larder_core::pagelog::{BATCH_PAGES, LogPolicy};
use larder_core::request::Kind;
use larder_core::shape::Shape;
use larder_model::Jitter;

use crate::device::SimDevice;
use crate::store::Store;
use crate::world::{ORIGIN, World, lawful};

const MICRO: Nanos = 1_000;

/// The choices of a preset, which exists.
#[must_use]
pub fn choices_of(name: &str) -> Choices {
    match preset(name) {
        Some(preset) => preset.choices(),
        None => unreachable!("the table has it"),
    }
}

/// The choices of the preset `sce`.
#[must_use]
pub fn sce() -> Choices {
    choices_of("sce")
}

/// A volume of `units` units under `slots` slots, on devices without bytes that take 1 to 2 ms
/// and 50 to 100 us.
#[must_use]
pub fn plain_world(choices: &Choices, units: u64, slots: u64) -> World {
    let origin = SimDevice::new(Box::new(Jitter::new(1, MILLISECOND, 2 * MILLISECOND)), None, 1, 1);
    let flash = SimDevice::new(Box::new(Jitter::new(2, 50 * MICRO, 100 * MICRO)), None, 2, 1);
    let bytes = units * choices.unit_bytes;
    let mut world = World::new(origin, bytes, &lawful(choices), &Limits::default());
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

/// Rule 7: if the page log of one shard cannot be opened, no other shard loses a write that was answered before the volume
/// stopped using the device.
pub fn an_unusable_log_loses_nothing_of_the_others() -> Result<(), String> {
    let write = WritePolicy::Logged(LogPolicy::Bounded);
    let choices = Choices { write, ..choices_of("face") };
    let shape = Shape::new(2 * choices.unit_bytes, choices.unit_bytes, 2);
    // The second shard's log has no header.
    let mut world = world_of_logs(&choices, shape, (1, false));
    let written = [0xA5; 4096];
    world.request(1, Kind::Write { fua: false }, 0, 4096, &written);
    let failed = |event: &Event| matches!(event, Event::FlashFailed { .. });
    while !world.take_events().iter().any(failed) {
        if !world.advance(SECOND) {
            return Err("a log without a header was opened".into());
        }
    }
    // A volume takes this long to record that the device is out of use.
    world.idle_until(world.now() + 10 * MILLISECOND);
    world.detach();
    world.fence();
    world.request(2, Kind::Read, 0, 4096, &[]);
    world.idle_until(SECOND);
    let mut finished = std::iter::from_fn(|| world.next_finished());
    let read = finished.find(|done| done.client == 2);
    match read.as_ref().map(|done| &done.bufs[..]) {
        Some([bytes]) if bytes[..] == written => Ok(()),
        _ => Err("a write that was answered is lost with the log of its shard".into()),
    }
}

/// A volume over a page log for each shard, of which the first `formatted` have their headers; whether the logs survive a
/// crash.
fn world_of_logs(
    choices: &Choices,
    shape: Shape,
    (formatted, survives_crash): (u32, bool),
) -> World {
    let (at, blocks, batch_pages, volume) = (1 << 20, 1024, BATCH_PAGES, 7);
    let plan = LogsPlan { at, shape, blocks, batch_pages, survives_crash };
    let place = plan.geometry(volume, shape.shards - 1);
    let zero = |bytes| Store::new(bytes, |_, sector| sector.fill(0));
    let mut flash = zero(place.base + place.bytes());
    for (at, header) in (0..formatted).flat_map(|shard| plan.geometry(volume, shard).blank()) {
        flash.write(at, &header, true);
    }
    let device = |store, seed| {
        SimDevice::new(Box::new(Jitter::new(seed, 50 * MICRO, 100 * MICRO)), Some(store), seed, 1)
    };
    let origin = device(zero(shape.origin_bytes), 1);
    let mut world = World::shaped(origin, shape, &lawful(choices), &Limits::default());
    world.attach_logs(device(flash, 2), &plan, volume);
    world
}

/// Rule 3: a trim whose tombstone flash does not take, and which the origin fails, leaves no version of the page: reads get
/// an error, not the origin's bytes from before the trimmed write.
pub fn a_refused_trim_returns_no_older_bytes() -> Result<(), String> {
    let write = WritePolicy::Logged(LogPolicy::Full);
    let choices = Choices { write, ..choices_of("face") };
    let shape = Shape::new(2 * choices.unit_bytes, choices.unit_bytes, 1);
    let mut world = world_of_logs(&choices, shape, (1, true));
    let ask = |world: &mut World, kind, bytes: &[u8]| {
        world.request(1, kind, 0, 4096, bytes);
        loop {
            match world.next_finished() {
                Some(done) => return Ok(done.result),
                None if world.advance(Nanos::MAX) => {}
                None => return Err("a request is never answered".to_owned()),
            }
        }
    };
    let written = ask(&mut world, Kind::Write { fua: false }, &[0xA5; 4096])?;
    written.map_err(|errno| format!("the write failed: {errno}"))?;
    let flash = world.newest();
    world.device(flash).faults.fails_until = Nanos::MAX;
    world.device(ORIGIN).faults.write_errors = 1.0;
    if ask(&mut world, Kind::Trim { fua: false }, &[])?.is_ok() {
        return Err("a trim succeeded that both devices failed".into());
    }
    match ask(&mut world, Kind::Read, &[])? {
        Ok(()) => Err("a read returned the origin's bytes from before a write".into()),
        Err(_) => Ok(()),
    }
}
