// SPDX-License-Identifier: MIT OR Apache-2.0
//! `ordered`: what the order of write-back costs a page log that is full.
//!
//! Method: the preset `face` over modelled devices in virtual time, with `--write-policy ordered` beside `full`. 32 clients write 4 KiB
//! at random places of data eight times as large as the log, and a FLUSH follows every 100 ms. Answers count once the log
//! was written twice: from then on each write waits until an older page has left the log.
//!
//! Why in virtual time: the two policies then meet the same devices, and runs repeat exactly.

use anyhow::{Context, Result, anyhow, ensure};
use larder_core::config::{Limits, WritePolicy, preset};
use larder_core::exec::{MILLISECOND, Nanos, SECOND};
use larder_core::format::LogsPlan;
use larder_core::pagelog::{BATCH_PAGES, Geometry, LogPolicy};
use larder_core::request::Kind;
use larder_core::shape::Shape;
use larder_lab::jobs::run_jobs;
use larder_lab::scenario::volume::FLASH_PROFILE;
use larder_model::{SplitMix64, profile};
use larder_sim::device::SimDevice;
use larder_sim::store::Store;
use larder_sim::world::World;

use super::common::{BenchOptions, Findings};
use super::row::{Goal, Row, median};

const NAME: &str = "ordered";
const MIB: u64 = 1 << 20;
const PAGE: u64 = 4096;
const CLIENTS: u64 = 32;
const FLUSH_EVERY: Nanos = 100 * MILLISECOND;
/// The client that sends the FLUSHes.
const FLUSHER: u64 = CLIENTS;
const VOLUME: u64 = 7;
const ORIGINS: [&str; 2] = ["array-16", "cloud"];
const GOAL: f64 = 0.8;

/// One run.
#[derive(Clone, Copy)]
struct Outcome {
    /// Writes a second.
    writes: f64,
    /// Of every 4 KiB that clients wrote, how much was written to the origin.
    written_back: f64,
}

pub(super) fn run(options: &BenchOptions) -> Result<Findings> {
    let (seeds, log_bytes, span) =
        if options.quick { (1, 8 * MIB, SECOND) } else { (3, 32 * MIB, 10 * SECOND) };
    let mut rows = Vec::new();
    for origin in ORIGINS {
        let ways = [LogPolicy::Ordered, LogPolicy::Full];
        let jobs: Vec<(LogPolicy, u64)> =
            ways.into_iter().flat_map(|way| (1..=seeds).map(move |seed| (way, seed))).collect();
        let words =
            |(way, seed): &(LogPolicy, u64)| format!("{origin}, {}, seed {seed}", way.name());
        let found = run_jobs(NAME, &jobs, words, |(way, seed)| {
            one(origin, *way, *seed, (log_bytes, span))
        })?;
        let (ordered, full) = found.split_at(seeds as usize);
        rows.push(row(origin, ordered, full, options.quick));
    }
    Ok(rows.into())
}

fn row(origin: &str, ordered: &[Outcome], full: &[Outcome], quick: bool) -> Row {
    let each = |of: &[Outcome]| -> Vec<f64> { of.iter().map(|run| run.writes).collect() };
    let back = |of: &[Outcome]| median(&of.iter().map(|run| run.written_back).collect::<Vec<_>>());
    let row = Row::new(NAME, format!("random writes, full log, {origin}"), "IOPS")
        .paired("full", &each(ordered), &each(full))
        .note(format!("written back of each 4 KiB: {:.2}; full: {:.2}", back(ordered), back(full)));
    if quick { row } else { row.goals(&[Goal::RatioAtLeast(GOAL)]) }
}

