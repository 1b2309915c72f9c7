// SPDX-License-Identifier: MIT OR Apache-2.0
//! Cold misses in real time: the same load through the real driver, over `slow+` devices.
//!
//! Purpose: a cross-check of [virtual time](super::virtual_time), with the engine's own time, the
//! ring and the clock in it. The origin is memory behind the profile; flash discards data,
//! behind its profile. Other processes on the machine affect the figures, most of all p99.

use anyhow::{Result, anyhow, ensure};
use larder_core::config::Limits;
use larder_core::exec::Nanos;
use larder_io::Device;
use larder_model::profile;

use super::load::{
    Arrival, FLASH_BYTES, FLASH_PROFILE, Load, NAME, ORIGIN_BYTES, Outcome, Outcomes, Side,
    arrivals,
};
use crate::bench::common::{BenchOptions, progress};
use crate::bench::row::Row;
use crate::bench::volume::{Bare, Target, Volume};
use larder_lab::latencies::Latencies;

pub(super) fn run(options: &BenchOptions) -> Result<Vec<Row>> {
    let (rounds, seconds) = if options.quick { (1, 1) } else { (5, 6) };
    let load = Load::half_of("cloud", true, seconds)?;
    let mut outcomes = Outcomes::new();
    for round in 0..rounds {
        for turn in 0..Side::ALL.len() {
            // Each side is first, second and last equally often.
            let side = Side::ALL[(turn + round) % Side::ALL.len()];
            outcomes.push(side, one(&load, side, round as u64 + 1)?);
        }
    }
    progress(NAME, format!("{}: {rounds} rounds in real time", load.words()));
    Ok(outcomes.rows("real time", &load))
}

fn slow(device: &Device, name: &str, seed: u64) -> Result<Device> {
    let model = profile(name, device.geometry().bytes, seed).map_err(|e| anyhow!("{e}"))?;
    Ok(device.with_model(model, name))
}

fn one(load: &Load, side: Side, seed: u64) -> Result<Outcome> {
    let choices = side.choices(load);
    let arrivals = arrivals(load, seed, choices.unit_bytes);
    let origin = slow(&Device::mem(ORIGIN_BYTES), load.profile, seed)?;
    if side == Side::Bare {
        let latencies = play(&mut Bare::new(&origin)?, &arrivals)?;
        return Ok(Outcome::new(&latencies, 0, load.span));
    }
    let flash = slow(&Device::null(FLASH_BYTES), FLASH_PROFILE, seed)?;
    let mut volume = Volume::new(&origin, Some(&flash), &choices, &Limits::default())?;
    let latencies = play(&mut volume, &arrivals)?;
    volume.check()?;
    ensure!(volume.reads().1 == 0, "not every read missed");
    Ok(Outcome::new(&latencies, volume.populated_bytes(), load.span))
}

/// Sends each read when it is due, whether or not earlier ones were answered.
fn play(target: &mut impl Target, arrivals: &[Arrival]) -> Result<Latencies> {
    let mut latencies = Latencies::new();
    let start = target.now();
    let due = |number: usize| arrivals.get(number).map(|arrival| start + arrival.at);
    let mut sent = 0;
    while latencies.count() < arrivals.len() as u64 {
        let mut now: Nanos = target.now();
        while due(sent).is_some_and(|at| at <= now) {
            target.read(sent as u32, arrivals[sent].offset);
            sent += 1;
            now = target.now();
        }
        match target.next()? {
            Some(number) => latencies.record(target.now() - start - arrivals[number as usize].at),
            None => target.turn(due(sent))?,
        }
    }
    Ok(latencies)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_load_runs_through_the_real_driver() {
        let cloud = Load::half_of("cloud", true, 1).unwrap();
        let load = Load { profile: "none", per_second: 2_000, span: 50_000_000, ..cloud };
        for side in Side::ALL {
            let outcome = one(&load, side, 1).unwrap();
            assert!(outcome.p50_us > 0.0 && outcome.p99_us >= outcome.p50_us);
            assert_eq!(outcome.populated_mb_s > 0.0, side == Side::Running);
        }
    }
}
