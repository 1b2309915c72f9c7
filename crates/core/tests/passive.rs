// SPDX-License-Identifier: MIT OR Apache-2.0
//! Passive reads leave every kind of cache as it is: with a copy of the whole volume after each step, the same history
//! admits and evicts the same data.
#![allow(clippy::unwrap_used)] // a test stops at the first failure

use std::ops::Range;

use larder_core::config::{AdmissionChoice, preset};
use larder_core::exec::SECOND;
use larder_core::format::{Frame, UnitsPlan};
use larder_core::pagelog::{Geometry, Seat};
use larder_core::policy::admission::Schedule;
use larder_core::request::Kind;
use larder_core::shape::Shape;
use larder_testkit::memory::{FLASH, Memory};

const UNIT: u64 = 64 << 10;
const UNITS: u64 = 12;
const PAGE: u64 = 4096;
const FLASH_BYTES: u64 = 1 << 20;
/// A third of the units.
const SLOTS: u64 = 4;

/// What copies the volume after each step.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Copies {
    None,
    Passive,
    Ordinary,
}

/// Copies these units.
fn copied(memory: &mut Memory, copies: Copies, units: Range<u64>) -> Option<Vec<u8>> {
    memory.replies.clear();
    for at in (units.start * UNIT..units.end * UNIT).step_by(PAGE as usize) {
        match copies {
            Copies::None => return None,
            Copies::Passive => memory.read_passively(3, at, PAGE),
            Copies::Ordinary => memory.ask(3, Kind::Read, at, PAGE, 0),
        }
    }
    Some(memory.replies.drain(..).flat_map(|(_, _, data)| data).collect())
}

/// The state of the cache at the end: the flash, and what was populated and evicted.
fn history(name: &str, copies: Copies) -> (Vec<u8>, [u64; 5]) {
    let mut choices = preset(name).unwrap().choices();
    let is_log = matches!(choices.admission, AdmissionChoice::OnExit(_));
    if !is_log && choices.unit_bytes > UNIT {
        choices.unit_bytes = UNIT;
    }
    if let Some(settings) = choices.periodic_mut() {
        settings.schedule = Schedule::Every(SECOND);
        settings.hot = 0;
    }
    let unit = choices.unit_bytes;
    let origin: Vec<u8> = (0..UNITS * UNIT).map(|at| (at / PAGE) as u8).collect();
    let shape = Shape::new(origin.len() as u64, unit, 1);
    let mut memory = Memory::new(shape, choices, origin.clone(), vec![0; FLASH_BYTES as usize]);
    // Policies count requests also while no flash is attached: copies of the units that are read least.
    for _ in 0..100 {
        copied(&mut memory, copies, UNITS - SLOTS..UNITS);
    }
    if is_log {
        let log = Geometry::fit(0, FLASH_BYTES / 2, 4, 7).unwrap();
        for (at, bytes) in log.blank() {
            memory.flash[at as usize..][..bytes.len()].copy_from_slice(&bytes);
        }
        memory.shard.attach_log(FLASH, (log, Seat::alone()), Vec::new());
        memory.shard.all_logs_open();
        memory.pass(SECOND);
    } else {
        let slots = SLOTS * UNIT / unit;
        let plan = UnitsPlan::volatile(Frame::BARE, unit, slots, 512).place(FLASH, 0);
        memory.shard.attach(plan, None);
    }
    let mut model = origin;
    let mut random = 1_u64;
    let mut next = |below: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (random >> 33) % below
    };
    for step in 0..30_u64 {
        // Some units are read more often than others, and more of them than have slots.
        for _ in 0..6 {
            let unit = next(UNITS).min(next(UNITS));
            memory.ask(1, Kind::Read, unit * UNIT + next(4) * PAGE, PAGE, 0);
        }
        memory.ask(2, Kind::Write { fua: false }, 5 * UNIT, PAGE, step as u8);
        model[(5 * UNIT) as usize..(5 * UNIT + PAGE) as usize].fill(step as u8);
        assert!(
            copied(&mut memory, copies, 0..UNITS).is_none_or(|copy| copy == model),
            "{name}: {step}"
        );
        memory.pass(SECOND);
    }
    let c = memory.shard.counters();
    let counted =
        [c.populations, c.population_bytes, c.evictions, c.flash_write_bytes, c.write_back_bytes];
    (memory.flash, counted)
}

#[test]
fn a_passive_copy_of_the_volume_leaves_the_cache_as_it_is() {
    for name in
        ["sce", "larder", "slru", "flashcache", "enhanceio", "bcache", "prwc", "proc", "face"]
    {
        let (flash, counted) = history(name, Copies::None);
        assert!(counted[3] > 0, "{name}: nothing is cached");
        let (with, counted_with) = history(name, Copies::Passive);
        assert_eq!(counted_with, counted, "{name}");
        assert!(with == flash, "{name}: other data is on flash");
    }
}

/// Otherwise the test above could not fail.
#[test]
fn an_ordinary_copy_changes_the_cache() {
    for name in ["sce", "larder", "slru", "flashcache", "enhanceio", "bcache", "face"] {
        assert!(history(name, Copies::None) != history(name, Copies::Ordinary), "{name}");
    }
}
