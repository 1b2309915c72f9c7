// SPDX-License-Identifier: MIT OR Apache-2.0
//! The input and the result of every bench.

use std::path::PathBuf;

use anyhow::{Context, Result};
use larder_report::Figure;

use super::row::Row;

/// Options for all benches of a run.
#[derive(Clone, Debug)]
pub struct BenchOptions {
    /// Where files that stand for devices are made.
    pub dir: PathBuf,
    /// Short runs on small volumes, to see that everything works. The figures are rough.
    pub quick: bool,
    /// Whether the caller prints JSON; changes nothing here.
    pub json: bool,
    /// The `larder` to start as a server or child; without, this very program.
    pub larder: Option<PathBuf>,
}

impl Default for BenchOptions {
    fn default() -> Self {
        Self { dir: std::env::temp_dir(), quick: false, json: false, larder: None }
    }
}

impl BenchOptions {
    /// The `larder` to start.
    pub(super) fn larder(&self) -> Result<PathBuf> {
        match &self.larder {
            Some(path) => Ok(path.clone()),
            None => std::env::current_exe().context("the path of this program"),
        }
    }
}

/// What benches found.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    /// The rows, in order.
    pub rows: Vec<Row>,
    /// Pictures for a report; benches in real time have none.
    pub figures: Vec<Figure>,
}

impl From<Vec<Row>> for Findings {
    fn from(rows: Vec<Row>) -> Self {
        Self { rows, figures: Vec::new() }
    }
}

/// Prints a line of progress.
pub(super) fn progress(name: &str, what: impl std::fmt::Display) {
    larder_lab::tell!("bench {name}: {what}");
}
