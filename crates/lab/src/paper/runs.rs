// SPDX-License-Identifier: MIT OR Apache-2.0
//! The runs of a scenario on every seed, and what rows are made of.

use anyhow::{Context, Result, anyhow};
use serde_json::Value as Json;

use super::row::At;
use crate::scenario::Line;

/// Bytes written to flash for each transaction.
pub(super) const FLASH_EACH: &str = "flash_bytes_per_transaction";
/// The hit ratio of the last hour.
pub(super) const HIT_RATIO: &str = "hit_ratio_last_hour";
/// Transactions a second in the last hour.
pub(super) const RATE: &str = "transactions_per_second_last_hour";
/// The mean of what transactions took in the last hour, in microseconds.
pub(super) const TOOK: &str = "transaction_us_mean";

/// A scenario on every seed.
#[derive(Debug)]
pub struct Runs(Vec<Vec<Line>>);

/// One seed's points.
#[derive(Clone, Copy)]
pub(super) struct Seed<'a>(&'a [Line]);

impl Seed<'_> {
    /// A number of the point that the grid set so, by JSON pointer; what is not named may be anything,
    /// the first counts.
    pub(super) fn number(self, at: &[(&str, &str)], pointer: &str) -> Result<f64> {
        let is_it = |line: &&Line| at.iter().all(|(path, value)| line.is_at(path, value));
        let line = self.0.iter().find(is_it).ok_or_else(|| anyhow!("no point at {at:?}"))?;
        let found = line.result.pointer(pointer).and_then(Json::as_f64);
        found.with_context(|| format!("no {pointer} at {at:?}"))
    }
}

impl Runs {
    pub(super) fn new(lines: Vec<Vec<Line>>) -> Self {
        Self(lines)
    }

    /// The scale that they were run at.
    pub(super) fn scale(&self) -> String {
        let scale = self.0.iter().flatten().next().and_then(|line| line.settings.get("scale"));
        scale.and_then(Json::as_str).unwrap_or_default().to_owned()
    }

    /// All seeds.
    pub(super) fn seeds(&self) -> impl Iterator<Item = Seed<'_>> {
        self.0.iter().map(|lines| Seed(lines))
    }

    /// All points of all seeds.
    pub(super) fn lines(&self) -> impl Iterator<Item = &Line> {
        self.0.iter().flatten()
    }

    /// A figure of each seed.
    pub(super) fn each<'a>(&'a self, of: impl Fn(Seed<'a>) -> Result<f64>) -> Result<Vec<f64>> {
        self.seeds().map(of).collect()
    }

    /// A number of each seed, see [`Seed::number`].
    pub(super) fn at(&self, set: &[(&str, &str)], pointer: &str) -> Result<Vec<f64>> {
        self.each(|seed| seed.number(set, pointer))
    }

    /// What was found where the grid set `path` so, by JSON pointer, of each seed.
    fn found(&self, path: &str, value: &str, pointer: &str) -> Result<Vec<&Json>> {
        let mut all = Vec::new();
        for lines in &self.0 {
            let line = lines.iter().find(|line| path.is_empty() || line.is_at(path, value));
            let found = line.and_then(|line| line.result.pointer(pointer));
            all.push(found.ok_or_else(|| anyhow!("no {pointer} at {path} {value}"))?);
        }
        Ok(all)
    }

    /// A number where the grid set `path` so, of each seed; of the only point with an empty path.
    pub(super) fn numbers(&self, path: &str, value: &str, pointer: &str) -> Result<Vec<f64>> {
        let number = |found: &Json| {
            found.as_f64().with_context(|| format!("{pointer} at {path} {value} is no number"))
        };
        self.found(path, value, pointer)?.into_iter().map(number).collect()
    }

    /// A list of numbers, likewise.
    pub(super) fn lists(&self, path: &str, value: &str, pointer: &str) -> Result<Vec<Vec<f64>>> {
        let list = |found: &Json| {
            let list = found.as_array().map(|all| all.iter().filter_map(Json::as_f64).collect());
            list.with_context(|| format!("{pointer} at {path} {value} is no list"))
        };
        self.found(path, value, pointer)?.into_iter().map(list).collect()
    }

    /// A figure of a system, of each seed.
    pub(super) fn system(&self, system: &str, figure: &str) -> Result<Vec<f64>> {
        self.numbers("system", system, &format!("/{figure}"))
    }

    /// The hit ratio of the last hour, in per cent as the paper has it.
    pub(super) fn hits(&self, system: &str) -> Result<Vec<f64>> {
        Ok(self.system(system, HIT_RATIO)?.iter().map(|ratio| ratio * 100.0).collect())
    }

    /// Transactions a second in the last hour.
    pub(super) fn rate(&self, system: &str) -> Result<Vec<f64>> {
        self.system(system, RATE)
    }

    /// The mean of what transactions took in the last hour, in microseconds.
    pub(super) fn took(&self, system: &str) -> Result<Vec<f64>> {
        self.system(system, TOOK)
    }
}

