// SPDX-License-Identifier: MIT OR Apache-2.0
//! A group: rows that come from the same runs, what is asked of it, and what it found.

use std::path::PathBuf;

use anyhow::{Context, Result};
use larder_report::Figure;
use toml::Value;

use super::row::Row;
use crate::scenario::{Line, Scenario, sweeps};

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

/// What is asked for.
#[derive(Clone, Debug)]
pub struct Asked {
    /// Replaces the scale of every scenario that has one: `1/16`.
    pub scale: Option<String>,
    /// The first of three seeds.
    pub seed: u64,
    /// Only these rows; all without.
    pub only: Vec<String>,
    /// Whether to print progress on standard error.
    pub progress: bool,
    /// Where the points of all scenarios go, a file for each seed, and come from: an interrupted command
    /// continues, and runs that two groups share are made once.
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
        let each = |seed: u64| {
            let mut one = scenario.clone();
            let seed_value = i64::try_from(seed).context("the seed is too large")?;
            one.set("seed", Value::Integer(seed_value))?;
            one.name = format!("{name}, seed {seed}");
            let file = self.points.as_ref().map(|dir| dir.join(file_name(name, &one, seed)));
            Ok((one, file))
        };
        let all: Vec<(Scenario, Option<PathBuf>)> =
            self.seeds().into_iter().map(each).collect::<Result<_>>()?;
        let all: Vec<_> = all.iter().map(|(one, file)| (one, file.as_deref())).collect();
        sweeps(&all, None, self.progress)
    }

    pub(super) fn wants(&self, id: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| only == id)
    }
}

/// Of the points of a scenario at its scale on a seed: `holland-fig2-1of256-seed1.jsonl`.
fn file_name(name: &str, scenario: &Scenario, seed: u64) -> String {
    let scale = scenario.get("scale").and_then(Value::as_str).unwrap_or("1").replace('/', "of");
    format!("{name}-{scale}-seed{seed}.jsonl")
}
