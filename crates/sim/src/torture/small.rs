// SPDX-License-Identifier: MIT OR Apache-2.0
//! Everything, on a small scale (as ACE of CrashMonkey): all histories of up to three operations
//! on two units, a power cut after every event, and every subset of the last four writes that no
//! flush covered, with all older ones kept or lost.
//!
//! A power cut during an earlier operation is one of a shorter history, so only those from the
//! last operation on are tried. Operations follow each other, or are all asked for at once.
//!
//! Why beside the swarm: a seed meets likely histories; this search meets all short ones.

use larder_core::buf::PAGE;
use larder_core::config::{AdmissionChoice, Choices, Durability, Limits, preset};
use larder_core::exec::MILLISECOND;
use larder_core::policy::admission::OnMissSettings;
use larder_core::request::Kind;
use larder_core::shape::Shape;
use larder_core::volumes::Volumes;

use super::history::{Judged, Violation};
use super::kinds::JOURNALED;
use super::life::{Life, start};
use super::places::{Sizes, units};
use super::promise::Trouble;
use super::setup::Setup;
use super::step::Step;
use crate::store::{Image, Store};
use crate::world::ORIGIN;

/// Writes of which every subset is tried.
const WRITES: usize = 4;
/// The most operations of a history.
const OPERATIONS: u32 = 3;
const UNIT: u64 = PAGE as u64;

/// What was tried.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tried {
    /// Histories.
    pub histories: u64,
    /// States after a power cut that were recovered and judged.
    pub states: u64,
}

/// The operations.
const ALPHABET: [Step; 8] = [
    Step::Ask(Kind::Read, 0, UNIT),
    Step::Ask(Kind::Read, UNIT, UNIT),
    Step::Ask(Kind::Write { fua: false }, 0, UNIT),
    Step::Ask(Kind::Write { fua: false }, UNIT, UNIT),
    Step::Ask(Kind::Write { fua: true }, 0, UNIT),
    Step::Ask(Kind::Write { fua: true }, UNIT, UNIT),
    Step::Ask(Kind::Flush, 0, 0),
    Step::Rest(2 * MILLISECOND),
];

/// Two units of a page, over this many slots.
#[must_use]
pub fn setup(slots: u64) -> Setup {
    let Some(preset) = preset("sce") else { unreachable!("the table has it") };
    let settings = OnMissSettings { client_waits: true, on_write: true, bypass_bytes: 0 };
    let choices = Choices {
        unit_bytes: UNIT,
        admission: AdmissionChoice::OnMiss(settings),
        durability: Durability::Journal,
        ..preset.choices()
    };
    let limits = Limits {
        checkpoint: MILLISECOND,
        flash_timeout: 10 * MILLISECOND,
        flash_dead_after: 50 * MILLISECOND,
        ..Limits::default()
    };
    let shape = Shape::new(2 * UNIT, UNIT, 1);
    let sizes = Sizes { shape, slots, block_bytes: 512, blocks: 0 };
    let plan = units(&sizes, &choices);
    Setup {
        preset: "sce",
        kind: &JOURNALED,
        choices,
        limits,
        shape,
        volumes: Volumes::one(shape.origin_bytes),
        troubled: None,
        plan,
        in_flight: OPERATIONS as usize,
        origin_slowest: 100_000,
        flash_slowest: 60_000,
        copy: 0,
        trouble: Trouble::None,
        first_bytes: shape.origin_bytes,
        resizes: false,
        strays: false,
    }
}

/// Tries everything on a volume.
///
/// # Errors
/// The history, and the rule that it broke.
pub fn exhaust(setup: &Setup) -> Result<Tried, (Vec<Step>, Box<Violation>)> {
    let mut tried = Tried::default();
    for length in 1..=OPERATIONS {
        for number in 0..ALPHABET.len().pow(length) {
            let digit = |at| ALPHABET[number / ALPHABET.len().pow(at) % ALPHABET.len()];
            let steps: Vec<Step> = (0..length).map(digit).collect();
            for at_once in [false, true] {
                let result = history(setup, &steps, at_once, number as u64, &mut tried);
                result.map_err(|violation| (steps.clone(), violation))?;
            }
        }
    }
    Ok(tried)
}

fn history(
    setup: &Setup,
    steps: &[Step],
    at_once: bool,
    salt: u64,
    tried: &mut Tried,
) -> Judged<()> {
    tried.histories += 1;
    let mut life = start(setup, salt)?;
    // The first checkpoint, and both units in the cache where there is room.
    life.step(&Step::Rest(3 * MILLISECOND))?;
    life.step(&ALPHABET[(salt % 2) as usize])?;
    life.step(&Step::Rest(3 * MILLISECOND))?;
    let (last, first) = steps.split_last().map_or((None, steps), |(l, f)| (Some(l), f));
    for step in first {
        life.step(step)?;
        while !at_once && life.world.in_flight() > 0 {
            life.turn()?;
        }
    }
    let Some(last) = last else { return Ok(()) };
    if let Step::Ask(..) = last {
        life.step(last)?;
    }
    // Until the answer, and until what it changed was logged.
    let (mut until, mut before) = (None, None);
    loop {
        let state = state(&mut life);
        if before.replace(state) != Some(state) {
            subsets(&mut life, tried)?;
        }
        if life.world.in_flight() == 0 {
            let end = *until.get_or_insert(life.world.now() + 2 * MILLISECOND);
            if life.world.now() >= end {
                return Ok(());
            }
        }
        if !life.turn()? {
            return Ok(());
        }
    }
}

/// What a power cut could make a difference to.
fn state(life: &mut Life<'_>) -> (u32, usize, u32, usize, usize) {
    let mut of = |dev| {
        let store = life.world.device(dev).store.as_ref();
        store.map_or((0, 0), |s| (s.snapshot(), s.unflushed().count()))
    };
    let (origin, flash) = (of(ORIGIN), of(life.flash));
    (origin.0, origin.1, flash.0, flash.1, life.asked.len())
}

/// Every subset of the last writes, of both devices together.
fn subsets(life: &mut Life<'_>, tried: &mut Tried) -> Judged<()> {
    let writes = |store: Option<&Store>| {
        let mut writes: Vec<u32> =
            store.map_or(Vec::new(), |s| s.unflushed().map(|w| w.1).collect());
        writes.dedup();
        writes
    };
    let origin = writes(life.world.device(ORIGIN).store.as_ref());
    let flash = writes(life.world.device(life.flash).store.as_ref());
    let ours =
        flash.len().min(WRITES / 2).max(WRITES.saturating_sub(origin.len()).min(flash.len()));
    let theirs = origin.len().min(WRITES - ours);
    let older = origin.len() + flash.len() > ours + theirs;
    let (mut left, mut flash_left) = (Image::new(), Image::new());
    for keeps_older in [false, true].into_iter().take(1 + usize::from(older)) {
        for subset in 0..1_u32 << (ours + theirs) {
            let kept = |write: u32, all: &[u32], last: usize, shift: usize| {
                let place = all.iter().position(|w| *w == write).unwrap_or(0);
                match place.checked_sub(all.len() - last) {
                    Some(bit) => subset >> (bit + shift) & 1 == 1,
                    None => keeps_older,
                }
            };
            if let Some(store) = &life.world.device(ORIGIN).store {
                store.cut_into(&mut left, |_, write| kept(write, &origin, theirs, 0));
            }
            if let Some(store) = &life.world.device(life.flash).store {
                store.cut_into(&mut flash_left, |_, write| kept(write, &flash, ours, theirs));
            }
            tried.states += 1;
            life.judge_cut(&left, &flash_left)?;
        }
    }
    Ok(())
}
