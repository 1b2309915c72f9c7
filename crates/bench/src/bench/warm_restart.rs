// SPDX-License-Identifier: MIT OR Apache-2.0
//! `warm-restart`: how much of a warm cache survives a crash, where 13 % of the requests
//! write.
//!
//! Method: `sce` with a journal over the devices and under the load of `warm-up` (configuration A),
//! warmed by reading all data and then run with its writes for an hour of the paper and until a
//! random moment. Then a crash: the *process* is killed, and the devices keep all
//! writes; or the *power* fails, and each sector of flash that no flush and no FUA covered is
//! stored or lost by chance. The next life recovers from that, and the same clients continue. Beside it
//! a volatile cache begins cold. The bench `recovery` measures the time of recovery.
//!
//! The goal is stated for 60 s. As time shrinks with the data here ([`larder_lab::load`]), the
//! harder reading is compared with it too: one of the paper's minutes is 3.75 s.
//!
//! Why only the metadata has bytes: it alone decides what hits. Torture checks that pages recovered as
//! valid are what the origin holds.

use anyhow::{Context, Result, anyhow};
use larder_core::config::{Choices, Durability, Limits};
use larder_core::exec::{MILLISECOND, Nanos, SECOND};
use larder_core::journal::recover::{Recovered, recover};
use larder_lab::device::Device;
use larder_lab::jobs::run_jobs;
use larder_lab::load::clients::{Clients, Plan, What};
use larder_lab::load::{DATA_BYTES, FLASH_A_BYTES, HOUR, Oltp, Pattern};
use larder_lab::scenario::volume::{
    FLASH, FLASH_PROFILE, SAMPLE, SAN_PROFILE, System, VOLUME, plan,
};
use larder_model::SplitMix64;
use larder_report::{Axis, Figure, Series};
use larder_sim::device::SimDevice;
use larder_sim::store::{Image, Store};
use larder_sim::world::World;

use super::common::{BenchOptions, Findings};
use super::row::{Goal, Row, median};
use super::throughput::warm;

const NAME: &str = "warm-restart";
/// The first part after a restart, in which the goal must be reached.
const FIRST: Nanos = 60 * SECOND;
const GOAL: f64 = 0.9;
/// Shares of the hit ratio before, whose times are reported.
const SHARES: [f64; 4] = [0.5, 0.8, 0.9, 0.95];

/// The kinds of starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Start {
    Killed,
    PowerCut,
    Cold,
}

impl Start {
    const ALL: [Self; 3] = [Self::Killed, Self::PowerCut, Self::Cold];

    fn words(self) -> &'static str {
        match self {
            Self::Killed => "process killed",
            Self::PowerCut => "power cut",
            Self::Cold => "volatile",
        }
    }
}

/// Reads, and those that hit, of each sample.
type Samples = Vec<(u64, u64)>;

/// The result of one seed.
struct Outcome {
    /// Of the last [`FIRST`] before the crash.
    before: f64,
    /// After each start, in the order of [`Start::ALL`].
    after: Vec<Samples>,
    /// Units in the table after each start, and of those before.
    units: Vec<u64>,
}

pub(super) fn run(options: &BenchOptions) -> Result<Findings> {
    let (seeds, lead, span) =
        if options.quick { (1, HOUR / 4, FIRST) } else { (3, HOUR, 4 * HOUR) };
    let jobs: Vec<u64> = (1..=seeds).collect();
    let outcomes = run_jobs(NAME, &jobs, |s| format!("seed {s}"), |s| one(*s, lead, span))?;
    Ok(Findings { rows: rows(&outcomes, options.quick), figures: vec![picture(&outcomes)] })
}

fn choices(durability: Durability) -> Result<Choices> {
    Ok(Choices { durability, ..System::Preset("sce").choices()? })
}

/// A world over new devices; flash has these bytes as its metadata.
fn begin(
    choices: &Choices,
    seed: u64,
    metadata: Option<Store>,
    recovered: &[Option<Recovered>],
) -> Result<World> {
    let origin = Device::named(SAN_PROFILE)?.without_bytes(DATA_BYTES, seed);
    let mut world = World::new(origin, DATA_BYTES, &choices.try_into()?, &Limits::default());
    let model = Device::named(FLASH_PROFILE)?.model(FLASH_A_BYTES, seed);
    let flash = SimDevice::new(model, metadata, seed, MILLISECOND);
    let plan = plan(choices, DATA_BYTES, FLASH_A_BYTES, 1);
    world.attach_journaled(flash, &plan, VOLUME, recovered);
    Ok(world)
}

