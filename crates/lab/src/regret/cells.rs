// SPDX-License-Identifier: MIT OR Apache-2.0
//! The runs of a plan: a point for each row, load, origin and size.
//!
//! The origin alone comes first, because the period of rows that exchange units by updates depends on how long it
//! takes. A row without a cache has one point for all sizes, and flash alone one for all origins.
//!
//! Invariants: a point is a scenario of its own ([`replays`](crate::replays)), so it can be run again alone; with a
//! directory of points each has its file, by the rules of [`sweep`](crate::scenario::sweep), so a selection continues
//! what another began.

use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value as Json;

use super::plan::{Asked, ORIGINS, Plan};
use super::rows::{Contract, Row};
use crate::jobs::run_jobs_on;
use crate::replays::{self, Point};
use crate::scenario::volume::FLASH_PROFILE;
use crate::scenario::{Sweep, sweep};

/// Where a row was run: places in the plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// Of the loads.
    pub load: usize,
    /// Of the origins.
    pub origin: usize,
    /// Of the sizes; none where there is no cache.
    pub percent: Option<usize>,
}

/// A row at a place.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    /// Of the rows.
    pub row: usize,
    /// Where.
    pub place: Place,
    /// What it came to.
    pub point: Point,
}

/// The runs, and the footprint of each load.
#[derive(Clone, Debug, PartialEq)]
pub struct Runs {
    /// By row, load, origin and size.
    pub runs: Vec<Run>,
    /// Bytes, by load.
    pub footprint_bytes: Vec<u64>,
}

/// A run of the plan.
struct Job<'a> {
    row: usize,
    place: Place,
    origin: &'a str,
    update_seconds: Option<i64>,
}

/// Runs all of a plan.
///
/// # Errors
/// A run fails, or a file of points cannot be read or written.
pub fn run(asked: &Asked, plan: &Plan) -> Result<Runs> {
    if let Some(dir) = &asked.points {
        std::fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
    }
    let all = |jobs: &[Job<'_>]| {
        let words = |job: &Job<'_>| words(plan, job);
        run_jobs_on(asked.jobs, "regret", jobs, words, |job| one(asked, plan, job))
    };
    let alone = alone(plan);
    let bare = all(&alone)?;
    let seconds = |load: usize, origin: usize| {
        let here = |(job, _): &(&Job<'_>, &Json)| {
            plan.rows.get(job.row).is_some_and(|row| row.contract == Contract::NoCache)
                && (job.place.load, job.place.origin) == (load, origin)
        };
        alone.iter().zip(&bare).find(here).map_or(0.0, |(_, result)| replays::seconds(result))
    };
    let cached = cached(plan, seconds);
    let results = all(&cached)?;
    let mut runs = Vec::new();
    for (job, result) in alone.iter().zip(&bare).chain(cached.iter().zip(&results)) {
        let Some(row) = plan.rows.get(job.row) else { continue };
        let point = Point::of(row.system, result);
        let everywhere = row.contract == Contract::AllFlash;
        let origins =
            if everywhere { 0..plan.origins.len() } else { job.place.origin..job.place.origin + 1 };
        runs.extend(origins.map(|origin| Run {
            row: job.row,
            place: Place { origin, ..job.place },
            point: point.clone(),
        }));
    }
    runs.sort_by_key(|run| (run.row, run.place));
    let footprint = |load: usize| {
        let of = |(job, result): (&Job<'_>, &Json)| {
            (job.place.load == load).then(|| result["footprint_bytes"].as_u64()).flatten()
        };
        alone.iter().zip(&bare).find_map(of).unwrap_or(0)
    };
    let footprint_bytes = (0..plan.loads.len()).map(footprint).collect();
    Ok(Runs { runs, footprint_bytes })
}

/// Rows without a cache.
fn alone(plan: &Plan) -> Vec<Job<'_>> {
    let mut jobs = Vec::new();
    for (row, is) in plan.rows.iter().enumerate() {
        for load in 0..plan.loads.len() {
            let job = |origin: usize, profile| Job {
                row,
                place: Place { load, origin, percent: None },
                origin: profile,
                update_seconds: None,
            };
            match is.contract {
                Contract::NoCache => {
                    jobs.extend(plan.origins.iter().enumerate().map(|(i, name)| job(i, name)));
                }
                // Whatever was selected, its file has one name.
                Contract::AllFlash => jobs.push(job(0, ORIGINS[0])),
                Contract::Volatile | Contract::Journal | Contract::WriteBack => {}
            }
        }
    }
    jobs
}

/// Rows with a cache; `seconds` is how long the origin alone takes.
fn cached(plan: &Plan, seconds: impl Fn(usize, usize) -> f64) -> Vec<Job<'_>> {
    let is_cache = |row: &Row| !matches!(row.contract, Contract::NoCache | Contract::AllFlash);
    let mut jobs = Vec::new();
    for load in 0..plan.loads.len() {
        for (origin, profile) in plan.origins.iter().enumerate() {
            for (row, is) in plan.rows.iter().enumerate().filter(|(_, row)| is_cache(row)) {
                let updates = || replays::update_seconds(seconds(load, origin));
                jobs.extend((0..plan.percents.len()).map(|percent| Job {
                    row,
                    place: Place { load, origin, percent: Some(percent) },
                    origin: profile,
                    update_seconds: is.updates.then(updates),
                }));
            }
        }
    }
    jobs
}

fn percent(plan: &Plan, place: Place) -> Option<u32> {
    plan.percents.get(place.percent?).copied()
}

fn words(plan: &Plan, job: &Job<'_>) -> String {
    let size = percent(plan, job.place).map(|percent| format!(", {percent} %"));
    let load = plan.loads.get(job.place.load).map_or("", |load| load.name.as_str());
    let row = plan.rows.get(job.row).map_or("", |row| row.name.as_str());
    format!("{load}, {}, {row}{}", job.origin, size.unwrap_or_default())
}

/// What a run came to.
fn one(asked: &Asked, plan: &Plan, job: &Job<'_>) -> Result<Json> {
    let name = words(plan, job);
    let (Some(row), Some(load)) = (plan.rows.get(job.row), plan.loads.get(job.place.load)) else {
        anyhow::bail!("{name}: is not in the plan");
    };
    let mut scenario = replays::scenario(&name, (job.origin, FLASH_PROFILE), asked.seed)?;
    scenario.set("system", row.system.into())?;
    scenario.set("trace", load.keys.clone().into())?;
    let share = percent(plan, job.place).unwrap_or(100);
    scenario.set("trace.flash_share", (f64::from(share) / 100.0).into())?;
    if let Some(durability) = row.durability {
        scenario.set("durability", durability.into())?;
    }
    if let Some(seconds) = job.update_seconds {
        scenario.set("update_seconds", seconds.into())?;
    }
    let file = asked.points.as_ref().map(|dir| dir.join(file_name(asked, &name)));
    let file = file.as_deref().map(Path::new);
    let how = Sweep { file, jobs: Some(1), progress: false, shard: None };
    let mut lines = sweep(&scenario, how).with_context(|| name.clone())?;
    Ok(lines.pop().context("a scenario has a point")?.result)
}

/// `regret-quick-seed1-oltp-cloud-sce-5.jsonl`.
fn file_name(asked: &Asked, words: &str) -> String {
    let mut name = String::new();
    for c in words.chars() {
        match c {
            c if c.is_ascii_alphanumeric() || "+-_.".contains(c) => name.push(c),
            ',' => name.push('-'),
            _ => {}
        }
    }
    format!("regret-{}-seed{}-{name}.jsonl", asked.size.name, asked.seed)
}
