// SPDX-License-Identifier: MIT OR Apache-2.0
//! SCE: H. Kim, S. Seshadri, I. Koltsidas, P. Muench, N. Ioannou, C. Dickey and L. Chiu,
//! "Flash-conscious cache population for enterprise database workloads", ADMS 2014.
//!
//! TPC-E over its database is not available; [`crate::load`] stands in for it and gives the reasons for
//! its form. How much of the image is active, and how large a request is, is fitted to figures of the
//! comparison systems (`fit.rs`). The other caches are the same engine with their choices, over models of
//! the paper's disks and of a flash device: what they lost by how they are written (bcache's journal,
//! EnhanceIO's locks) does not show, and SCE is run volatile, as the paper's is.
//!
//! Configuration A runs at 1/16. B is run larger, at 1/4: there SCE exchanges fragments, and a list of
//! 100, eight workers and eight misses before a fragment may displace another do not shrink with the
//! data, so that in a small copy far more fragments are exchanged. That was seen after a first run at
//! 1/16, and each row of B states it.
//!
//! Why not A and B at one scale: eight hours of A at 1/4 take four times as long, and nothing is exchanged
//! in A.

mod ablation;
mod both;
mod cases;
mod figure_1;
#[cfg(test)]
mod fit;
mod intro;
mod large;
mod memory;
mod published;
mod small;
#[cfg(test)]
mod tests;
mod write_back;

use anyhow::Result;

use super::runs::Runs;
use super::{Asked, Group, Row};

/// All of its rows.
pub(super) const GROUPS: &[Group] = &[
    Group { ids: &["SM1", "SM2", "SM3", "SM4", "SM5"], run: memory::rows },
    Group { ids: &["S21"], run: intro::rows },
    Group { ids: &["S3"], run: figure_1::rows },
    Group {
        ids: &["S1", "S2", "S4", "S5", "S6", "S7", "S8", "S9", "S10", "S11", "S12", "S19", "S20"],
        run: comparison,
    },
    Group { ids: &["S15", "S16", "S17", "S18"], run: ablation::rows },
    Group { ids: &["S13", "S14"], run: write_back::rows },
];

/// Configurations A and B, and what is said of both.
fn comparison(asked: &Asked) -> Result<Vec<Row>> {
    let wanted = |ids: &[&str]| ids.iter().any(|id| asked.wants(id));
    let both = wanted(both::IDS);
    let large = (both || wanted(large::IDS))
        .then(|| Runs::of(asked, crate::scenario_file!("sce-large")))
        .transpose()?;
    let small = (both || wanted(small::IDS))
        .then(|| Runs::of(asked, crate::scenario_file!("sce-small")))
        .transpose()?;
    let mut found = Vec::new();
    if let Some(large) = &large {
        found.extend(large::rows(large)?);
    }
    if let Some(small) = &small {
        found.extend(small::rows(small)?);
    }
    if let (Some(large), Some(small)) = (&large, &small) {
        found.extend(both::rows(large, small)?);
    }
    Ok(found)
}