fn one(seed: u64, lead: Nanos, span: Nanos) -> Result<Outcome> {
    let journal = choices(Durability::Journal)?;
    let metadata_bytes = plan(&journal, DATA_BYTES, FLASH_A_BYTES, 1).slots_at;
    let empty = Store::new(metadata_bytes, |_, bytes| bytes.fill(0));
    let mut world = begin(&journal, seed, Some(empty), &[None])?;
    warm(&mut world);
    let mut random = SplitMix64::new(seed);
    let crash = world.now() + lead + random.below(10 * SECOND);
    let mut clients = Clients::starting(Plan::default(), load(seed), world.now());
    clients.run(&mut world, crash.saturating_sub(FIRST), |_| ());
    let (mut reads, mut hits) = (0u64, 0u64);
    clients.run(&mut world, crash, |seen| {
        if let What::Read { hit } = seen.what {
            (reads, hits) = (reads + 1, hits + u64::from(hit));
        }
    });
    let mut units = vec![used(&world)];
    let store = world.take_store(FLASH).context("the flash has no bytes")?;
    let mut after = Vec::new();
    for start in Start::ALL {
        let mut world = restart(start, &store, &mut random, seed)?;
        units.push(used(&world));
        after.push(samples(&mut world, seed, span));
    }
    Ok(Outcome { before: hits as f64 / reads.max(1) as f64, after, units })
}

fn used(world: &World) -> u64 {
    let status = |shard: &larder_core::shard::Shard| shard.cache_status();
    world.shards().iter().filter_map(status).map(|s| s.units_used).sum()
}

fn load(seed: u64) -> Oltp {
    Oltp::new(Pattern::Oltp, DATA_BYTES, seed)
}

/// The next life, from what is left of the metadata.
fn restart(start: Start, store: &Store, random: &mut SplitMix64, seed: u64) -> Result<World> {
    let image = match start {
        Start::Killed => store.image(),
        Start::PowerCut => store.cut(|_, _| random.below(2) == 0),
        Start::Cold => return begin(&choices(Durability::Volatile)?, seed, None, &[None]),
    };
    let journal = choices(Durability::Journal)?;
    let recovered = recovered(&journal, store, &image)?;
    begin(&journal, seed, Some(store.clone().after(&image)), &[Some(recovered)])
}

fn recovered(choices: &Choices, store: &Store, image: &Image) -> Result<Recovered> {
    let plan = plan(choices, DATA_BYTES, FLASH_A_BYTES, 1);
    let layout = plan.layout(VOLUME, 0).context("no metadata is kept")?;
    let read = &mut |at: u64, len: u64| {
        let mut bytes = vec![0; len as usize];
        store.read_image(image, at, &mut bytes);
        Ok(bytes)
    };
    recover(&layout, VOLUME, read).map_err(|why| anyhow!("nothing can be recovered: {why:?}"))
}

fn samples(world: &mut World, seed: u64, span: Nanos) -> Samples {
    let mut samples = vec![(0, 0); (span / SAMPLE) as usize];
    Clients::new(Plan::default(), load(seed)).run(world, span, |seen| {
        if let What::Read { hit } = seen.what
            && let Some((reads, hits)) = samples.get_mut((seen.at / SAMPLE) as usize)
        {
            (*reads, *hits) = (*reads + 1, *hits + u64::from(hit));
        }
    });
    samples
}

fn ratio(samples: &[(u64, u64)]) -> f64 {
    let (reads, hits) = samples.iter().fold((0, 0), |sum, s| (sum.0 + s.0, sum.1 + s.1));
    hits as f64 / reads.max(1) as f64
}

/// Seconds until a sample first has this hit ratio; nothing if none has.
fn time_to(samples: &Samples, least: f64) -> Option<f64> {
    let at = samples.iter().position(|(reads, hits)| *hits as f64 >= least * *reads as f64)?;
    Some((at as u64 + 1) as f64 * SAMPLE as f64 / SECOND as f64)
}

