// SPDX-License-Identifier: MIT OR Apache-2.0
//! Cold misses in virtual time: the engine itself over modelled devices, many seeds.
//!
//! The engine takes no time here, so what is added is what its decisions add: nothing while
//! population is idle, and the origin's time that population takes while it is running. The bare
//! side is the model alone, without any of our code before it.

use anyhow::{Result, anyhow, ensure};
use larder_core::buf::PAGE;
use larder_core::config::{CacheSpec, Limits};
use larder_core::exec::Nanos;
use larder_core::request::Kind;
use larder_model::{Model, Op, profile};
use larder_sim::device::SimDevice;
use larder_sim::world::World;

use super::load::{
    Arrival, FLASH_BYTES, FLASH_PROFILE, Load, NAME, ORIGIN_BYTES, Outcome, Outcomes, Side,
    arrivals,
};
use crate::bench::common::{BenchOptions, progress};
use crate::bench::row::Row;
use larder_lab::latencies::Latencies;

pub(super) fn run(options: &BenchOptions) -> Result<Vec<Row>> {
    let (seeds, seconds) = if options.quick { (2, 3) } else { (25, 30) };
    // A disk has fewer requests a second, so it gets more seconds.
    let disk_seconds = seconds * 5;
    let cloud = Load::half_of("cloud", true, seconds)?;
    let disk = Load::half_of("hdd-15k", false, disk_seconds)?;
    let deep = Load::half_of("hdd-15k", true, disk_seconds)?;
    let larder = [cloud.larder(), disk.larder(), cloud.larder().mixed(), disk.larder().mixed()];
    let loads = [cloud, disk, deep].into_iter().chain(larder);
    let mut rows = Vec::new();
    for load in loads {
        let mut outcomes = Outcomes::new();
        for seed in 1..=seeds {
            for side in Side::ALL {
                outcomes.push(side, one(&load, side, seed)?);
            }
        }
        progress(NAME, format!("{}: {seeds} seeds", load.words()));
        rows.extend(outcomes.rows("virtual time", &load));
    }
    Ok(rows)
}

fn model(name: &str, bytes: u64, seed: u64) -> Result<Box<dyn Model>> {
    profile(name, bytes, seed).map_err(|unknown| anyhow!("{unknown}"))
}

fn one(load: &Load, side: Side, seed: u64) -> Result<Outcome> {
    let choices = side.choices(load);
    let arrivals = arrivals(load, seed, choices.unit_bytes);
    let origin = model(load.profile, ORIGIN_BYTES, seed)?;
    if side == Side::Bare {
        return Ok(bare(origin, &arrivals, load.span));
    }
    let origin = SimDevice::new(origin, None, seed, 1);
    let flash = SimDevice::new(model(FLASH_PROFILE, FLASH_BYTES, seed)?, None, seed, 1);
    let mut world =
        World::new(origin, ORIGIN_BYTES, &CacheSpec::try_from(&choices)?, &Limits::default());
    world.attach(flash, FLASH_BYTES / choices.unit_bytes, 512);
    let mut latencies = Latencies::new();
    for (number, arrival) in arrivals.iter().enumerate() {
        while world.advance(arrival.at) {
            take(&mut world, &arrivals, &mut latencies);
        }
        world.idle_until(arrival.at);
        world.request(number as u64, Kind::Read, arrival.offset, PAGE as u64, &[]);
        world.settle();
    }
    while world.now() < load.span && world.advance(load.span) {
        take(&mut world, &arrivals, &mut latencies);
    }
    let populated = world.counters().population_bytes;
    while world.in_flight() > 0 && world.advance(Nanos::MAX) {
        take(&mut world, &arrivals, &mut latencies);
    }
    let expected = arrivals.iter().filter(|arrival| arrival.counts).count() as u64;
    let missed = world.requests().read_hits == 0 || load.hot_units > 0;
    ensure!(missed && latencies.count() == expected, "not every read missed");
    let as_expected = match side {
        Side::Running => populated > 0 || !load.populates,
        Side::Bare | Side::Idle => populated == 0,
    };
    ensure!(as_expected, "population is not as it was asked for");
    Ok(Outcome::new(&latencies, populated, load.span))
}

fn take(world: &mut World, arrivals: &[Arrival], latencies: &mut Latencies) {
    while let Some(finished) = world.next_finished() {
        let arrival = arrivals[finished.client as usize];
        if arrival.counts {
            latencies.record(world.now() - arrival.at);
        }
    }
}

fn bare(mut model: Box<dyn Model>, arrivals: &[Arrival], span: Nanos) -> Outcome {
    let mut latencies = Latencies::new();
    let mut take = |model: &mut Box<dyn Model>, until: Nanos| {
        while let Some(now) = model.next().filter(|at| *at <= until) {
            while let Some((number, at)) = model.poll(now) {
                let arrival = arrivals[number as usize];
                if arrival.counts {
                    latencies.record(at - arrival.at);
                }
            }
        }
    };
    for (number, arrival) in arrivals.iter().enumerate() {
        take(&mut model, arrival.at);
        model.submit(arrival.at, number as u64, Op::read(arrival.offset, PAGE as u64));
    }
    take(&mut model, Nanos::MAX);
    Outcome::new(&latencies, 0, span)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn with_population_idle_a_miss_costs_what_the_device_costs() {
        let load = Load::half_of("hdd-15k", false, 5).unwrap();
        let [bare, idle] = [Side::Bare, Side::Idle].map(|side| one(&load, side, 7).unwrap());
        assert_eq!((bare.p50_us, bare.p99_us), (idle.p50_us, idle.p99_us));
        let running = one(&load, Side::Running, 7).unwrap();
        assert!(running.populated_mb_s > 0.0 && running.p50_us >= bare.p50_us);
    }

    /// A run in which population copies nothing would measure nothing.
    #[test]
    fn a_run_without_the_expected_population_is_an_error() {
        let mut load = Load::half_of("hdd-15k", false, 5).unwrap().larder().mixed();
        assert!(one(&load, Side::Running, 7).unwrap().populated_mb_s > 0.0);
        // Too short for any population.
        load.span = 1_000_000;
        assert!(one(&load, Side::Running, 7).is_err());
        load.populates = false;
        one(&load, Side::Running, 7).unwrap();
    }
}
