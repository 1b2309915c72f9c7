// SPDX-License-Identifier: MIT OR Apache-2.0
//! The papers' claims: what each paper states, where, and with which number. `claims.toml` has them.
//!
//! Rows take their statement and number from here. Tidy compares the table of `docs/papers.md` with the file, and checks that
//! every id that a comment or document cites is there.

use std::sync::LazyLock;

use anyhow::{Context, Result, anyhow};
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

/// A paper.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Paper {
    /// As in `larder paper NAME`.
    pub name: String,
    /// Authors, title, where it was published.
    pub title: String,
    /// Its claims, in the order of their numbers.
    #[serde(rename = "claim")]
    pub claims: Vec<Claim>,
}

/// What decides about a claim.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// A run.
    #[default]
    Measured,
    /// The paper's own numbers: a sum of them, or an input of a load that comes out again.
    Arithmetic,
}

/// A claim.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    /// S6, H11, P15.
    pub id: String,
    /// The paper's section, with a figure or table.
    pub section: String,
    /// The claim, in our own words.
    pub statement: String,
    /// The number that the paper prints, or its words.
    pub number: Json,
    /// The unit of the number.
    #[serde(default)]
    pub unit: String,
    /// What decides about it.
    #[serde(default)]
    pub class: Class,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    paper: Vec<Paper>,
}

/// The papers with their claims.
///
/// # Errors
/// If `claims.toml` cannot be parsed, which a test excludes.
pub fn claims() -> Result<&'static [Paper]> {
    static FILE: LazyLock<Result<File, toml::de::Error>> =
        LazyLock::new(|| toml::from_str(include_str!("claims.toml")));
    FILE.as_ref().map(|file| file.paper.as_slice()).map_err(|e| anyhow!("claims.toml: {e}"))
}

/// A claim by its id.
pub(super) fn claim(id: &str) -> Result<&'static Claim> {
    let mut all = claims()?.iter().flat_map(|paper| &paper.claims);
    all.find(|claim| claim.id == id).with_context(|| format!("claims.toml has no claim {id}"))
}

#[cfg(test)]
mod tests {
    use super::super::PAPERS;
    use super::*;

    /// A group may have its claims in another order than the file.
    #[test]
    fn each_claim_belongs_to_one_group_of_its_paper() {
        let papers = claims().unwrap();
        assert!(
            papers.iter().map(|paper| paper.name.as_str()).eq(PAPERS.iter().map(|(name, _)| *name))
        );
        for (paper, (name, groups)) in papers.iter().zip(PAPERS) {
            let mut checked: Vec<&str> =
                groups.iter().flat_map(|group| group.ids).copied().collect();
            let mut stated: Vec<&str> =
                paper.claims.iter().map(|claim| claim.id.as_str()).collect();
            checked.sort_unstable();
            stated.sort_unstable();
            assert_eq!(checked, stated, "{name}");
        }
    }

    #[test]
    fn a_claim_has_a_statement_a_section_and_a_number() {
        for claim in claims().unwrap().iter().flat_map(|paper| &paper.claims) {
            assert!(!claim.statement.is_empty() && !claim.section.is_empty(), "{claim:?}");
            assert!(claim.number.is_string() || claim.number.is_number(), "{claim:?}");
        }
    }
}
