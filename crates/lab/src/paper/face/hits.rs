// SPDX-License-Identifier: MIT OR Apache-2.0
//! What flash holds, and what that saves: Figures 5 and 6, Tables 4 and 5.

use anyhow::Result;

use super::super::runs::{Runs, always, at, either, listed, rounded};
use super::super::{Asked, Kind, Row};
use super::lab::{
    BASIC_CHANGED, CHANGED, FLASH, HITS, REDUCTION, SIZES, SYSTEM, TPMC, all, by_size, everywhere,
    not_so, percent, rises, said, sizes,
};
use crate::scenario_file;

const KINDS: &str = "caches";
/// Points of a percentage that a table may be off by.
const OFF: f64 = 5.0;
/// Write reduction in percent (Table 4).
const MIXED: [f64; 5] = [51.0, 61.0, 66.0, 71.0, 75.0];
const DIRTY: [f64; 5] = [53.0, 62.0, 67.0, 71.0, 74.0];
/// Old versions in percent (Table 5), by warehouses.
const STALE: [(&str, [f64; 5]); 3] = [
    ("1000", [8.3, 12.3, 14.7, 18.1, 22.2]),
    ("500", [10.0, 15.5, 23.9, 35.3, 44.9]),
    ("200", [19.2, 29.7, 47.8, 56.9, 58.8]),
];

/// A figure of a system that takes some pages alone, at each size.
fn of_kind(lab: &Asked, system: &str, kind: &str, pointer: &str) -> Result<Vec<Vec<f64>>> {
    if kind == "mixed" {
        return by_size(&*sizes(lab)?, system, pointer);
    }
    let runs = Runs::of(lab, scenario_file!("face-kinds"))?;
    let at = |gb: &&str| runs.at(&[(SYSTEM, system), (KINDS, kind), (FLASH, *gb)], pointer);
    SIZES.iter().map(at).collect()
}

/// F1.
pub(super) fn kinds(lab: &Asked) -> Result<Row> {
    let (mut points, mut checks) = (Vec::new(), Vec::new());
    for (system, names) in [
        ("face-basic", ["FaCE: throughput in order", "FaCE: hits in order"]),
        ("lc", ["LC: throughput in order", "LC: hits in order"]),
    ] {
        for (pointer, name) in [TPMC, HITS].into_iter().zip(names) {
            let of = |kind| of_kind(lab, system, kind, pointer);
            let (mixed, dirty, clean) = (of("mixed")?, of("dirty")?, of("clean")?);
            let above = |one: f64, other: f64| one > other;
            let ordered = everywhere(&mixed, &dirty, above) && everywhere(&dirty, &clean, above);
            checks.push((name, ordered));
            for (kind, values) in [("mixed", mixed), ("dirty", dirty), ("clean", clean)] {
                for (gb, values) in SIZES.iter().zip(&values) {
                    let what = if pointer == TPMC { "tpmC" } else { "hits" };
                    points.push(at(format!("{system}, {kind}, {gb} GB: {what}"), None, values));
                }
            }
        }
    }
    let runs = sizes(lab)?;
    let (basic, lc) = (by_size(&runs, "face-basic", TPMC)?, by_size(&runs, "lc", TPMC)?);
    let crosses = always(&basic[0], &lc[0], |basic, lc| basic < lc)
        && everywhere(&basic[2..], &lc[2..], |basic, lc| basic > lc);
    checks.push(("FaCE-Basic overtakes LC between 4 and 12 GB", crosses));
    for (gb, values) in SIZES.iter().zip(by_size(&runs, "face-basic-pages", TPMC)?) {
        points.push(at(format!("face-basic, page by page, {gb} GB: tpmC"), None, &values));
    }
    let holds = all(&checks);
    let asked = "At each of five sizes, of FaCE-Basic and of LC: mixed above dirty pages only above clean pages only, in throughput \
                 and in flash hits; and the crossover that the paper puts at about 8 GB: FaCE-Basic below LC at 4 GB and above \
                 it from 12 GB on. Orders, as Figure 5 has no printed values.";
    Ok(Row::new("F1", Kind::Shape)?
        .ours(said(&checks))
        .points(points)
        .at_scale(runs.scale())
        .changed(format!("{BASIC_CHANGED}; {CHANGED}"))
        .judged(
            holds,
            asked,
            either(holds, "A page is of use whether it was changed or not.", KINDS_DIFFER),
        ))
}

