// SPDX-License-Identifier: MIT OR Apache-2.0
//! Fixed scenarios of volumes that share a cache (design rule 14): what the bytes that clients read do not show.

use larder_core::config::{Choices, Durability, Limits, Placement, WritePolicy};
use larder_core::exec::{DevId, MILLISECOND, Nanos, SECOND};
use larder_core::format::{Frame, UnitsPlan};
use larder_core::policy::syncer::SyncerSettings;
use larder_core::request::{Errno, Kind};
use larder_core::shape::Shape;
use larder_core::volumes::{Share, Volumes};
use larder_model::Jitter;

use crate::device::SimDevice;
use crate::scenario::choices_of;
use crate::world::{ORIGIN, World, lawful};

const PAGE: u64 = 4096;
/// Pages of each of the two volumes.
const PAGES: u64 = 256;
const SLOTS: u64 = 32;
/// The first page of each volume.
const FIRST: u64 = 0;
const SECOND_VOLUME: u64 = PAGES;

/// Pages that each miss admits, anywhere on flash, with a journal.
fn pages() -> Choices {
    let placement = Placement::Anywhere;
    Choices { durability: Durability::Journal, placement, ..choices_of("flashcache") }
}

/// Two volumes over one flash.
fn world(choices: &Choices, shares: &[Share; 2]) -> World {
    let volumes = Volumes::placed(&[PAGES * PAGE, PAGES * PAGE], PAGE).sharing(shares);
    let shape = Shape::new(volumes.bytes(), PAGE, 1);
    let plan = UnitsPlan::of(Frame::BARE, shape, SLOTS, 512, choices, 64 << 10);
    let device = |seed| SimDevice::new(Box::new(Jitter::new(seed, 50_000, 100_000)), None, seed, 1);
    let limits = Limits { checkpoint: MILLISECOND, ..Limits::default() };
    let mut world = World::shared(device(1), (shape, &volumes), &lawful(choices), &limits);
    world.attach_journaled(device(2), &plan, 7, &[None]);
    world
}

/// Makes a request for each of some pages, each when the one before is answered; returns their results.
fn ask(
    world: &mut World,
    kind: Kind,
    pages: std::ops::Range<u64>,
) -> Result<Vec<Result<(), Errno>>, String> {
    let len = if kind == Kind::Flush { 0 } else { PAGE };
    let mut results = Vec::new();
    for page in pages {
        world.request(page, kind, page * PAGE, len, &[]);
        results.push(loop {
            match world.next_finished() {
                Some(done) => break done.result,
                None if world.advance(Nanos::MAX) => {}
                None => return Err("a request is never answered".into()),
            }
        });
        world.idle_until(world.now() + 2 * MILLISECOND);
    }
    Ok(results)
}

/// Hits of a read of each of some pages.
fn hits(world: &mut World, pages: std::ops::Range<u64>) -> Result<u64, String> {
    let before = world.requests().read_hits;
    match ask(world, Kind::Read, pages)?.into_iter().find_map(Result::err) {
        Some(errno) => Err(format!("a read failed: {errno}")),
        None => Ok(world.requests().read_hits - before),
    }
}

fn device_of_second(world: &mut World, dev: DevId) -> &mut SimDevice {
    let range = world.volumes().range(1);
    let device = world.device(dev);
    device.faults.within = Some(range);
    device
}

/// A failed flush of one origin takes its own units from the cache, and no others.
pub fn a_failed_origin_leaves_the_others_their_cache() -> Result<(), String> {
    let mut world = world(&pages(), &[Share::default(); 2]);
    for volume in [FIRST, SECOND_VOLUME] {
        hits(&mut world, volume..volume + 8)?;
    }
    world.idle_until(world.now() + SECOND);
    device_of_second(&mut world, ORIGIN).faults.flush_errors = 1.0;
    let write = Kind::Write { fua: false };
    for result in ask(&mut world, write, SECOND_VOLUME..SECOND_VOLUME + 1)? {
        result.map_err(|errno| format!("a write failed: {errno}"))?;
    }
    world.idle_until(world.now() + SECOND);
    let own = hits(&mut world, FIRST..FIRST + 8)?;
    let theirs = hits(&mut world, SECOND_VOLUME..SECOND_VOLUME + 8)?;
    let flushed = ask(&mut world, Kind::Flush, FIRST..FIRST + 1)?[0];
    match (own, theirs, flushed) {
        (8, 0, Ok(())) => Ok(()),
        (_, _, Err(errno)) => Err(format!("a FLUSH of the other volume failed: {errno}")),
        _ => Err(format!("{own} of 8 pages of the other volume are cached, {theirs} of its own")),
    }
}

/// A volume takes no more slots than its share, although others are free.
pub fn a_volume_keeps_to_its_share() -> Result<(), String> {
    let quarter = Share { least: 0.0, most: 0.25 };
    let mut world = world(&pages(), &[Share::default(), quarter]);
    for _ in 0..2 {
        hits(&mut world, SECOND_VOLUME..SECOND_VOLUME + SLOTS)?;
    }
    let used = world.shards()[0].cache_status().map_or(0, |status| status.units_used);
    match used == SLOTS / 4 {
        true => Ok(()),
        false => Err(format!("it has {used} of {SLOTS} slots")),
    }
}

/// Dirty data that an origin refuses takes no slot from another volume.
pub fn refused_data_displaces_nothing_of_others() -> Result<(), String> {
    let sync = SyncerSettings { period_ns: Some(0), ..SyncerSettings::NONE };
    let choices = Choices { write: WritePolicy::WriteBack, sync, ..pages() };
    let mut world = world(&choices, &[Share::default(); 2]);
    hits(&mut world, FIRST..FIRST + 8)?;
    device_of_second(&mut world, ORIGIN).faults.write_errors = 1.0;
    // Those that flash does not take fail, as their origin does.
    ask(&mut world, Kind::Write { fua: false }, SECOND_VOLUME..SECOND_VOLUME + 4 * SLOTS)?;
    match hits(&mut world, FIRST..FIRST + 8)? {
        8 => Ok(()),
        hits => Err(format!("{hits} of 8 pages of the other volume are still cached")),
    }
}

/// Rule 7: a FLUSH that was in flight when another one of the same origin failed fails too, though the origin completed it.
pub fn a_flush_beside_a_failed_one_fails() -> Result<(), String> {
    let mut world = world(&pages(), &[Share::default(); 2]);
    ask(&mut world, Kind::Write { fua: false }, FIRST..FIRST + 1)?;
    world.device(ORIGIN).faults.flush_errors = 1.0;
    world.request(0, Kind::Flush, 0, 0, &[]);
    world.settle();
    let faults = &mut world.device(ORIGIN).faults;
    (faults.flush_errors, faults.hang) = (0.0, true);
    world.request(1, Kind::Flush, 0, 0, &[]);
    let mut failed = 0;
    while world.in_flight() > 0 && world.advance(world.now() + SECOND) {
        while let Some(done) = world.next_finished() {
            failed += u64::from(done.result.is_err());
            world.release_all();
        }
    }
    match failed {
        2 => Ok(()),
        failed => Err(format!("{failed} of two FLUSHes failed, one of them by the origin")),
    }
}
