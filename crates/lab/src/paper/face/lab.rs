// SPDX-License-Identifier: MIT OR Apache-2.0
//! The runs that rows share, where their figures stand, and how those are compared.

use std::rc::Rc;

use anyhow::Result;

use super::super::Asked;
use super::super::runs::{Runs, always};

/// The sizes of flash in the paper's tables, in GB.
pub(super) const SIZES: [&str; 5] = ["4", "8", "12", "16", "20"];
pub(super) const SYSTEM: &str = "system";
pub(super) const FLASH: &str = "flash_gib";
pub(super) const TPMC: &str = "/tpmc";
pub(super) const HITS: &str = "/flash_hit_ratio";
pub(super) const REDUCTION: &str = "/write_reduction";

/// What was changed of rows of throughput after a first run.
pub(super) const CHANGED: &str = "transactions take processor time, fitted to LC";
/// What was changed of rows of bcache.
pub(super) const BUCKETS_CHANGED: &str =
    "bcache empties its buckets in the order of the engine's preset";
/// What was changed of rows of FaCE-Basic.
pub(super) const BASIC_CHANGED: &str =
    "FaCE-Basic writes batches, as the engine's preset of that name (before: single pages)";

/// The runs that most rows are made of.
pub(super) fn sizes(asked: &Asked) -> Result<Rc<Runs>> {
    Runs::of(asked, crate::scenario_file!("face-sizes"))
}

/// A figure of a system at each size of flash, on each seed.
pub(super) fn by_size(runs: &Runs, system: &str, pointer: &str) -> Result<Vec<Vec<f64>>> {
    SIZES.iter().map(|gb| runs.at(&[(SYSTEM, system), (FLASH, gb)], pointer)).collect()
}

/// Whether something is so of two systems at each size, on every seed.
pub(super) fn everywhere(
    one: &[Vec<f64>],
    other: &[Vec<f64>],
    is: impl Fn(f64, f64) -> bool,
) -> bool {
    !one.is_empty() && one.iter().zip(other).all(|(one, other)| always(one, other, &is))
}

/// Whether it grows from each size to the next, on every seed.
pub(super) fn rises(sizes: &[Vec<f64>]) -> bool {
    sizes.windows(2).all(|pair| match pair {
        [one, next] => always(one, next, |one, next| one < next),
        _ => false,
    })
}

/// In percent.
pub(super) fn percent(values: &[f64]) -> Vec<f64> {
    values.iter().map(|value| value * 100.0).collect()
}

/// How a check came out, for the row's own words.
pub(super) fn said(checks: &[(&str, bool)]) -> String {
    let words: Vec<String> = checks
        .iter()
        .map(|(what, holds)| format!("{what}: {}", if *holds { "yes" } else { "no" }))
        .collect();
    words.join("; ")
}

/// The checks that did not hold and why, as a sentence.
pub(super) fn not_so(checks: &[(&str, bool)], because: &str) -> String {
    let not: Vec<&str> = checks.iter().filter(|(_, holds)| !holds).map(|(what, _)| *what).collect();
    format!("Not so on every seed: {}, because {because}.", not.join("; "))
}

pub(super) fn all(checks: &[(&str, bool)]) -> bool {
    checks.iter().all(|(_, holds)| *holds)
}
