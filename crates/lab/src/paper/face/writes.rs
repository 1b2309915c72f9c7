// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is written to flash, and what flash makes of it: Tables 6 and 7.

use anyhow::Result;

use super::super::runs::{Runs, always, at, either, is_near, over};
use super::super::{Asked, Kind, Row};
use super::lab::{BUCKETS_CHANGED, CHANGED, FLASH, SYSTEM, all, not_so, percent, said};
use crate::scenario_file;

/// Table 6: sequentiality in percent, and the mean write in kB.
const TABLE: [(&str, f64, f64); 4] = [
    ("face", 20.59, 256.3),
    ("lc", 1.36, 4.0),
    ("bcache-fifo", 10.89, 4.6),
    ("bcache-lru", 8.83, 5.2),
];

/// What a value may be off by, see the rows.
const OFF: f64 = 0.25;

/// F12.
pub(super) fn sizes(lab: &Asked) -> Result<Row> {
    let runs = Runs::of(lab, scenario_file!("face-bcache"))?;
    let of = |system, pointer| runs.at(&[(SYSTEM, system), (FLASH, "10")], pointer);
    let (mut points, mut means, mut orders) = (Vec::new(), Vec::new(), Vec::new());
    for (system, sequential, mean) in TABLE {
        let ours = of(system, "/flash/mean_write_kib")?;
        points.push(at(format!("{system}: mean write, KiB"), mean, &ours));
        means.push(ours);
        let ours = percent(&of(system, "/flash/sequential_ratio")?);
        points.push(at(format!("{system}: sequential, %"), sequential, &ours));
        orders.push(ours);
    }
    let most =
        |others: &[Vec<f64>]| others.iter().all(|other| always(&orders[0], other, |a, b| a > b));
    let checks = [
        ("FaCE's mean write within 5 % of 256 KiB, or more", means[0].iter().all(|m| *m >= 243.2)),
        ("LC's 4 KiB", means[1].iter().all(|mean| *mean == 4.0)),
        (
            "bcache's within a quarter",
            is_near(&means[2], TABLE[2].2, OFF) && is_near(&means[3], TABLE[3].2, OFF),
        ),
        ("FaCE the most sequential", most(&orders[1..])),
        ("LC the least", orders[2..].iter().all(|other| always(&orders[1], other, |a, b| a < b))),
    ];
    let holds = all(&checks);
    let asked = "At 10 GB: FaCE's mean write at least 256 KiB less 5 % (a checkpoint closes a batch early), LC's 4 KiB exactly, \
                 bcache's within a quarter of 4.6 and 5.2, twice what these two differ by; and by the share of writes that begin \
                 where the one before ended, FaCE first and LC last. What counts as sequential in the paper's 20.59 % it does \
                 not state; no value of it is asked for.";
    Ok(Row::new("F12", Kind::Absolute)?
        .ours(said(&checks))
        .points(points)
        .at_scale(runs.scale())
        .changed(format!(
            "{CHANGED}; {BUCKETS_CHANGED}; the tolerance of bcache's, which was 8 KiB"
        ))
        .judged(
            holds,
            asked,
            either(
                holds,
                "A batch is one write, and a slot is a page.",
                &not_so(
                    &checks,
                    "a checkpoint closes a batch early, and at this scale comes 32 times as often",
                ),
            ),
        ))
}

/// F14.
pub(super) fn wear(lab: &Asked) -> Result<Row> {
    let runs = Runs::of(lab, scenario_file!("face-wear"))?;
    let of = |drive, system, gib| {
        let at = [("flash", drive), (SYSTEM, system), ("drive_gib", gib)];
        runs.at(&at, "/write_amplification")
    };
    let (mut points, mut low, mut ratios) = (Vec::new(), true, Vec::new());
    for (name, drive, face, lc) in
        [("840 Pro", "ssd-840pro-ftl", 1.02, 5.13), ("S3500", "ssd-s3500-ftl", 1.08, 2.47)]
    {
        let (ours, peer) = (of(drive, "face", "0")?, of(drive, "lc", "0")?);
        low &= ours.iter().all(|waf| *waf <= 1.1);
        ratios.push(is_near(&over(&peer, &ours), lc / face, OFF));
        points.push(at(format!("{name}: FaCE"), face, &ours));
        points.push(at(format!("{name}: LC"), lc, &peer));
        for system in ["face", "lc"] {
            let ours = of(drive, system, "100")?;
            points.push(at(format!("{name}, ten times as large: {system}"), None, &ours));
        }
    }
    let checks = [
        ("FaCE at most 1.1", low),
        ("840 Pro: LC 5.0 times it within a quarter", ratios[0]),
        ("S3500: LC 2.3 times it within a quarter", ratios[1]),
    ];
    let holds = all(&checks);
    let asked = "By a model of the translation layer, the drive as large as the cache (what of a drive of 256 GB was used is not \
                 printed; one ten times as large is among the points): FaCE at most 1.1, and LC over FaCE the paper's factors \
                 within a quarter, as its Tables 2 and 7 give 3.04 and 2.47 for pages written at random to the S3500.";
    Ok(Row::new("F14", Kind::Absolute)?
        .ours(said(&checks))
        .points(points)
        .at_scale(runs.scale())
        .changed("the tolerance of the factors, which was half to twice the excess")
        .judged(holds, asked, either(holds, "FaCE fills erase blocks in order.", WEAR_DIFFERS)))
}

const WEAR_DIFFERS: &str = "FaCE writes at 1.0, and LC more than in the paper, because the amplification of overwritten pages follows from the \
    spare flash, which the paper does not state of its drives (docs/simulation.md, write amplification).";
