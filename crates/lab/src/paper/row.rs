// SPDX-License-Identifier: MIT OR Apache-2.0
//! A claim of a paper, and what was found: one element of `larder paper --json`.
//!
//! Invariants: the claim comes from `claims.toml`. The paper's values are in `paper`, and in `paper` of the points; no check
//! copies them to `ours`. A row whose check fails is reported like any other.

use anyhow::Result;
use serde::Serialize;
use serde_json::Value as Json;

use super::claims::claim;

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

/// The verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// On every seed.
    Holds,
    /// At least once not.
    Differs,
    /// It cannot be checked here.
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
    /// As in `claims.toml`: S6, H11, P15.
    pub id: &'static str,
    /// The paper's statement.
    pub claim: &'static str,
    /// The paper's number or words.
    pub paper: Json,
    /// The number or words of this implementation.
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
    /// The verdict.
    pub verdict: Verdict,
    /// What was checked, with which tolerance and why; what is different, and why.
    pub why: String,
}

impl Row {
    /// A claim that cannot be checked here.
    ///
    /// # Errors
    /// If `claims.toml` has no such claim.
    pub fn not_reproducible(id: &str, why: &str) -> Result<Self> {
        let claim = claim(id)?;
        Ok(Self {
            id: &claim.id,
            claim: &claim.statement,
            paper: claim.number.clone(),
            ours: Json::Null,
            points: Vec::new(),
            unit: &claim.unit,
            kind: Kind::Absolute,
            scale: String::new(),
            verdict: Verdict::NotReproducible,
            why: why.to_owned(),
        })
    }

    /// A claim with the kind of its check. The other methods add what was found.
    ///
    /// # Errors
    /// If `claims.toml` has no such claim.
    pub fn new(id: &str, kind: Kind) -> Result<Self> {
        Ok(Self { kind, ..Self::not_reproducible(id, "")? })
    }

    /// What was found, in one number or in words.
    #[must_use]
    pub fn ours(mut self, ours: impl Into<Json>) -> Self {
        self.ours = ours.into();
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

    /// The paper's number; NaN if the paper states words.
    #[must_use]
    pub fn paper_number(&self) -> f64 {
        self.paper.as_f64().unwrap_or(f64::NAN)
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