fn rows(outcomes: &[Outcome], quick: bool) -> Vec<Row> {
    let mut rows = Vec::new();
    let before: Vec<f64> = outcomes.iter().map(|o| o.before).collect();
    let units = |n: usize| {
        let of = |o: &Outcome| o.units.get(n).copied().unwrap_or(0) as f64;
        median(&outcomes.iter().map(of).collect::<Vec<_>>())
    };
    for (number, start) in Start::ALL.into_iter().enumerate() {
        for (words, span) in [("60 s", FIRST), ("3.75 s", SAMPLE)] {
            let first = |o: &Outcome| {
                o.after.get(number).map_or(0.0, |s| ratio(&s[..(span / SAMPLE) as usize]))
            };
            let after: Vec<f64> = outcomes.iter().map(first).collect();
            let case = format!("{}: hit ratio of the first {words}", start.words());
            let row = Row::new(NAME, case, "").paired("the last 60 s before", &after, &before);
            let goal = start != Start::Cold && !quick;
            let row = if goal { row.goals(&[Goal::RatioAtLeast(GOAL)]) } else { row };
            let note = format!("{:.0} units, before {:.0}", units(number + 1), units(0));
            rows.push(if span == FIRST { row.note(note) } else { row });
        }
    }
    for (number, start) in Start::ALL.into_iter().enumerate().take(2) {
        rows.extend(SHARES.map(|share| times(outcomes, number, start, share)));
    }
    rows
}

/// How soon a share of the hit ratio before is reached, beside the volatile cache.
fn times(outcomes: &[Outcome], number: usize, start: Start, share: f64) -> Row {
    let (mut late, span) = (0, |s: &Samples| (s.len() as u64 * SAMPLE / SECOND) as f64);
    let mut of = |number: usize| -> Vec<f64> {
        let time = |o: &Outcome| {
            let samples = o.after.get(number)?;
            let found = time_to(samples, o.before * share);
            late += usize::from(found.is_none());
            Some(found.unwrap_or_else(|| span(samples)))
        };
        outcomes.iter().filter_map(time).collect()
    };
    let (ours, peer) = (of(number), of(Start::ALL.len() - 1));
    let case = format!("{}: time to {:.0} % of the hit ratio before", start.words(), share * 100.0);
    let row = Row::new(NAME, case, "s").faster("volatile", &ours, &peer);
    match late {
        0 => row,
        _ => row.note(format!("{late} never reached it and count with the whole run")),
    }
}

fn picture(outcomes: &[Outcome]) -> Figure {
    let points = |number: usize| -> Vec<f64> {
        let of: Vec<&Samples> = outcomes.iter().filter_map(|o| o.after.get(number)).collect();
        let samples = of.iter().map(|s| s.len()).min().unwrap_or(0);
        let at = |i: usize| of.iter().map(|s| ratio(&s[i..=i])).collect::<Vec<_>>();
        (0..samples).map(|i| median(&at(i))).collect()
    };
    let series = Start::ALL
        .into_iter()
        .enumerate()
        .map(|(number, start)| Series { name: start.words().to_owned(), points: points(number) });
    let before = median(&outcomes.iter().map(|o| o.before).collect::<Vec<_>>());
    Figure::lines(
        "Hit ratio of reads after a restart",
        &format!("sce, 13 % writes; before the crash {before:.3}."),
        ("seconds since the restart", SAMPLE as f64 / SECOND as f64),
        Axis::linear("hit ratio").up_to(1.0),
        series.collect(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(warm: u64) -> Outcome {
        let samples = |hits: u64| vec![(100, hits); (FIRST / SAMPLE) as usize];
        let mut cold = samples(10);
        cold[3] = (100, 95);
        Outcome { before: 0.9, after: vec![samples(warm), samples(70), cold], units: vec![5; 4] }
    }

    #[test]
    fn the_first_minute_is_held_against_the_last_before() {
        let rows = rows(&[outcome(82), outcome(85), outcome(80)], false);
        assert!((rows[0].ratio.unwrap() - 0.82 / 0.9).abs() < 1e-9);
        let reached: Vec<Option<bool>> = rows[..6].iter().map(|row| row.reached).collect();
        assert_eq!(reached, [Some(true), Some(true), Some(false), Some(false), None, None]);
    }

    #[test]
    fn times_are_the_ends_of_samples() {
        let rows = rows(&[outcome(82)], true);
        let ninety = &rows[6 + 2];
        assert_eq!((ninety.ours, ninety.peer), (Some(3.75), Some(15.0)));
        assert_eq!((ninety.ratio, ninety.goal.clone()), (Some(4.0), None));
        let late = &rows[6 + 3];
        assert!(late.note.starts_with("1 never"), "{late:?}");
    }
}
