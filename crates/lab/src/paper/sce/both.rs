// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the paper states of both configurations: response times and wear (SCE 4.3 and 4.6).

use anyhow::Result;

use super::super::runs::{FLASH_EACH, Runs, always, at, either, is_like, listed, median, over};
use super::super::{Kind, Row};
use super::published::{B_CHANGED, CACHES};

/// What is asked of both runs.
pub(super) const IDS: &[&str] = &["S11", "S19", "S20"];

/// The rows.
pub(super) fn rows(large: &Runs, small: &Runs) -> Result<Vec<Row>> {
    Ok(vec![responses(large, small)?, wear(large, small)?, more(large, small)?])
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
    let asked = "SCE at most 1.4 times all-flash, a bound ('only 40 %'); flashcache 3 times its own in A as a \
                 gain, half to twice, since both times are read off pictures; means of a transaction in the \
                 last hour.";
    let otherwise = format!(
        "SCE takes {:.2} times all-flash's time, which follows its misses (S9), and flashcache {:.2} times \
         its own in A.",
        median(&ours),
        median(&peer)
    );
    let words = format!("{:.2}; {:.2}", median(&ours), median(&peer));
    let mut points =
        vec![at("SCE over all-flash", 1.4, &ours), at("flashcache, B over A", 3.0, &peer)];
    for system in ["flashcache", "bcache", "enhanceio"] {
        let slower = over(&small.took(system)?, &small.took("all-flash")?);
        points.push(at(format!("{system} over all-flash"), None, &slower));
    }
    Ok(Row::new("S11", Kind::Shape)?
        .ours(words)
        .points(points)
        .at_scale(scale(large, small))
        .changed(B_CHANGED)
        .judged(holds, asked, either(holds, "Both follow the misses.", &otherwise)))
}

fn wear(large: &Runs, small: &Runs) -> Result<Row> {
    let a = over(&large.system("sce", FLASH_EACH)?, &large.system("flashcache", FLASH_EACH)?);
    let b = over(&small.system("sce", FLASH_EACH)?, &small.system("bcache", FLASH_EACH)?);
    let holds = is_like(&a, 0.57) && is_like(&b, 0.79);
    let asked = "Each as a loss, half to twice, over the whole run: the paper itself gives 43 to 50 % for the first of \
                 them.";
    let otherwise = format!(
        "SCE writes {:.2} of flashcache's bytes a transaction in A, where all active data is written once \
         under either, and {:.2} of bcache's in B, where bcache admits every miss and SCE exchanges few fragments.",
        median(&a),
        median(&b)
    );
    let points = vec![at("A, SCE over flashcache", 0.57, &a), at("B, SCE over bcache", 0.79, &b)];
    Ok(Row::new("S19", Kind::Shape)?
        .ours(format!("{:.2}; {:.2}", median(&a), median(&b)))
        .points(points)
        .at_scale(scale(large, small))
        .changed(B_CHANGED)
        .judged(holds, asked, either(holds, "SCE writes less in both.", &otherwise)))
}

/// S20. "Significantly higher" without numbers: read as at least twice as much.
fn more(large: &Runs, small: &Runs) -> Result<Row> {
    let (mut points, mut holds, mut above, mut less) = (Vec::new(), true, true, Vec::new());
    for system in CACHES {
        let (a, b) = (large.system(system, FLASH_EACH)?, small.system(system, FLASH_EACH)?);
        let twice = always(&b, &a, |b, a| b >= 2.0 * a);
        if !twice {
            less.push(system);
        }
        holds &= twice;
        above &= always(&b, &a, |b, a| b > a);
        points.push(at(format!("{system}, B over A"), None, &over(&b, &a)));
    }
    let order = if above { "All" } else { "Not all" };
    let asked = "Each at least twice as much in B as in A: the paper has 'significantly higher' without a number, \
                 and half as much again would be called higher.";
    let otherwise = format!(
        "{order} write more in B on every seed, but these not twice as much: {}, because the writes of a transaction \
         are most of what they write in either.",
        less.join(", ")
    );
    Ok(Row::new("S20", Kind::Shape)?
        .ours(listed(&points))
        .points(points)
        .at_scale(scale(large, small))
        .changed(B_CHANGED)
        .judged(holds, asked, either(holds, "All write at least twice as much in B.", &otherwise)))
}
