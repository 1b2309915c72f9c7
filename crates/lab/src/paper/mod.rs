// SPDX-License-Identifier: MIT OR Apache-2.0
//! Every claim of the four papers, and whether it reproduces.
//!
//! A paper is a list of *groups*: rows that come from the same runs. A group runs its scenario files
//! (`crates/lab/scenarios/`), on every seed, and checks what came out. Tolerances are argued where they
//! are used, in words, and were fixed before the first run; a shape holds only if it holds on every
//! seed. A row that differs stays, and says so.
//!
//! Invariants: every id of `docs/papers.md` comes up exactly once (a test counts them); what a paper
//! says is no input of any run.

mod face;
mod holland;
mod prwc;
mod row;
mod runs;
mod sce;
mod sheet;

use std::fs;
use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use larder_report::Figure;
use toml::Value;

pub use self::row::{At, Kind, Row, Verdict};
pub use self::sheet::{part, sheet};
use crate::jobs::time_left;
use crate::scenario::{Line, Scenario, Sweep, sweep};

/// What a group found.
#[derive(Clone, Debug, Default)]
pub struct Found {
    /// Its rows.
    pub rows: Vec<Row>,
    /// Its figures, redrawn.
    pub figures: Vec<Figure>,
}

/// Rows that come from the same runs.
pub struct Group {
    /// The claims that it answers.
    pub ids: &'static [&'static str],
    /// Runs and checks.
    pub run: fn(&Asked) -> Result<Found>,
}

/// The papers.
const PAPERS: &[(&str, &[Group])] = &[
    ("sce", sce::GROUPS),
    ("holland", holland::GROUPS),
    ("prwc", prwc::GROUPS),
    ("face", face::GROUPS),
];

/// The names of the papers.
#[must_use]
pub fn papers() -> Vec<&'static str> {
    PAPERS.iter().map(|(name, _)| *name).collect()
}

/// What is asked for.
#[derive(Clone, Debug)]
pub struct Asked {
    /// Replaces the scale of every scenario that has one: `1/16`.
    pub scale: Option<String>,
    /// The first of three seeds.
    pub seed: u64,
    /// Only these rows; all without.
    pub only: Vec<String>,
    /// Whether to tell of progress on standard error.
    pub progress: bool,
    /// Where the points of all scenarios go, a file for each seed, and come from: what was interrupted
    /// goes on, and what two groups ask for is run once.
    pub points: Option<PathBuf>,
}

/// Seeds on which a shape has to hold.
pub const SEEDS: u64 = 3;

impl Asked {
    /// The seeds, as values of a grid.
    #[must_use]
    pub fn seeds(&self) -> Vec<u64> {
        (self.seed..self.seed + SEEDS).collect()
    }

    /// Runs a scenario file on every seed, at the scale asked for; lines by seed.
    ///
    /// # Errors
    /// If it cannot be run.
    pub fn run(&self, name: &str, text: &str) -> Result<Vec<Vec<Line>>> {
        let mut scenario = Scenario::parse(name, text)?;
        if let (Some(scale), Some(_)) = (&self.scale, scenario.get("scale")) {
            scenario.set("scale", Value::String(scale.clone()))?;
        }
        let each = |seed| {
            let mut one = scenario.clone();
            let seed_value = i64::try_from(seed).context("the seed is too large")?;
            one.set("seed", Value::Integer(seed_value))?;
            one.name = format!("{name}, seed {seed}");
            let file = self.points.as_ref().map(|dir| dir.join(file_name(name, &one, seed)));
            sweep(&one, Sweep { progress: self.progress, file: file.as_deref(), jobs: None })
        };
        self.seeds().into_iter().map(each).collect()
    }

    fn wants(&self, id: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| only == id)
    }
}

/// Runs what was asked for of a paper, or of all: what each group found.
///
/// # Errors
/// If there is no such paper or row, or a run fails.
pub fn run(paper: &str, asked: &Asked) -> Result<Vec<Found>> {
    let chosen: Vec<_> =
        PAPERS.iter().filter(|(name, _)| paper == "all" || paper == *name).collect();
    if chosen.is_empty() {
        bail!("paper '{paper}' is not known; accepted: {}, all", papers().join(", "));
    }
    let groups = || chosen.iter().flat_map(|(_, groups)| groups.iter());
    for only in &asked.only {
        if !groups().any(|group| group.ids.contains(&only.as_str())) {
            bail!("row '{only}' is not in {paper}; accepted: {}", known(groups()));
        }
    }
    if let Some(dir) = &asked.points {
        fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
    }
    let wanted: Vec<&Group> =
        groups().filter(|group| group.ids.iter().any(|id| asked.wants(id))).collect();
    let begin = Instant::now();
    let run = |(before, group): (usize, &&Group)| {
        let mut found = (group.run)(asked)?;
        found.rows.retain(|row| asked.wants(row.id));
        if asked.progress {
            let (done, all) = (before + 1, wanted.len());
            let left = time_left(begin.elapsed(), done, all);
            crate::tell!("{paper}: {done} of {all} groups of claims{left}");
        }
        Ok(found)
    };
    wanted.iter().enumerate().map(run).collect()
}

/// Of the points of a scenario at its scale on a seed: `holland-fig2-1of256-seed1.jsonl`.
fn file_name(name: &str, scenario: &Scenario, seed: u64) -> String {
    let scale = scenario.get("scale").and_then(Value::as_str).unwrap_or("1").replace('/', "of");
    format!("{name}-{scale}-seed{seed}.jsonl")
}

fn known<'a>(groups: impl Iterator<Item = &'a Group>) -> String {
    groups.flat_map(|group| group.ids.iter().copied()).collect::<Vec<_>>().join(", ")
}

/// Scenario files of the papers, by name.
#[macro_export]
macro_rules! scenario_file {
    ($name:literal) => {
        ($name, include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/scenarios/", $name, ".toml")))
    };
}
