// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the paper states of both configurations: response times and wear (SCE 4.3 and 4.6).

use anyhow::Result;

use super::super::runs::{FLASH_EACH, Runs, always, at, is_like, listed, median, over, why};
use super::super::{Found, Kind, Row};
use super::figures;
use super::published::CACHES;

/// What is asked of both runs.
pub(super) const IDS: &[&str] = &["S11", "S19", "S20"];

/// The rows and Figure 12.
pub(super) fn rows(large: &Runs, small: &Runs) -> Result<Found> {
    let rows = vec![responses(large, small)?, wear(large, small)?, more(large, small)?];
    Ok(Found { rows, figures: vec![figures::figure_12(large, small)?] })
}

fn scale(large: &Runs, small: &Runs) -> String {
    let (a, b) = (large.scale(), small.scale());
    if a == b { a } else { format!("A {a}, B {b}") }
}

/// S11. SCE's is a bound ("only 40 %"), flashcache's a gain.
fn responses(large: &Runs, small: &Runs) -> Result<Row> {
    let ours = over(&small.took("sce")?, &small.took("all-flash")?);
    let peer = over(&small.took("flashcache")?, &large.took("flashcache")?);
    let holds = ours.iter().all(|r| *r <= 1.4) && is_like(&peer, 3.0);
    let asked = "SCE at most 1.4 times all-flash, flashcache 3 times its own in A as a gain; means of a \
                 transaction in the last hour.";
    let otherwise = "SCE's time follows its misses (S9, S10). flashcache had a warm cache in A in the \
                     paper, and here one that is still filling (S7).";
    let words = format!("{:.2}; {:.2}", median(&ours), median(&peer));
    Ok(Row::new("S11", Kind::Shape)?
        .ours(words)
        .points(vec![at("SCE over all-flash", 1.4, &ours), at("flashcache, B over A", 3.0, &peer)])
        .at_scale(scale(large, small))
        .verdict(holds, why(holds, asked, otherwise)))
}

fn wear(large: &Runs, small: &Runs) -> Result<Row> {
    let a = over(&large.system("sce", FLASH_EACH)?, &large.system("flashcache", FLASH_EACH)?);
    let b = over(&small.system("sce", FLASH_EACH)?, &small.system("bcache", FLASH_EACH)?);
    let holds = is_like(&a, 0.57) && is_like(&b, 0.79);
    let asked = "Each as a loss, over the whole run.";
    let otherwise = "A: SCE writes all data once and the writes; flashcache has \
                     admitted only a part of the data at the end; per transaction that is less. B: SCE \
                     continues to exchange fragments of nearly equal heat, 1 MiB each, where the others \
                     exchange pages; at full size (one seed) it is 11.0 KiB a \
                     transaction (docs/benchmarks.md, endurance).";
    let points = vec![at("A, SCE over flashcache", 0.57, &a), at("B, SCE over bcache", 0.79, &b)];
    Ok(Row::new("S19", Kind::Shape)?
        .ours(format!("{:.2}; {:.2}", median(&a), median(&b)))
        .points(points)
        .at_scale(scale(large, small))
        .verdict(holds, why(holds, asked, otherwise)))
}

/// S20. "Significantly higher" without numbers: read as at least twice as much.
fn more(large: &Runs, small: &Runs) -> Result<Row> {
    let (mut points, mut holds, mut above) = (Vec::new(), true, true);
    for system in CACHES {
        let (a, b) = (large.system(system, FLASH_EACH)?, small.system(system, FLASH_EACH)?);
        holds &= always(&b, &a, |b, a| b >= 2.0 * a);
        above &= always(&b, &a, |b, a| b > a);
        points.push(at(format!("{system}, B over A"), None, &over(&b, &a)));
    }
    let order = if above { "All" } else { "Not all" };
    let asked = "Each at least twice as much in B as in A.";
    let otherwise = format!(
        "{order} write more in B on every seed, but not each twice as much. The caches of 4 KiB blocks \
         write each miss once in either, and in A they miss nearly as often, being still cold (S7); \
         SCE writes all data once in A."
    );
    Ok(Row::new("S20", Kind::Shape)?
        .ours(listed(&points))
        .points(points)
        .at_scale(scale(large, small))
        .verdict(holds, why(holds, asked, &otherwise)))
}