/// One seed's value over another's.
pub(super) fn over(ours: &[f64], peer: &[f64]) -> Vec<f64> {
    ours.iter().zip(peer).map(|(ours, peer)| ours / peer).collect()
}

/// Whether something is so of two values on every seed.
pub(super) fn always(one: &[f64], other: &[f64], is: impl Fn(f64, f64) -> bool) -> bool {
    !one.is_empty() && one.iter().zip(other).all(|(one, other)| is(*one, *other))
}

/// Whether each stands above the next on every seed.
pub(super) fn falling(all: &[&[f64]]) -> bool {
    all.windows(2).all(|pair| matches!(pair, [one, next] if always(one, next, |a, b| a > b)))
}

/// Whether a ratio is a gain (or loss) like the paper's on every seed: from half of it to twice as
/// much, 54 % more being a gain of 0.54.
pub(super) fn is_like(ours: &[f64], paper: f64) -> bool {
    !ours.is_empty() && ours.iter().all(|ours| is_gain(*ours, paper))
}

/// The same of one.
pub(super) fn is_gain(ours: f64, paper: f64) -> bool {
    (0.5..=2.0).contains(&((ours - 1.0) / (paper - 1.0)))
}

/// Whether a value is within a part of the paper's on every seed: what is asked where a paper prints a table.
pub(super) fn is_near(ours: &[f64], paper: f64, part: f64) -> bool {
    !ours.is_empty() && ours.iter().all(|ours| (ours / paper - 1.0).abs() <= part)
}

/// The median over seeds.
pub(super) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let count = sorted.len();
    let at = |i: usize| sorted.get(i).copied().unwrap_or(f64::NAN);
    (at((count.max(1) - 1) / 2) + at(count / 2)) / 2.0
}

/// The median to four digits: what is printed is what was found, not what it was found from.
pub(super) fn rounded(values: &[f64]) -> f64 {
    let value = median(values);
    if value == 0.0 || !value.is_finite() {
        return value;
    }
    let unit = 10f64.powi(3 - value.abs().log10().floor() as i32);
    (value * unit).round() / unit
}

/// The medians over seeds, element by element.
pub(super) fn medians(lists: &[Vec<f64>]) -> Vec<f64> {
    let count = lists.iter().map(Vec::len).min().unwrap_or(0);
    let of = |i: usize| lists.iter().filter_map(|list| list.get(i).copied()).collect::<Vec<_>>();
    (0..count).map(|i| median(&of(i))).collect()
}

/// A point of a row: the paper's value, and the median of ours.
pub(super) fn at(at: impl Into<String>, paper: impl Into<Option<f64>>, ours: &[f64]) -> At {
    At { at: at.into(), paper: paper.into(), ours: Some(rounded(ours)) }
}

/// The lowest and the highest of the seeds.
pub(super) fn range(values: &[f64]) -> String {
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    format!("{} to {}", larder_report::number(least), larder_report::number(most))
}

/// The reason of a verdict: the one if the claim holds, the other if it differs.
pub(super) fn either(holds: bool, if_so: &str, otherwise: &str) -> String {
    if holds { if_so } else { otherwise }.to_owned()
}

/// What was found at each point, in one line.
pub(super) fn listed(points: &[At]) -> String {
    let ours = points.iter().filter_map(|point| point.ours);
    ours.map(larder_report::number).collect::<Vec<_>>().join("; ")
}

/// The mean of values; 0 without any.
pub(super) fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}
