// SPDX-License-Identifier: MIT OR Apache-2.0
//! The figures of the papers: what each shows, the values that the paper prints of it, and where ours are.
//!
//! One table for each paper. An entry names its claims, and for each series the scenario file, the settings and the place in
//! the result, or the points of a row. `draw.rs` looks these up in the runs that the rows made; nothing is run for a
//! picture. A figure without a picture has the reason, in one sentence.
//!
//! Invariants:
//! - every figure of a paper is in its table once, in the order of their numbers (a test counts them);
//! - a value of a paper that a claim also states is the claim's (a test compares them), and one that no claim states comes
//!   with the place where the paper prints it; no value was measured on a printed curve;
//! - axes, units and names are the paper's, as far as its text gives them.
//!
//! Why entries and not code that draws each figure: a reader compares it with the paper line by line, and a test that every
//! entry finds its points needs no knowledge of any figure.

mod draw;
mod entry;
mod face;
mod holland;
mod prwc;
mod sce;
#[cfg(test)]
pub(super) mod tests;

pub(super) use self::draw::{sections, tone};
pub(super) use self::entry::{Figure, Table};

/// The tables of all papers, in the order of `claims.toml`.
pub(super) fn tables() -> Vec<Table> {
    let table = |paper, name, figures| Table { paper, name, figures };
    vec![
        table("sce", "SCE", sce::figures()),
        table("holland", "Holland", holland::figures()),
        table("prwc", "PRWC", prwc::figures()),
        table("face", "FaCE", face::figures()),
    ]
}
