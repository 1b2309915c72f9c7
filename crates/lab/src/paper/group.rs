// SPDX-License-Identifier: MIT OR Apache-2.0
//! A group: rows that come from the same runs, what is asked of it, and the runs that were made for it.
//!
//! Invariant: a scenario file is run once, whatever rows and figures are made of it.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::rc::Rc;

use anyhow::{Context, Result};
use toml::Value;

use super::row::Row;
use super::runs::Runs;
use crate::scenario::{Line, Scenario, sweeps};

/// Rows that come from the same runs.
pub struct Group {
    /// The claims that it answers.
    pub ids: &'static [&'static str],
    /// Runs and checks: its rows.
    pub run: fn(&Asked) -> Result<Vec<Row>>,
}

/// Runs of scenario files that were made for what is asked for, by name.
#[derive(Clone, Debug, Default)]
pub struct Made(RefCell<BTreeMap<String, Rc<Runs>>>);

/// What is asked for, and what was run for it.
#[derive(Clone, Debug, Default)]
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
    /// continues.
    pub points: Option<PathBuf>,
    /// The runs that were made.
    pub made: Made,
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
    fn run(&self, name: &str, text: &str) -> Result<Vec<Vec<Line>>> {
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

    /// The runs of a file, if they were made.
    pub(super) fn made(&self, name: &str) -> Option<Rc<Runs>> {
        self.made.0.borrow().get(name).map(Rc::clone)
    }

    pub(super) fn wants(&self, id: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| only == id)
    }
}

impl Runs {
    /// Those of a scenario file, which are made if they were not. Beside [`Asked`], as `runs.rs` knows nothing of groups.
    pub(super) fn of(asked: &Asked, (name, text): (&str, &str)) -> Result<Rc<Self>> {
        if let Some(runs) = asked.made(name) {
            return Ok(runs);
        }
        let runs = Rc::new(Self::new(asked.run(name, text)?));
        asked.made.0.borrow_mut().insert(name.to_owned(), Rc::clone(&runs));
        Ok(runs)
    }
}

/// Of the points of a scenario at its scale on a seed: `holland-fig2-1of256-seed1.jsonl`.
fn file_name(name: &str, scenario: &Scenario, seed: u64) -> String {
    let scale = scenario.get("scale").and_then(Value::as_str).unwrap_or("1").replace('/', "of");
    format!("{name}-{scale}-seed{seed}.jsonl")
}
