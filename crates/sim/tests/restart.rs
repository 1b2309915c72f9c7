// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a restart takes up again by itself: what was being written when everything stopped is
//! brought back to flash before any client misses it.

#![allow(clippy::unwrap_used)] // a test

use larder_core::config::{Choices, Durability, Limits, preset};
use larder_core::exec::{DevId, MILLISECOND, Nanos, SECOND};
use larder_core::format::{Frame, UnitsPlan};
use larder_core::journal::layout::Layout;
use larder_core::journal::recover::{Recovered, format, recover};
use larder_core::request::Kind;
use larder_core::shape::Shape;
use larder_model::Jitter;
use larder_sim::device::SimDevice;
use larder_sim::scenario::sce;
use larder_sim::store::Store;
use larder_sim::world::{ORIGIN, World, lawful};

const UNITS: u64 = 8;
const VOLUME: u64 = 7;
const FLASH: DevId = DevId(1);
/// A slot more, so that what is found to be empty is met too.
const SLOTS: u64 = UNITS + 1;

struct Rig {
    choices: Choices,
    shape: Shape,
    plan: UnitsPlan,
    layout: Layout,
}

impl Rig {
    fn new() -> Self {
        Self::of(Choices { durability: Durability::Journal, ..sce() }, UNITS, SLOTS)
    }

    fn of(choices: Choices, units: u64, slots: u64) -> Self {
        let unit_bytes = choices.unit_bytes;
        let shape = Shape::new(units * unit_bytes, unit_bytes, 1);
        let plan = UnitsPlan::of(Frame::BARE, shape, slots, 512, &choices, 64 << 10);
        let layout = plan.layout(VOLUME, 0).unwrap();
        Self { choices, shape, plan, layout }
    }

    fn recover(&self, flash: &Store) -> Option<Recovered> {
        let image = flash.image();
        let read = &mut |at: u64, len: u64| {
            let mut bytes = vec![0; len as usize];
            flash.read_image(&image, at, &mut bytes);
            Ok(bytes)
        };
        recover(&self.layout, VOLUME, read).ok()
    }

    fn start(&self, origin: Store, flash: Store) -> World {
        let found = self.recover(&flash);
        assert!(found.is_some());
        let device = |seed, most, store| {
            let model = Box::new(Jitter::new(seed, MILLISECOND / 20, most));
            SimDevice::new(model, Some(store), seed, most)
        };
        let bytes = self.shape.origin_bytes;
        let origin = device(1, 2 * MILLISECOND, origin);
        let mut world = World::new(origin, bytes, &lawful(&self.choices), &Limits::default());
        let flash = device(2, MILLISECOND, flash);
        assert_eq!(world.attach_journaled(flash, &self.plan, VOLUME, &[found]), 1);
        world
    }
}

/// Requests one after the other; how many of them hit.
fn ask(world: &mut World, kind: Kind, offsets: impl Iterator<Item = u64>) -> u64 {
    let hits = world.requests().read_hits;
    for offset in offsets {
        world.request(offset, kind, offset, 4096, &[]);
        while world.next_finished().is_none() && world.advance(Nanos::MAX) {}
    }
    world.requests().read_hits - hits
}

/// A flash device with the metadata of an empty cache.
fn formatted(rig: &Rig) -> Store {
    let mut flash = Store::new(rig.plan.end(), |_, b| b.fill(0));
    for (at, bytes) in format(&rig.layout, VOLUME) {
        flash.write(at, &bytes, true);
    }
    flash
}

/// A page of each unit is read, of more units than the cache has slots.
#[test]
fn single_pages_hit_after_a_restart() {
    let choices = preset("larder").unwrap().choices();
    let rig = Rig::of(Choices { unit_bytes: 1 << 16, ..choices }, 4096, 512);
    let pages = || (0..4096_u64).map(|unit| (unit << 16) + ((unit % 16) << 12));
    let origin = Store::new(rig.shape.origin_bytes, |_, b| b.fill(1));
    let mut world = rig.start(origin, formatted(&rig));
    for _ in 0..50 {
        ask(&mut world, Kind::Read, pages());
    }
    let settled = world.now() + 3 * SECOND;
    world.idle_until(settled);
    let before = ask(&mut world, Kind::Read, pages());
    assert!(before > 768, "{before} of 4096 pages, of which 512 whole units have 512");
    ask(&mut world, Kind::Write { fua: false }, pages().step_by(8));
    let (origin, flash) = (world.take_store(ORIGIN).unwrap(), world.take_store(FLASH).unwrap());

    let found = rig.recover(&flash).unwrap();
    let mixed = (0..rig.layout.slots).filter(|slot| {
        found.is_used(*slot, &rig.layout) && found.unit(*slot, &rig.layout).is_none()
    });
    assert!(mixed.count() > 4);
    let mut world = rig.start(origin, flash);
    let after = ask(&mut world, Kind::Read, pages());
    // The open slot is lost, and with a written page its region.
    assert!(after > 640, "{after} of {before}");
}

#[test]
fn what_was_being_written_is_brought_back_before_anybody_misses_it() {
    let rig = Rig::new();
    let pages = || (0..rig.shape.origin_bytes).step_by(4096);
    let all = pages().count() as u64;
    let origin = Store::new(rig.shape.origin_bytes, |_, b| b.fill(1));
    let mut world = rig.start(origin, formatted(&rig));
    while ask(&mut world, Kind::Read, pages()) < all {
        assert!(world.now() < 3600 * SECOND, "never warm");
    }
    let settled = world.now() + 3 * SECOND;
    world.idle_until(settled);
    ask(&mut world, Kind::Write { fua: false }, pages().step_by(64));
    let (origin, flash) = (world.take_store(ORIGIN).unwrap(), world.take_store(FLASH).unwrap());

    let mut world = rig.start(origin, flash);
    world.idle_until(SECOND);
    assert_eq!(world.counters().populations, UNITS, "each unit was written to, and is completed");
    assert_eq!(ask(&mut world, Kind::Read, pages()), all, "every page hits");
}