/// F2.
pub(super) fn reduction(lab: &Asked) -> Result<Row> {
    let (mut points, mut checks, mut found) = (Vec::new(), Vec::new(), Vec::new());
    for (kind, paper, names) in [
        ("mixed", MIXED, ["mixed within 5 points", "mixed grows"]),
        ("dirty", DIRTY, ["dirty only within 5 points", "dirty only grows"]),
    ] {
        let ours = of_kind(lab, "face-basic", kind, REDUCTION)?;
        let near = |(ours, paper): (&Vec<f64>, &f64)| {
            ours.iter().all(|ours| (ours * 100.0 - paper).abs() <= OFF)
        };
        checks.push((names[0], ours.iter().zip(&paper).all(near)));
        checks.push((names[1], rises(&ours)));
        for ((gb, values), paper) in SIZES.iter().zip(&ours).zip(paper) {
            points.push(at(format!("{kind}, {gb} GB"), paper, &percent(values)));
        }
        found.push(ours);
    }
    let alike = everywhere(&found[0], &found[1], |mixed, dirty| (mixed - dirty).abs() <= 0.03);
    checks.push(("the two within 3 points of each other", alike));
    let holds = all(&checks);
    let asked = "Each of the ten values of Table 4 within 5 points, as its own two figures of the same thing (46 to 89 % in the \
                 introduction, 51 to 75 here) lie further apart; both columns grow with flash; 'almost identical' is within 3 \
                 points, half as much again as the paper's two.";
    let words = |n: usize| listed(&points[n..n + 5]);
    let ours = format!("mixed {}; dirty only {}", words(0), words(5));
    Ok(Row::new("F2", Kind::Absolute)?
        .ours(ours)
        .points(points)
        .at_scale(sizes(lab)?.scale())
        .changed(BASIC_CHANGED)
        .judged(
            holds,
            asked,
            either(
                holds,
                "Flash takes a changed page several times for each time that disk does.",
                &not_so(&checks, "clean pages take more of a small flash from the changed ones than in the paper"),
            ),
        ))
}

/// F3.
pub(super) fn clean(lab: &Asked) -> Result<Row> {
    let runs = Runs::of(lab, scenario_file!("face-clean"))?;
    let left = runs.at(&[], "/all_dirty_left")?;
    let written = runs.at(&[], "/all_disk_pages_written")?;
    let saved: Vec<f64> = left.iter().zip(&written).map(|(left, written)| left - written).collect();
    let holds = always(&left, &written, |left, written| left == written && left > 0.0);
    Ok(Row::new("F3", Kind::Exact)?
        .ours(rounded(&saved))
        .points(vec![
            at("changed pages that left", None, &left),
            at("written to disk", None, &written),
        ])
        .at_scale(runs.scale())
        .changed(BASIC_CHANGED)
        .judged(
            holds,
            "Exact: over a run from its first transaction to a clean stop, as many pages are written to disk as the pool \
             evicts changed.",
            either(
                holds,
                "Each changed page goes to disk when the pool evicts it.",
                "More or fewer pages are written to disk than the pool evicts changed.",
            ),
        ))
}

/// F4.
pub(super) fn stale(lab: &Asked) -> Result<Row> {
    let (mut points, mut tables) = (Vec::new(), Vec::new());
    for (warehouses, paper) in STALE {
        let ours = if warehouses == "500" {
            by_size(&*sizes(lab)?, "face", "/stale_ratio")?
        } else {
            let runs = Runs::of(lab, scenario_file!("face-databases"))?;
            let at =
                |gb: &&str| runs.at(&[("warehouses", warehouses), (FLASH, *gb)], "/stale_ratio");
            SIZES.iter().map(at).collect::<Result<_>>()?
        };
        for ((gb, values), paper) in SIZES.iter().zip(&ours).zip(paper) {
            points.push(at(format!("{warehouses} warehouses, {gb} GB"), paper, &percent(values)));
        }
        tables.push(ours);
    }
    let near =
        |n: usize| tables[1][n].iter().all(|ours| (ours * 100.0 - STALE[1].1[n]).abs() <= OFF);
    let below = |one: f64, other: f64| one < other;
    let checks = [
        ("grows with flash", tables.iter().all(|table| rises(table))),
        (
            "falls with the database",
            everywhere(&tables[0], &tables[1], below) && everywhere(&tables[1], &tables[2], below),
        ),
        ("4 and 8 GB of the default database within 5 points", near(0) && near(1)),
    ];
    let holds = all(&checks);
    let asked = "The share of old versions grows from each size to the next for each database; at each size it is the larger the \
                 smaller the database, both as orders; and the first two values of the default database, 4 and 8 GB, lie within \
                 5 points of Table 5, as in Table 4: the larger ones depend on how often a page is changed while it stays in \
                 the pool, which the paper does not print.";
    Ok(Row::new("F4", Kind::Shape)?
        .ours(said(&checks))
        .points(points)
        .at_scale(sizes(lab)?.scale())
        .judged(
            holds,
            asked,
            either(holds, "A changed page leaves its old version behind.", &not_so(&checks, "it depends on how often a page is changed while it stays in the pool, which the paper does not print")),
        ))
}

/// LC's figure less FaCE's, in points, at each size.
fn behind(runs: &Runs, system: &str, pointer: &str) -> Result<Vec<Vec<f64>>> {
    let (lc, face) = (by_size(runs, "lc", pointer)?, by_size(runs, system, pointer)?);
    let less = |(lc, face): (&Vec<f64>, &Vec<f64>)| {
        lc.iter().zip(face).map(|(lc, face)| (lc - face) * 100.0).collect()
    };
    Ok(lc.iter().zip(&face).map(less).collect())
}

