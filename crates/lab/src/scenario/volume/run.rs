// SPDX-License-Identifier: MIT OR Apache-2.0
//! From a setup to its world, and through it.

use std::ops::Range;

use anyhow::{Context, Result};
use larder_core::config::{CacheSpec, Choices};
use larder_core::exec::{MILLISECOND, SECOND};
use larder_core::format::{Frame, Keeps, UnitsPlan};
use larder_core::journal::layout::log_bytes;
use larder_core::shape::Shape;
use larder_core::volumes::{Share, Volumes};
use larder_model::{ByOffset, Model};
use larder_sim::device::SimDevice;
use larder_sim::world::World;

use super::{Outcome, Setup, System, Totals};
use crate::jobs::run_jobs;
use crate::latencies::Latencies;
use crate::load::Oltp;
use crate::load::clients::{Clients, What};

/// The id of a volume whose metadata is kept.
pub const VOLUME: u64 = 1;

/// The world of a setup, cold.
///
/// # Errors
/// If the choices contradict each other.
pub fn world(setup: &Setup) -> Result<World> {
    shared_world(&[(setup, Share::default())])
}

/// The world of volumes that share a cache, cold: an origin for each, and what the first setup has of flash and choices.
///
/// # Errors
/// If the choices contradict each other.
pub(super) fn shared_world(parts: &[(&Setup, Share)]) -> Result<World> {
    let (setup, _) = *parts.first().context("no volume")?;
    let sizes: Vec<u64> = parts.iter().map(|(setup, _)| setup.data_bytes).collect();
    let shares: Vec<Share> = parts.iter().map(|(_, share)| *share).collect();
    let stripe_bytes = Shape::new(0, setup.choices.unit_bytes, 1).wide().stripe_bytes();
    let volumes = Volumes::placed(&sizes, stripe_bytes).sharing(&shares);
    let origin = |((of, _), range): (&(&Setup, Share), Range<u64>)| {
        let device = if of.system == System::AllFlash { &of.flash } else { &of.origin };
        (range.start, device.model(of.data_bytes, of.seed))
    };
    let origins = parts.iter().zip(volumes.ranges()).map(origin).collect();
    world_over(Box::new(ByOffset::new(origins)), setup, &volumes)
}

/// The world of a setup over this model of the origins of its volumes, cold.
///
/// # Errors
/// If the choices contradict each other.
pub(super) fn world_over(
    origins: Box<dyn Model>,
    setup: &Setup,
    volumes: &Volumes,
) -> Result<World> {
    let origins = SimDevice::new(origins, None, setup.seed, MILLISECOND);
    let shape = Shape::new(volumes.bytes(), setup.choices.unit_bytes, 1).wide();
    let spec = CacheSpec::try_from(&setup.choices)?;
    let mut world = World::shared(origins, (shape, volumes), &spec, &setup.limits);
    if let System::Preset(_) = setup.system {
        let flash = setup.flash.without_bytes(setup.flash_bytes, setup.seed);
        let plan = plan(&setup.choices, volumes.bytes(), setup.flash_bytes, 1);
        world.attach_journaled(flash, &plan, VOLUME, &[None]);
    }
    Ok(world)
}

/// Where things lie on flash with so many bytes of slots: before them the metadata that the choices
/// ask for, its log as large as a server makes it.
#[must_use]
pub fn plan(choices: &Choices, origin_bytes: u64, slot_bytes: u64, shards: u32) -> UnitsPlan {
    let shape = Shape::new(origin_bytes, choices.unit_bytes, shards);
    let log_bytes = log_bytes(slot_bytes, Keeps::of(choices), shards);
    let slots = slot_bytes / choices.unit_bytes;
    UnitsPlan::of(Frame::BARE, shape, slots, 512, choices, log_bytes)
}

/// Runs one.
///
/// # Errors
/// If the choices contradict each other.
pub fn run(setup: &Setup) -> Result<Outcome> {
    let mut world = world(setup)?;
    let bytes = (setup.data_bytes, setup.active_bytes);
    let load = Oltp::image(setup.pattern, bytes, setup.page_bytes, setup.seed);
    let mut clients = Clients::new(setup.plan.clone(), load);
    let (reads, transactions) = (Latencies::new(), Latencies::new());
    let (sample, totals) = (setup.sample, vec![Totals::default()]);
    let mut outcome = Outcome { sample, totals, reads, transactions };
    let mut done = 0;
    for number in 1..=setup.span / sample {
        let counts = (number - 1) * sample >= setup.span.saturating_sub(setup.last);
        clients.run(&mut world, number * sample, |seen| {
            done += u64::from(seen.what == What::Transaction);
            match seen.what {
                What::Read { .. } if counts => outcome.reads.record(seen.took),
                What::Transaction if counts => outcome.transactions.record(seen.took),
                _ => {}
            }
        });
        outcome.totals.push(Totals {
            transactions: done,
            requests: world.requests(),
            counters: world.counters(),
        });
    }
    Ok(outcome)
}

/// Runs all, on every processor; outcomes come in the order of the setups.
///
/// # Errors
/// The first that a run had.
pub fn run_all(name: &str, setups: &[Setup]) -> Result<Vec<Outcome>> {
    let words = |s: &Setup| {
        let (pattern, system) = (s.pattern.name(), s.system.name());
        format!("{pattern}, {system}, seed {}: {} virtual seconds", s.seed, s.span / SECOND)
    };
    run_jobs(name, setups, words, run)
}
