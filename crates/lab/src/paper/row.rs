// SPDX-License-Identifier: MIT OR Apache-2.0
//! A claim of a paper, and what was found: one element of `larder paper --json`.
//!
//! Invariants: the claim comes from `claims.toml`. The paper's values are in `paper`, and in `paper` of the points; no check
//! copies them to `ours`. A row whose check fails is reported like any other. A row with a check states what it asks and
//! why it allows that much (`asked`), what of it was changed after a first run (`changed`), and the reason of its verdict
//! in one sentence (`why`).

use anyhow::Result;
use serde::Serialize;
use serde_json::Value as Json;

use super::claims::{Claim, Class, claim};

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
    /// A program could show it, and this one does not yet.
    NotMeasured,
    /// No program could show it: it needs hardware, data or prices of its time.
    NotReproducible,
}

impl Verdict {
    /// All of them.
    pub const ALL: [Self; 4] =
        [Self::Holds, Self::Differs, Self::NotMeasured, Self::NotReproducible];

    /// In words, of a claim of that class.
    #[must_use]
    pub fn name(self, class: Class) -> &'static str {
        match (self, class) {
            (Self::Holds, Class::Measured) => "holds",
            (Self::Differs, Class::Measured) => "differs",
            (Self::Holds, Class::Arithmetic) => "adds up",
            (Self::Differs, Class::Arithmetic) => "does not add up",
            (Self::NotMeasured, _) => "not measured",
            (Self::NotReproducible, _) => "not reproducible",
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
    /// Where the paper states it.
    pub section: &'static str,
    /// Whether a run decides, or arithmetic.
    pub class: Class,
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
    /// What is asked, with which tolerance, and why so much is allowed.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub asked: String,
    /// What was changed after a first run, as words without a full stop.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub changed: String,
    /// Why the verdict is this one, in one sentence.
    pub why: String,
}

impl Row {
    /// A claim that no program could show.
    ///
    /// # Errors
    /// If `claims.toml` has no such claim.
    pub fn not_reproducible(id: &str, why: &str) -> Result<Self> {
        Ok(Self { why: why.to_owned(), ..Self::of(claim(id)?) })
    }

    /// A claim that a program could show, and this one does not yet.
    ///
    /// # Errors
    /// If `claims.toml` has no such claim.
    pub fn not_measured(id: &str, why: &str) -> Result<Self> {
        let verdict = Verdict::NotMeasured;
        Ok(Self { verdict, why: why.to_owned(), ..Self::of(claim(id)?) })
    }

    /// A claim with the kind of its check. The other methods add what was found.
    ///
    /// # Errors
    /// If `claims.toml` has no such claim.
    pub fn new(id: &str, kind: Kind) -> Result<Self> {
        Ok(Self { kind, ..Self::of(claim(id)?) })
    }

    fn of(claim: &'static Claim) -> Self {
        Self {
            id: &claim.id,
            claim: &claim.statement,
            section: &claim.section,
            class: claim.class,
            paper: claim.number.clone(),
            ours: Json::Null,
            points: Vec::new(),
            unit: &claim.unit,
            kind: Kind::Absolute,
            scale: String::new(),
            verdict: Verdict::NotReproducible,
            asked: String::new(),
            changed: String::new(),
            why: String::new(),
        }
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

    /// What was changed after a first run.
    #[must_use]
    pub fn changed(mut self, changed: impl Into<String>) -> Self {
        self.changed = changed.into();
        self
    }

    /// Whether the claim holds, what was asked of it, and one sentence that gives the reason.
    #[must_use]
    pub fn judged(mut self, holds: bool, asked: impl Into<String>, why: impl Into<String>) -> Self {
        self.verdict = if holds { Verdict::Holds } else { Verdict::Differs };
        (self.asked, self.why) = (asked.into(), why.into());
        self
    }

    /// The verdict in words.
    #[must_use]
    pub fn verdict_text(&self) -> &'static str {
        self.verdict.name(self.class)
    }

    /// All that is said of the verdict.
    #[must_use]
    pub fn notes(&self) -> String {
        let changed = match self.changed.as_str() {
            "" => String::new(),
            changed => format!("Changed after a first run: {changed}."),
        };
        let parts = [self.asked.as_str(), changed.as_str(), self.why.as_str()];
        let parts: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
        parts.join(" ")
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
