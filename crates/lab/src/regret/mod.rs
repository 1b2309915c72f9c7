// SPDX-License-Identifier: MIT OR Apache-2.0
//! The regret table: every preset over many loads, origins and sizes of flash, each beside the best other preset that
//! gives a client the same contract.
//!
//! A user cannot know in advance which cache fits their load. What counts for a default is therefore how much it loses
//! where it fits least. [`Plan`] lists what is run, `cells.rs` runs it in virtual time, `judge.rs` has the arithmetic,
//! `page.rs` the pictures.
//!
//! Each run is a closed loop over a cold cache. The first half of the requests is not counted, except for the flash
//! bytes and the warm-up.
//!
//! Invariants: the table follows from [`Asked`] alone; rows of one cell get the same requests, the same devices and the
//! same bytes of flash; a run that was kept is not run again.

mod cells;
mod judge;
mod page;
mod plan;
mod rows;
#[cfg(test)]
mod tests;

use anyhow::Result;
use serde::Serialize;

use self::cells::Run;
use self::judge::{Verdict, judge, verdict};
pub use self::page::{figures, tables};
pub use self::plan::{Asked, ORIGINS, PERCENTS, Plan, Size};
pub use self::rows::{Contract, Row};
use crate::replays::Point;
use crate::scenario::volume::FLASH_PROFILE;

/// A load of the table.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LoadFound {
    /// Its name.
    pub name: String,
    /// What it asks for.
    pub about: String,
    /// Bytes of all different pages that it asks for.
    pub footprint_bytes: u64,
}

/// A row in a cell.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Cell {
    /// The row.
    pub row: String,
    /// The load.
    pub load: String,
    /// The origin's device profile.
    pub origin: &'static str,
    /// Flash of the footprint; null where there is no cache.
    pub flash_percent: Option<u32>,
    /// The best other row of the same contract here.
    pub best_other: Option<String>,
    /// Throughput over that row's.
    pub ratio: Option<f64>,
    /// Throughput over that without a cache.
    pub over_no_cache_ratio: Option<f64>,
    /// What the run came to.
    pub point: Point,
}

impl Cell {
    /// Its place: load, origin, and size where it has one.
    #[must_use]
    pub fn place(&self) -> String {
        let size = self.flash_percent.map(|percent| format!(", {percent} %"));
        format!("{}, {}{}", self.load, self.origin, size.unwrap_or_default())
    }
}

/// The worst and the median cell of a row by a ratio.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Extremes {
    /// The lowest ratio ...
    pub worst_ratio: f64,
    /// ... and the cell that has it, by its place in the list of cells.
    pub worst_cell: usize,
    /// The median.
    pub median_ratio: f64,
    /// Cells below 1 ...
    pub cells_below_one: usize,
    /// ... of so many.
    pub cells: usize,
}

impl From<Verdict> for Extremes {
    fn from(verdict: Verdict) -> Self {
        Self {
            worst_ratio: verdict.worst.ratio,
            worst_cell: verdict.worst.run,
            median_ratio: verdict.median_ratio,
            cells_below_one: verdict.below_one,
            cells: verdict.cells,
        }
    }
}

/// A row over all cells.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RowFound {
    /// Its name.
    pub row: String,
    /// What a client may rely on.
    pub contract: Contract,
    /// Over the best other row of the contract; null where none competes.
    pub regret: Option<Extremes>,
    /// Over no cache.
    pub over_no_cache: Option<Extremes>,
}

/// The table.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Regret {
    /// `full` or `quick`.
    pub size: &'static str,
    /// Of loads and devices.
    pub seed: i64,
    /// The flash device's profile.
    pub flash_profile: &'static str,
    /// The loads.
    pub loads: Vec<LoadFound>,
    /// The rows.
    pub rows: Vec<RowFound>,
    /// The cells, by row, load, origin and size.
    pub cells: Vec<Cell>,
}

/// Runs what is asked for.
///
/// # Errors
/// A name is not known, a run fails, or files cannot be read or written.
pub fn run(asked: &Asked) -> Result<Regret> {
    let plan = Plan::of(asked)?;
    let found = cells::run(asked, &plan)?;
    let judged = judge(&plan.rows, &found.runs);
    let row_found = |(place, row): (usize, &Row)| {
        let own =
            || found.runs.iter().zip(&judged).enumerate().filter(|(_, (run, _))| run.row == place);
        let regret = verdict(own().filter_map(|(i, (_, one))| Some((i, one.best?.1))));
        let none = verdict(own().filter_map(|(i, (_, one))| Some((i, one.over_no_cache?))));
        RowFound {
            row: row.name.clone(),
            contract: row.contract,
            regret: regret.map(Extremes::from),
            over_no_cache: none.map(Extremes::from),
        }
    };
    let rows = plan.rows.iter().enumerate().map(row_found).collect();
    let cells = found.runs.into_iter().zip(judged).map(|(run, judged)| cell(&plan, run, &judged));
    let load_found = |(load, bytes): (&plan::Load, u64)| LoadFound {
        name: load.name.clone(),
        about: load.about.clone(),
        footprint_bytes: bytes,
    };
    Ok(Regret {
        size: asked.size.name,
        seed: asked.seed,
        flash_profile: FLASH_PROFILE,
        loads: plan.loads.iter().zip(found.footprint_bytes).map(load_found).collect(),
        rows,
        cells: cells.collect(),
    })
}

fn cell(plan: &Plan, run: Run, judged: &judge::Judged) -> Cell {
    let row = |place: usize| plan.rows.get(place).map(|row| row.name.clone()).unwrap_or_default();
    Cell {
        row: row(run.row),
        load: plan.loads.get(run.place.load).map(|load| load.name.clone()).unwrap_or_default(),
        origin: plan.origins.get(run.place.origin).copied().unwrap_or_default(),
        flash_percent: run.place.percent.and_then(|place| plan.percents.get(place).copied()),
        best_other: judged.best.map(|(best, _)| row(best)),
        ratio: judged.best.map(|(_, ratio)| ratio),
        over_no_cache_ratio: judged.over_no_cache,
        point: run.point,
    }
}
