// SPDX-License-Identifier: MIT OR Apache-2.0
//! `larder bench regret`: every preset over many loads, origins and sizes, beside the best other one.
//!
//! Why not among the benches of `all`: it takes hours, and its table has a shape of its own.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::Args;
use comfy_table::{Table, presets};
use larder_lab::regret::{self, Asked, Extremes, Regret, RowFound, Size};
use larder_report::{self as report, About, Section, number};

use crate::out;
use crate::units::jobs;

/// The name of the bench.
const NAME: &str = "regret";

/// Flags of this bench alone.
#[derive(Args, Debug, Default)]
#[command(next_help_heading = "The bench regret")]
pub struct RegretArgs {
    /// Only these rows, loads, origins and sizes, as sce,bcache+journal,oltp,cloud,5%
    ///
    /// A kind of which nothing is named is run in full. No cache is always run.
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub only: Vec<String>,
    /// Directory whose traces are loads too
    #[arg(long, value_name = "DIR")]
    pub traces: Option<PathBuf>,
    /// Directory that keeps the results of all runs; a later command continues from them
    ///
    /// The results are of one version of this program.
    #[arg(long, value_name = "DIR")]
    pub points: Option<PathBuf>,
    /// Seed of loads and devices; equal seeds give equal results on any machine [default: 1]
    #[arg(long, value_name = "N")]
    pub seed: Option<i64>,
    /// Threads; results do not depend on them [default: one for each processor]
    #[arg(long, value_name = "N", value_parser = jobs)]
    pub jobs: Option<usize>,
}

impl RegretArgs {
    /// A flag that was given.
    fn given(&self) -> Option<&'static str> {
        let given = [
            ("--only", !self.only.is_empty()),
            ("--traces", self.traces.is_some()),
            ("--points", self.points.is_some()),
            ("--seed", self.seed.is_some()),
            ("--jobs", self.jobs.is_some()),
        ];
        given.into_iter().find(|(_, given)| *given).map(|(flag, _)| flag)
    }
}

/// Whether the names ask for this bench.
///
/// # Errors
/// It is asked for with others, or its flags without it.
pub(super) fn is_asked(names: &[String], own: &RegretArgs) -> Result<bool> {
    match names.iter().position(|name| name == NAME) {
        Some(_) if names.len() > 1 => bail!("bench '{NAME}' takes hours; accepted: alone"),
        Some(_) => Ok(true),
        None => match own.given() {
            Some(flag) => {
                bail!("{flag} is for the bench {NAME}; accepted: larder bench {NAME} {flag}")
            }
            None => Ok(false),
        },
    }
}

/// How large the table is, and where it goes.
pub(super) struct How<'a> {
    pub(super) quick: bool,
    pub(super) json: bool,
    pub(super) report: Option<&'a Path>,
}

/// Runs it.
pub(super) fn regret(own: &RegretArgs, how: &How<'_>) -> Result<()> {
    let found = regret::run(&Asked {
        size: if how.quick { Size::QUICK } else { Size::FULL },
        seed: own.seed.unwrap_or(1),
        only: own.only.clone(),
        traces: own.traces.clone(),
        points: own.points.clone(),
        jobs: own.jobs,
    })?;
    if let Some(path) = how.report {
        let about = About {
            title: "Larder: the regret table".to_owned(),
            command: out::command_line(),
            seeds: found.seed.to_string(),
        };
        let (rows, folded) = regret::tables(&found);
        let figures = Section { figures: regret::figures(&found), folded, ..Section::default() };
        let html = report::html(&about, &[Section::table(rows), figures]);
        std::fs::write(path, html).with_context(|| format!("cannot write {}", path.display()))?;
    }
    if how.json {
        return out::line(serde_json::to_string(&found)?);
    }
    out::line(table(&found))
}

fn table(found: &Regret) -> Table {
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN);
    table.set_header([
        "row",
        "contract",
        "worst",
        "where",
        "median",
        "below 1",
        "over no cache: worst",
        "where",
        "median",
    ]);
    for row in &found.rows {
        let regret = row.regret.as_ref();
        let [worst, place, median] = extremes(found, regret);
        let below = regret.map(|one| format!("{} of {}", one.cells_below_one, one.cells));
        let [none_worst, none_place, none_median] = extremes(found, row.over_no_cache.as_ref());
        let RowFound { row, contract, .. } = row;
        let below = below.unwrap_or_else(|| "-".to_owned());
        let contract = contract.name().to_owned();
        let cells = [row.clone(), contract, worst, place, median, below];
        table.add_row(cells.into_iter().chain([none_worst, none_place, none_median]));
    }
    table
}

/// The worst ratio, its cell with the best other row there, and the median.
fn extremes(found: &Regret, extremes: Option<&Extremes>) -> [String; 3] {
    let Some(one) = extremes else { return ["-", "", "-"].map(str::to_owned) };
    let place = found.cells.get(one.worst_cell).map(larder_lab::regret::Cell::place);
    [number(one.worst_ratio), place.unwrap_or_default(), number(one.median_ratio)]
}
