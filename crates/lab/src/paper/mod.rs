// SPDX-License-Identifier: MIT OR Apache-2.0
//! Every claim of the four papers, and whether it reproduces.
//!
//! A paper is a list of *groups*: rows that come from the same runs. A group runs its scenario files
//! (`crates/lab/scenarios/`), on every seed, and checks the results. A row states what it asks and why it
//! allows that much; a shape holds only if it holds on every seed. What was fixed only after a first run
//! is stated in the row. A row that differs stays in the output.
//!
//! Tolerances, where a row has no reason for another:
//! - **A table** of a paper is asked for to a tenth, or to twice what the paper's own figures of the same thing
//!   differ by.
//! - **A gain** that a paper gives in its text ("54 % more") counts from half of it to twice as much, because a
//!   load that stands in for another cannot be expected to do better: the paper's own gains of the same two
//!   systems spread as far.
//! - **A bound** ("within 6 %", "at most") is taken as it stands. **An order** is strict.
//!
//! Invariants: each claim of `claims.toml` belongs to one group (a test compares them); what a paper
//! states is no input of any run.

mod claims;
mod face;
mod figures;
mod group;
mod holland;
mod page;
mod prwc;
mod row;
mod runs;
mod sce;
mod sheet;

use std::fs;
use std::time::Instant;

use anyhow::{Context, Result, bail};

pub use self::claims::{Claim, Class, Paper, claims};
pub use self::group::{Asked, Group, Made, SEEDS};
pub use self::page::page;
pub use self::row::{At, Kind, Row, Verdict};
pub use self::sheet::report;
use crate::jobs::time_left;

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

/// Runs what was asked for of a paper, or of all: the rows that were found.
///
/// # Errors
/// If there is no such paper or row, or a run fails.
pub fn run(paper: &str, asked: &Asked) -> Result<Vec<Row>> {
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
        found.retain(|row| asked.wants(row.id));
        if asked.progress {
            let (done, all) = (before + 1, wanted.len());
            let left = time_left(begin.elapsed(), done, all);
            crate::tell!("{paper}: {done} of {all} groups of claims{left}");
        }
        Ok(found)
    };
    let found: Vec<Vec<Row>> = wanted.iter().enumerate().map(run).collect::<Result<_>>()?;
    Ok(found.into_iter().flatten().collect())
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
