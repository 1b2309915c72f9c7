// SPDX-License-Identifier: MIT OR Apache-2.0
//! A claim of a paper, and what we found: one element of `larder paper --json`.
//!
//! Invariants: what the paper says stands in `paper` and in the points' `paper` alone, and no check
//! puts it in the place of what was found; a row whose check fails stays, with what was found.

use serde::Serialize;
use serde_json::Value as Json;

/// How a claim is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Arithmetic or an invariant: equal, or not.
    Exact,
    /// An order, a crossover, a slope.
    Shape,
    /// A number, within a tolerance that is argued beforehand.
    Absolute,
}

/// What became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// On every seed.
    Holds,
    /// At least once not.
    Differs,
    /// It cannot be asked here.
    NotReproducible,
}

impl Verdict {
    /// In words.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Holds => "holds",
            Self::Differs => "differs",
            Self::NotReproducible => "not reproducible",
        }
    }
}

/// A value at a place of a figure or table.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct At {
    /// Where.
    pub at: String,
    /// The paper's value, where it gives one.
    pub paper: Option<f64>,
    /// Ours, the median over seeds.
    pub ours: Option<f64>,
}

/// A claim and what we found.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// As in the tables: S6, H11, P15.
    pub id: &'static str,
    /// What the paper claims.
    pub claim: &'static str,
    /// Its number or words.
    pub paper: Json,
    /// Ours.
    pub ours: Json,
    /// The values of a figure or table.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub points: Vec<At>,
    /// Of the values.
    pub unit: &'static str,
    /// How it is checked.
    pub kind: Kind,
    /// The scale of what was run.
    pub scale: String,
    /// What became of it.
    pub verdict: Verdict,
    /// What was checked, with which tolerance and why; what is different, and why.
    pub why: String,
}

impl Row {
    /// A claim that cannot be asked here.
    #[must_use]
    pub fn not_reproducible(id: &'static str, claim: &'static str, paper: Json, why: &str) -> Self {
        Self {
            id,
            claim,
            paper,
            ours: Json::Null,
            points: Vec::new(),
            unit: "",
            kind: Kind::Absolute,
            scale: String::new(),
            verdict: Verdict::NotReproducible,
            why: why.to_owned(),
        }
    }

    /// A claim with its kind, to be filled by the `with`-functions.
    #[must_use]
    pub fn new(id: &'static str, claim: &'static str, kind: Kind, unit: &'static str) -> Self {
        Self { kind, unit, ..Self::not_reproducible(id, claim, Json::Null, "") }
    }

    /// What the paper says and what we found, in one number or in words each.
    #[must_use]
    pub fn values(mut self, paper: impl Into<Json>, ours: impl Into<Json>) -> Self {
        (self.paper, self.ours) = (paper.into(), ours.into());
        self
    }

    /// The values of a figure or table.
    #[must_use]
    pub fn points(mut self, points: Vec<At>) -> Self {
        self.points = points;
        self
    }

    /// The scale of what was run.
    #[must_use]
    pub fn at_scale(mut self, scale: impl Into<String>) -> Self {
        self.scale = scale.into();
        self
    }

    /// Whether the claim holds, and what was asked of it.
    #[must_use]
    pub fn verdict(mut self, holds: bool, why: impl Into<String>) -> Self {
        self.verdict = if holds { Verdict::Holds } else { Verdict::Differs };
        self.why = why.into();
        self
    }

    /// The paper's value in words.
    #[must_use]
    pub fn paper_text(&self) -> String {
        text(&self.paper)
    }

    /// Ours in words.
    #[must_use]
    pub fn ours_text(&self) -> String {
        text(&self.ours)
    }
}

fn text(value: &Json) -> String {
    match value {
        Json::Null => String::new(),
        Json::String(text) => text.clone(),
        Json::Number(n) => n.as_f64().map(larder_report::number).unwrap_or_default(),
        other => other.to_string(),
    }
}
