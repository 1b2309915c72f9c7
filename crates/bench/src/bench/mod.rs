// SPDX-License-Identifier: MIT OR Apache-2.0
//! The benches behind `larder bench`.
//!
//! Purpose: every figure of the project's tables, measured by one command, beside the figure of the bare device
//! or of a comparison system from the same minutes. [`run`] returns [`Row`]s, and pictures for a
//! [report](larder_report); a goal that was missed is a row like any other.
//!
//! Method: both sides take turns (A, B, B, A ...), and a ratio is the median over such
//! pairs, because machines are noisy and shared; the quieter rounds count (`quiet.rs`). If a tool is missing, its rows
//! are skipped with one line, and the other benches run.
//!
//! Why not criterion: it compares a function with its own past. Here two programs run side by
//! side, for seconds at a time, and the result is a ratio.

mod all_hits;
mod child;
mod cold_miss;
mod common;
mod desktop;
mod endurance;
mod figures;
mod fuse;
mod heat;
mod hit_path;
mod inline;
mod journal;
mod memory;
mod nbd;
mod ordered;
mod quiet;
mod recorder;
mod recovery;
mod replay;
mod row;
mod table;
mod throughput;
mod timing;
mod verify;
mod volume;
mod volumes;
mod warm_restart;
mod warm_up;
mod write_budget;

use anyhow::{Result, bail};

use self::common::progress;
pub use self::common::{BenchOptions, Findings};
pub use self::row::Row;
pub use self::table::{print_table, sheet};

type Bench = fn(&BenchOptions) -> Result<Findings>;

const BENCHES: &[(&str, Bench)] = &[
    ("memory", |o| Ok(memory::run(o)?.into())),
    ("hit-path", |o| Ok(hit_path::run(o)?.into())),
    ("recorder", |o| Ok(recorder::run(o)?.into())),
    ("verify", |o| Ok(verify::run(o)?.into())),
    ("nbd", |o| Ok(nbd::run(o)?.into())),
    ("fuse", |o| Ok(fuse::run(o)?.into())),
    ("cold-miss", |o| Ok(cold_miss::run(o)?.into())),
    ("warm-up", warm_up::run),
    ("throughput", throughput::run),
    ("endurance", endurance::run),
    ("write-budget", write_budget::run),
    ("journal", journal::run),
    ("ordered", ordered::run),
    ("heat", |o| Ok(heat::run(o)?.into())),
    ("warm-restart", warm_restart::run),
    ("recovery", |o| Ok(recovery::run(o)?.into())),
    ("desktop", desktop::run),
    ("volumes", |o| Ok(volumes::run(o)?.into())),
    ("replay", |o| Ok(replay::run(o)?.into())),
    ("timing", |o| Ok(timing::run(o)?.into())),
];
const NAMES: [&str; 20] = [
    "memory",
    "hit-path",
    "recorder",
    "verify",
    "nbd",
    "fuse",
    "cold-miss",
    "warm-up",
    "throughput",
    "endurance",
    "write-budget",
    "journal",
    "ordered",
    "heat",
    "warm-restart",
    "recovery",
    "desktop",
    "volumes",
    "replay",
    "timing",
];

/// The names of the benches that there are, in the order of `all`.
#[must_use]
pub fn names() -> &'static [&'static str] {
    &NAMES
}

/// Runs benches by name, `all` for every one but the regret table ([`larder_lab::regret`]), which takes hours; progress goes to standard error.
///
/// # Errors
/// When a name is not known, before anything runs; when the only bench asked for cannot run. One
/// of several that cannot run is a row that states why.
pub fn run(names: &[String], options: &BenchOptions) -> Result<Findings> {
    let mut chosen = Vec::new();
    for name in names {
        if name == "all" {
            chosen.extend(BENCHES);
        } else if let Some(bench) = BENCHES.iter().find(|(known, _)| known == name) {
            chosen.push(bench);
        } else {
            bail!(
                "bench '{name}' is not known; accepted: all, {}, or regret alone",
                NAMES.join(", ")
            );
        }
    }
    let mut found = Findings::default();
    for (name, bench) in &chosen {
        progress(name, "starts");
        match bench(options) {
            Ok(more) => {
                found.rows.extend(more.rows);
                found.figures.extend(more.figures);
            }
            Err(error) if chosen.len() > 1 => {
                progress(name, format!("did not run: {error:#}"));
                found.rows.push(Row::new(name, "did not run", "").note(format!("{error:#}")));
            }
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_benches_agree() {
        assert!(BENCHES.iter().map(|(name, _)| *name).eq(NAMES));
    }

    #[test]
    fn an_unknown_name_is_refused_before_anything_runs() {
        let names = ["memory".to_owned(), "memroy".to_owned()];
        let error = run(&names, &BenchOptions::default()).unwrap_err().to_string();
        assert_eq!(
            error,
            format!(
                "bench 'memroy' is not known; accepted: all, {}, or regret alone",
                NAMES.join(", ")
            )
        );
    }
}
