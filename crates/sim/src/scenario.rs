// SPDX-License-Identifier: MIT OR Apache-2.0
//! Fixed scenarios in virtual time: what the engine must do that a random load shows badly.

use larder_core::buf::Buf;
use larder_core::config::{Choices, Limits, WritePolicy, preset};
use larder_core::event::Event;
use larder_core::exec::{DevId, MILLISECOND, Nanos, SECOND};
use larder_core::format::LogsPlan;
use larder_core::pagelog::{BATCH_PAGES, LogPolicy};
use larder_core::request::{Errno, Kind};
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
    let plan = plan_of_logs(shape, survives_crash);
    let place = plan.geometry(VOLUME, shape.shards - 1);
    let zero = |bytes| Store::new(bytes, |_, sector| sector.fill(0));
    let mut flash = zero(place.base + place.bytes());
    for (at, header) in (0..formatted).flat_map(|shard| plan.geometry(VOLUME, shard).blank()) {
        flash.write(at, &header, true);
    }
    world_over_logs(choices, &plan, zero(shape.origin_bytes), flash)
}

/// The id of a volume over page logs.
const VOLUME: u64 = 7;

fn plan_of_logs(shape: Shape, survives_crash: bool) -> LogsPlan {
    LogsPlan {
        at: 1 << 20,
        shape,
        formatted_for: shape.origin_bytes,
        blocks: 1024,
        batch_pages: BATCH_PAGES,
        survives_crash,
    }
}

fn world_over_logs(choices: &Choices, plan: &LogsPlan, origin: Store, flash: Store) -> World {
    let device = |store, seed| {
        SimDevice::new(Box::new(Jitter::new(seed, 50 * MICRO, 100 * MICRO)), Some(store), seed, 1)
    };
    let origin = device(origin, 1);
    let mut world = World::shaped(origin, plan.shape, &lawful(choices), &Limits::default());
    world.attach_logs(device(flash, 2), plan, VOLUME);
    world
}

/// A volume of 4 MiB over one page log that survives a crash.
fn one_log() -> (Choices, LogsPlan, World) {
    let write = WritePolicy::Logged(LogPolicy::Full);
    let choices = Choices { write, ..choices_of("face") };
    let shape = Shape::new(4 << 20, choices.unit_bytes, 1);
    let world = world_of_logs(&choices, shape, (1, true));
    (choices, plan_of_logs(shape, true), world)
}

/// Waits for the answer to a request, and records what recovery ignores. Returns the result and what was read.
fn answer(world: &mut World, client: u64) -> Result<(Result<(), Errno>, Vec<Buf>), String> {
    loop {
        let moved = world.advance(Nanos::MAX);
        let recorded = record_ignores(world).is_some();
        match world.next_finished() {
            Some(done) if done.client == client => return Ok((done.result, done.bufs)),
            None if !moved && !recorded => return Err("a request is never answered".to_owned()),
            _ => {}
        }
    }
}

/// Records which pages recovery ignores, if that changes; returns whether there are any.
fn record_ignores(world: &mut World) -> Option<bool> {
    let mut any = None;
    while let Some((shard, _, pages)) = world.take_ignores() {
        any = Some(!pages.is_empty());
        world.shards()[shard].ignores_recorded(Ok(()));
        world.settle();
    }
    any
}

/// Rule L8: a page whose only copy flash lost is an error to its readers until it is written, also while the log begins
/// again, and with more lost pages than fit between two segments.
pub fn a_log_that_begins_again_keeps_what_is_lost() -> Result<(), String> {
    const PAGES: u64 = 192;
    let (_, _, mut world) = one_log();
    let flash = world.newest();
    world.idle_until(SECOND);
    let faults = &mut world.device(flash).faults;
    (faults.flush_errors, faults.flush_loses) = (1.0, true);
    for page in 0..PAGES {
        world.request(page, Kind::Write { fua: false }, page * 4096, 4096, &[0xA5; 4096]);
        answer(&mut world, page)?.0.map_err(|errno| format!("a write failed: {errno}"))?;
    }
    // Longer than the log retries.
    world.idle_until(world.now() + 2 * Limits::default().flash_dead_after);
    world.request(PAGES, Kind::Write { fua: false }, PAGES * 4096, 4096, &[0xA5; 4096]);
    answer(&mut world, PAGES)?.0.map_err(|errno| format!("a bypassing write failed: {errno}"))?;
    world.device(flash).faults.flush_errors = 0.0;
    let (mut errors, mut page, mut returned) = (0, 0, None);
    while returned.is_none_or(|at| page < at + PAGES) {
        if page > 1_000_000 {
            return Err("a log whose flash works again does not return".to_owned());
        }
        world.request(page, Kind::Read, page % PAGES * 4096, 4096, &[]);
        let done = loop {
            world.advance(Nanos::MAX);
            if record_ignores(&mut world) == Some(false) {
                returned = Some(page);
            }
            if let Some(done) = world.next_finished() {
                break done;
            }
        };
        match (done.result, &done.bufs[..]) {
            (Ok(()), [bytes]) if bytes[..] == [0xA5; 4096] => {}
            (Ok(()), _) => return Err("a read returned bytes from before a write".to_owned()),
            (Err(_), _) => errors += 1,
        }
        page += 1;
    }
    if errors == 0 { Err("no page is lost".to_owned()) } else { Ok(()) }
}