/// A volume over a log of zeroes.
fn world(origin: &str, policy: LogPolicy, seed: u64, log_bytes: u64) -> Result<World> {
    let mut choices = preset("face").context("no preset face")?.choices();
    choices.write = WritePolicy::Logged(policy);
    let shape = Shape::new(8 * log_bytes, choices.unit_bytes, 1);
    let log = Geometry::fit(0, log_bytes, BATCH_PAGES, VOLUME).context("the log is too small")?;
    let plan = LogsPlan::of(MIB, shape, log, policy);
    let zero = |bytes| Store::new(bytes, |_, sector| sector.fill(0));
    let mut flash = zero(MIB + log_bytes);
    for (at, header) in plan.geometry(VOLUME, 0).blank() {
        flash.write(at, &header, true);
    }
    let device = |name: &str, store: Store, bytes| -> Result<SimDevice> {
        let model = profile(name, bytes, seed).map_err(|e| anyhow!("{e}"))?;
        Ok(SimDevice::new(model, Some(store), seed, MILLISECOND))
    };
    let below = device(origin, zero(shape.origin_bytes), shape.origin_bytes)?;
    let mut world = World::shaped(below, shape, &choices.try_into()?, &Limits::default());
    world.attach_logs(device(FLASH_PROFILE, flash, MIB + log_bytes)?, &plan, VOLUME);
    Ok(world)
}

fn one(
    origin: &str,
    policy: LogPolicy,
    seed: u64,
    (log_bytes, span): (u64, Nanos),
) -> Result<Outcome> {
    let mut world = world(origin, policy, seed, log_bytes)?;
    let mut random = SplitMix64::new(seed);
    let (pages, lead) = (8 * log_bytes / PAGE, 2 * log_bytes / PAGE);
    let mut write = |world: &mut World, client: u64| {
        let page = random.below(pages);
        let bytes = [page as u8 ^ client as u8; PAGE as usize];
        world.request(client, Kind::Write { fua: false }, page * PAGE, PAGE, &bytes);
    };
    (0..CLIENTS).for_each(|client| write(&mut world, client));
    // `None` while one is in flight.
    let (mut writes, mut begun, mut flushes_at) =
        (0_u64, None::<(Nanos, u64, u64)>, Some(FLUSH_EVERY));
    loop {
        let ends = begun.map(|(at, ..)| at + span);
        let until = ends.into_iter().chain(flushes_at).min().unwrap_or(Nanos::MAX);
        if !world.advance(until) {
            ensure!(until < Nanos::MAX, "a FLUSH is not answered");
            world.idle_until(until);
        }
        while let Some(finished) = world.next_finished() {
            ensure!(finished.result.is_ok(), "a request failed: {:?}", finished.result);
            if finished.client == FLUSHER {
                flushes_at = Some(world.now() + FLUSH_EVERY);
            } else {
                writes += 1;
                write(&mut world, finished.client);
            }
        }
        let now = world.now();
        if flushes_at.is_some_and(|at| now >= at) {
            world.request(FLUSHER, Kind::Flush, 0, 0, &[]);
            flushes_at = None;
        }
        let back = world.counters().write_back_bytes;
        match begun {
            None if writes >= lead => begun = Some((now, writes, back)),
            Some((at, before, back_before)) if now >= at + span => {
                let answered = (writes - before) as f64;
                return Ok(Outcome {
                    writes: answered / ((now - at) as f64 / SECOND as f64),
                    written_back: (back - back_before) as f64 / (answered * PAGE as f64).max(1.0),
                });
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fifth_is_lost_at_most() {
        let of = |writes| Outcome { writes, written_back: 1.0 };
        let full = [100.0, 200.0, 400.0].map(of);
        for (last, reached) in [(0.85, true), (0.75, false)] {
            let ordered = [100.0, 150.0, 400.0 * last].map(of);
            let row = row("array-16", &ordered, &full, false);
            assert_eq!((row.ratio, row.reached), (Some(last), Some(reached)));
        }
    }

    #[test]
    fn both_policies_answer_writes() {
        for policy in [LogPolicy::Ordered, LogPolicy::Full] {
            let outcome = one("array-16", policy, 1, (8 * MIB, SECOND)).unwrap();
            assert!(outcome.writes > 100.0 && outcome.written_back > 0.5, "{}", outcome.writes);
        }
    }
}