/// F5.
pub(super) fn hits(lab: &Asked) -> Result<Row> {
    let runs = sizes(lab)?;
    let (group, basic) = (behind(&runs, "face", HITS)?, behind(&runs, "face-basic", HITS)?);
    let mut points = Vec::new();
    for (name, values) in [("GSC", &group), ("Basic", &basic)] {
        for (gb, values) in SIZES.iter().zip(values) {
            points.push(at(format!("LC less FaCE-{name}, {gb} GB"), None, values));
        }
    }
    let within = |values: &[Vec<f64>], most: f64| values.iter().flatten().all(|v| *v <= most);
    let checks =
        [("GSC within 3 points", within(&group, 3.0)), ("Basic within 10", within(&basic, 10.0))];
    let holds = all(&checks);
    let asked = "The paper has two bounds, 'no more than 3 %' of FaCE-GSC and 'not by more than 10 %' of FaCE; both taken as points of \
                 the hit ratio, at each size.";
    Ok(Row::new("F5", Kind::Absolute)?
        .ours(said(&checks))
        .points(points)
        .at_scale(runs.scale())
        .changed(BASIC_CHANGED)
        .judged(holds, asked, either(holds, "A log evicts nearly what LRU-2 evicts.", HITS_DIFFER)))
}

/// F6.
pub(super) fn reductions(lab: &Asked) -> Result<Row> {
    let runs = sizes(lab)?;
    let (group, basic) =
        (behind(&runs, "face", REDUCTION)?, behind(&runs, "face-basic", REDUCTION)?);
    let mut points = Vec::new();
    for (name, values) in [("GSC", &group), ("Basic", &basic)] {
        for (gb, values) in SIZES.iter().zip(values) {
            points.push(at(format!("LC less FaCE-{name}, {gb} GB"), None, values));
        }
    }
    let above = |pointer| {
        let (group, basic) =
            (by_size(&runs, "face", pointer)?, by_size(&runs, "face-basic", pointer)?);
        Ok::<bool, anyhow::Error>(everywhere(&group, &basic, |group, basic| group > basic))
    };
    let checks = [
        ("LC 3 to 15 points above Basic", basic.iter().flatten().all(|v| (3.0..=15.0).contains(v))),
        ("LC above GSC", group.iter().flatten().all(|v| *v > 0.0)),
        ("GSC above Basic in hits and saved writes", above(HITS)? && above(REDUCTION)?),
    ];
    let holds = all(&checks);
    let asked = "At each size LC saves 3 to 15 points more disk writes than FaCE, a range (which FaCE is not said; Basic is taken, \
                 and of GSC that it is below LC), and GSC hits and saves more than Basic, an order.";
    Ok(Row::new("F6", Kind::Absolute)?
        .ours(said(&checks))
        .points(points)
        .at_scale(runs.scale())
        .changed(BASIC_CHANGED)
        .judged(
            holds,
            asked,
            either(
                holds,
                "A log evicts nearly what LRU-2 evicts.",
                &not_so(&checks, "a second chance saves as many writes as LRU-2 at some sizes"),
            ),
        ))
}

/// F21.
pub(super) fn ranges(lab: &Asked) -> Result<Row> {
    let runs = sizes(lab)?;
    let (mut points, mut holds) = (Vec::new(), true);
    for (what, pointer, least, most) in
        [("hits", HITS, 72.0, 91.0), ("writes saved", REDUCTION, 46.0, 89.0)]
    {
        let ours = by_size(&runs, "face", pointer)?;
        for (gb, paper) in [(0, least), (4, most)] {
            let values = percent(&ours[gb]);
            holds &= values.iter().all(|value| (value - paper).abs() <= OFF);
            points.push(at(format!("{what}, {} GB", SIZES[gb]), paper, &values));
        }
    }
    let ours = listed(&points);
    let asked = "The ends of both ranges, which the introduction gives without sizes, at 4 and 20 GB, within 5 points, as of Table 4.";
    Ok(Row::new("F21", Kind::Absolute)?.ours(ours).points(points).at_scale(runs.scale()).judged(
        holds,
        asked,
        either(holds, "Both grow with flash.", RANGES_DIFFER),
    ))
}

// Why rows differ; each was looked into.
const KINDS_DIFFER: &str = "Dirty pages alone hit two of five fetches at best, as many of the fetched pages are read and not changed \
    (Stock-Level alone makes a third of all accesses, and changes nothing), under LC as under FaCE.";
const HITS_DIFFER: &str = "At 4 and 8 GB LRU-2 keeps what is used again and again, where a log of that size is through before it is used \
    again.";
const RANGES_DIFFER: &str = "The 89 % are in no table or text but the introduction, Table 4 ends at 75, and the range of hits may begin at \
    another size.";
