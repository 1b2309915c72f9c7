// SPDX-License-Identifier: MIT OR Apache-2.0
//! The backup of the eighth day.

use anyhow::Result;

use super::super::runs::{Runs, Seed, at, either, rounded};
use super::super::{Asked, At, Kind, Row};
use super::days::CHANGED;
use crate::scenario_file;

const SYSTEMS: [&str; 4] = ["prwc", "proc", "slru", "no-cache"];
/// What may be missing of the hits after a backup, and it is still called unharmed: what the bench
/// allows.
const LOST: f64 = 0.05;
/// The eighth day, and the one after.
const DAY: usize = 7;

fn number(seed: Seed<'_>, system: &str, backup: &str, pointer: &str) -> Result<f64> {
    seed.number(&[("backup_day", backup), ("system", system)], pointer)
}

/// The bandwidth of all that was asked for on the day of the backup, itself included.
fn with_backup(seed: Seed<'_>, system: &str) -> Result<f64> {
    let day = format!("/days/{DAY}/all");
    let both = |what: &str| -> Result<f64> {
        let user = number(seed, system, "8", &format!("{day}/{what}"))?;
        Ok(user + number(seed, system, "8", &format!("/backup/all/{what}"))?)
    };
    Ok(both("bytes")? / both("seconds")? / 1e6)
}

/// P11.
pub(super) fn rows(asked: &Asked) -> Result<Vec<Row>> {
    let runs = Runs::of(asked, scenario_file!("prwc-backup"))?;
    let mut points: Vec<At> = Vec::new();
    let (mut unharmed, mut kept_words) = (true, Vec::new());
    for system in &SYSTEMS[..3] {
        let spans =
            ["/rest/read/hit_ratio".to_owned(), format!("/days/{}/read/hit_ratio", DAY + 1)];
        for (span, words) in spans.iter().zip(["rest of the day", "day after"]) {
            let of = |seed, backup| number(seed, system, backup, span);
            let kept = runs.each(|seed| Ok(of(seed, "8")? / of(seed, "0")?))?;
            unharmed &= *system == "slru" || kept.iter().all(|kept| *kept >= 1.0 - LOST);
            points.push(at(format!("{system}: read hits kept, {words}"), None, &kept));
            kept_words.push(format!("{system} {}", rounded(&kept)));
        }
    }
    for system in SYSTEMS {
        let bandwidth = runs.each(|seed| with_backup(seed, system))?;
        points.push(at(format!("{system}: MB/s of the day with the backup"), None, &bandwidth));
    }
    let slru = runs.each(|seed| Ok(with_backup(seed, "slru")? / with_backup(seed, "no-cache")?))?;
    let below = slru.iter().all(|ratio| *ratio < 1.0);
    points.push(at("slru over no-cache", None, &slru));
    let reads = runs.each(|seed| {
        let of = |system| number(seed, system, "8", "/backup/read/bytes_per_second");
        Ok(of("slru")? / of("no-cache")?)
    })?;
    points.push(at("slru over no-cache, the backup's reads", None, &reads));
    let holds = unharmed && below;
    let asked = "Both halves, on every seed. SLRU_n is below the bare disk in the bandwidth of the eighth day, backup included, \
                 which is an order. PRWC and PROC ('unharmed') keep 95 % of the read hits that the same seed has without a \
                 backup, in the rest of that day and on the next; the paper gives no number, and less than that is seen in no plot.";
    let otherwise = if unharmed { SLRU } else { HARMED };
    let found = format!(
        "slru {} of the bare disk; read hits kept: {}",
        rounded(&slru),
        kept_words.join(", ")
    );
    let row = Row::new("P11", Kind::Shape)?
        .ours(found)
        .points(points)
        .at_scale(runs.scale())
        .changed(CHANGED)
        .judged(
            holds,
            asked,
            either(holds, "The backup evicts what SLRU_n holds, and nothing else.", otherwise),
        );
    Ok(vec![row])
}

const SLRU: &str = "SLRU_n slows the backup's own reads below the bare disk's, see the points, but the user's requests, which \
                    continue to hit, and the backup's writes, which the disk's write cache takes, make up for it.";
const HARMED: &str = "PRWC or PROC lost more of their read hits, see the points.";