/// Writes the first page, and waits.
fn write_page(world: &mut World, byte: u8, fua: bool) -> Result<(), String> {
    world.request(1, Kind::Write { fua }, 0, 4096, &[byte; 4096]);
    answer(world, 1)?.0.map_err(|errno| format!("a write failed: {errno}"))
}

/// Cuts the power at once, and starts again on what was durable.
fn after_a_cut(
    (choices, plan): (&Choices, &LogsPlan),
    world: &mut World,
    flash: DevId,
) -> Result<World, String> {
    let [origin, flash] = [ORIGIN, flash].map(|dev| {
        let store = world.take_store(dev)?;
        let image = store.cut(|_, _| false);
        Some(store.after(&image))
    });
    let (Some(origin), Some(flash)) = (origin, flash) else { return Err("no bytes".to_owned()) };
    Ok(world_over_logs(choices, plan, origin, flash))
}

/// Rule L11: a write with FUA is not acknowledged if flash lost it before it was durable.
pub fn a_fua_write_is_durable_or_fails() -> Result<(), String> {
    let (choices, plan, mut world) = one_log();
    let flash = world.newest();
    write_page(&mut world, 1, true)?;
    let faults = &mut world.device(flash).faults;
    (faults.flush_errors, faults.flush_loses) = (1.0, true);
    world.request(3, Kind::Write { fua: true }, 0, 4096, &[2; 4096]);
    // The batch is written, and a flush has failed.
    world.idle_until(world.now() + MILLISECOND);
    world.device(flash).faults.flush_errors = 0.0;
    if answer(&mut world, 3)?.0.is_err() {
        return write_page(&mut world, 3, true);
    }
    let mut world = after_a_cut((&choices, &plan), &mut world, flash)?;
    world.request(5, Kind::Read, 0, 4096, &[]);
    match answer(&mut world, 5)? {
        (Ok(()), bufs) if bufs.first().is_some_and(|bytes| bytes[0] == 2) => Ok(()),
        _ => Err("after a crash a write is lost that FUA covered".to_owned()),
    }
}

/// Rule L11: a FLUSH is not acknowledged if flash lost a write that it covers and the newer version is not durable.
pub fn a_flush_does_not_count_on_a_replacement() -> Result<(), String> {
    let (choices, plan, mut world) = one_log();
    let flash = world.newest();
    write_page(&mut world, 1, false)?;
    world.request(2, Kind::Flush, 0, 0, &[]);
    answer(&mut world, 2)?.0.map_err(|errno| format!("a FLUSH failed: {errno}"))?;
    write_page(&mut world, 2, false)?;
    let faults = &mut world.device(flash).faults;
    (faults.flush_errors, faults.flush_loses) = (1.0, true);
    world.request(3, Kind::Flush, 0, 0, &[]);
    // The batch is written, and a flush has failed.
    world.idle_until(world.now() + MILLISECOND);
    write_page(&mut world, 3, false)?;
    world.device(flash).faults.flush_errors = 0.0;
    if answer(&mut world, 3)?.0.is_err() {
        world.request(4, Kind::Flush, 0, 0, &[]);
        return answer(&mut world, 4)?.0.map_err(|errno| format!("the next FLUSH failed: {errno}"));
    }
    let mut world = after_a_cut((&choices, &plan), &mut world, flash)?;
    world.request(5, Kind::Read, 0, 4096, &[]);
    match answer(&mut world, 5)? {
        (Ok(()), bufs) if bufs.first().is_some_and(|bytes| bytes[0] == 1) => {
            Err("after a crash a write is lost that an acknowledged FLUSH covered".to_owned())
        }
        _ => Ok(()),
    }
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

#[cfg(test)]
mod tests {
    #[test]
    fn what_is_lost_stays_lost_when_a_log_begins_again() {
        assert_eq!(super::a_log_that_begins_again_keeps_what_is_lost(), Ok(()));
    }

    #[test]
    fn a_flush_covers_a_lost_write_or_fails() {
        assert_eq!(super::a_flush_does_not_count_on_a_replacement(), Ok(()));
    }

    #[test]
    fn a_fua_write_that_flash_lost_fails() {
        assert_eq!(super::a_fua_write_is_durable_or_fails(), Ok(()));
    }
}
