// SPDX-License-Identifier: MIT OR Apache-2.0
//! A measured figure beside the bare device's or a peer's: one element of `bench --json`.
//!
//! Invariants: `ratio` is the median over pairs of runs that stood side by side, not the quotient
//! of the two medians, so that a machine that slows down for a minute does not show; `min` and
//! `max` are the lowest and the highest of those pairs. `reached` follows from the goals alone.

use serde::{Deserialize, Serialize};

/// One figure, see the module. Keys are those of the contract and a few more.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The bench.
    pub name: String,
    /// Which of its cases.
    pub case: String,
    /// Larder's figure.
    pub ours: Option<f64>,
    /// The bare device's, the peer's or the declared figure.
    pub peer: Option<f64>,
    /// `ours` to `peer`; where a case compares times, how many times faster ours is.
    pub ratio: Option<f64>,
    /// The goal, in words; nothing if the figure is for information.
    pub goal: Option<String>,
    /// Whether all of it was reached.
    pub reached: Option<bool>,
    /// Of `ours` and `peer`.
    pub unit: String,
    /// How to measure it again.
    pub command: String,
    /// What `peer` is.
    pub against: String,
    /// The lowest ratio of a pair.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub min: Option<f64>,
    /// The highest ratio of a pair.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub max: Option<f64>,
    /// How many pairs or seeds.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub runs: Option<usize>,
    /// A note.
    #[serde(skip_serializing_if = "String::is_empty", default)]
    pub note: String,
}

/// The goal of a figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Goal {
    /// `ours` at most this, in the row's unit.
    OursAtMost(f64),
    /// `ours` at least this, in the row's unit.
    OursAtLeast(f64),
    /// `ours` minus `peer` at most this, in the row's unit.
    AddsAtMost(f64),
    /// The ratio at least this.
    RatioAtLeast(f64),
    /// The ratio at most this.
    RatioAtMost(f64),
    /// The ratio this far from 1 at the most.
    Within(f64),
}

impl Goal {
    fn words(self, unit: &str) -> String {
        match self {
            Self::OursAtMost(x) => format!("<= {x} {unit}"),
            Self::OursAtLeast(x) => format!(">= {x} {unit}"),
            Self::AddsAtMost(x) => format!("adds <= {x} {unit}"),
            Self::RatioAtLeast(x) => format!("ratio >= {x}"),
            Self::RatioAtMost(x) => format!("ratio <= {x}"),
            Self::Within(x) => format!("within {} %", x * 100.0),
        }
    }

    fn reached(self, row: &Row) -> Option<bool> {
        Some(match self {
            Self::OursAtMost(x) => row.ours? <= x,
            Self::OursAtLeast(x) => row.ours? >= x,
            Self::AddsAtMost(x) => row.ours? - row.peer? <= x,
            Self::RatioAtLeast(x) => row.ratio? >= x,
            Self::RatioAtMost(x) => row.ratio? <= x,
            Self::Within(x) => (row.ratio? - 1.0).abs() <= x,
        })
    }
}

/// A ratio over several pairs of runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Spread {
    pub median: f64,
    pub min: f64,
    pub max: f64,
    pub runs: usize,
}

impl Spread {
    /// Of `ours[i] / peer[i]`; nothing if there is no pair.
    pub(super) fn of(ours: &[f64], peer: &[f64]) -> Option<Self> {
        let ratios: Vec<f64> =
            ours.iter().zip(peer).filter(|(_, p)| **p > 0.0).map(|(o, p)| o / p).collect();
        let min = ratios.iter().copied().reduce(f64::min)?;
        let max = ratios.iter().copied().reduce(f64::max)?;
        Some(Self { median: median(&ratios), min, max, runs: ratios.len() })
    }
}

/// The median; 0 of nothing.
pub(super) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    match sorted.len() {
        0 => 0.0,
        n if n % 2 == 1 => sorted[n / 2],
        n => f64::midpoint(sorted[n / 2 - 1], sorted[n / 2]),
    }
}

impl Row {
    pub(super) fn new(name: &str, case: impl Into<String>, unit: &str) -> Self {
        Self {
            name: name.to_owned(),
            case: case.into(),
            unit: unit.to_owned(),
            command: format!("larder bench {name}"),
            ..Self::default()
        }
    }

    /// One figure beside one other.
    pub(super) fn against(mut self, what: &str, ours: f64, peer: f64) -> Self {
        self.against = what.to_owned();
        (self.ours, self.peer) = (Some(ours), Some(peer));
        self.ratio = (peer != 0.0).then(|| ours / peer);
        self
    }

    /// A figure that stands alone.
    pub(super) fn alone(mut self, ours: f64) -> Self {
        self.ours = Some(ours);
        self
    }

    /// Figures of runs that stood side by side.
    pub(super) fn paired(mut self, what: &str, ours: &[f64], peer: &[f64]) -> Self {
        self = self.against(what, median(ours), median(peer));
        if let Some(spread) = Spread::of(ours, peer) {
            self.ratio = Some(spread.median);
            (self.min, self.max) = (Some(spread.min), Some(spread.max));
            self.runs = Some(spread.runs);
        }
        self
    }

    /// Times of runs that stood side by side; the ratio states how many times faster ours is.
    pub(super) fn faster(mut self, what: &str, ours: &[f64], peer: &[f64]) -> Self {
        self = self.paired(what, ours, peer);
        if let Some(spread) = Spread::of(peer, ours) {
            self.ratio = Some(spread.median);
            (self.min, self.max) = (Some(spread.min), Some(spread.max));
        }
        self
    }

    /// Comes after the figures.
    pub(super) fn goals(mut self, goals: &[Goal]) -> Self {
        let words: Vec<String> = goals.iter().map(|g| g.words(&self.unit)).collect();
        self.goal = Some(words.join(" and "));
        let reached: Option<Vec<bool>> = goals.iter().map(|g| g.reached(&self)).collect();
        self.reached = reached.map(|all| all.into_iter().all(|r| r));
        self
    }

    pub(super) fn note(mut self, note: impl Into<String>) -> Self {
        self.note = note.into();
        self
    }

    pub(super) fn command(mut self, command: impl Into<String>) -> Self {
        self.command = command.into();
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ratio_is_the_median_of_the_pairs() {
        // The machine was three times slower during the second pair.
        let row = Row::new("x", "", "IOPS")
            .paired("bare", &[90.0, 30.0, 100.0], &[100.0, 33.0, 100.0])
            .goals(&[Goal::RatioAtLeast(0.9)]);
        assert_eq!((row.ratio, row.runs, row.reached), (Some(30.0 / 33.0), Some(3), Some(true)));
        assert_eq!((row.min, row.max), (Some(0.9), Some(1.0)));
    }

    #[test]
    fn every_goal_has_to_be_reached() {
        let row = Row::new("x", "", "GiB").against("declared", 0.5, 0.4);
        let row = row.goals(&[Goal::OursAtMost(0.7), Goal::Within(0.05)]);
        assert_eq!(row.goal.as_deref(), Some("<= 0.7 GiB and within 5 %"));
        assert_eq!(row.reached, Some(false));
    }

    #[test]
    fn json_has_the_keys_of_the_contract() {
        let json = serde_json::to_value(Row::new("x", "", "us").alone(1.0)).unwrap();
        for key in ["name", "ours", "peer", "ratio", "goal", "unit", "command"] {
            assert!(json.get(key).is_some(), "{key}");
        }
    }
}
