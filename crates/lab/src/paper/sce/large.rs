// SPDX-License-Identifier: MIT OR Apache-2.0
//! Configuration A: eight hours with a cache that is larger than the data (SCE 2 and 4.2).

use anyhow::Result;

use super::super::runs::{
    Runs, always, at, either, falling, is_like, is_near, listed, median, over, range, rounded,
};
use super::super::{Kind, Row};
use super::published::{A_CHANGED, EACH_COUNTED, LARGE_HITS, LARGE_RESPONSES, LARGE_TPSE};

/// What is asked of these runs alone.
pub(super) const IDS: &[&str] = &["S1", "S2", "S4", "S5", "S6", "S7", "S8"];

/// What a value of Table 1 may be off by: twice the 5 % by which text and table differ (1.5 and 1.45 times flashcache,
/// 67 and 65 % of all-flash).
const TABLE: f64 = 0.1;
const PROGRAMS: &str = "in the paper bcache and EnhanceIO are slow by their implementation (a journal on flash, locks), \
                        and here all are presets of one engine";

/// The rows.
pub(super) fn rows(runs: &Runs) -> Result<Vec<Row>> {
    Ok(vec![
        table_1(runs)?,
        hit_rate_alone()?,
        near_flash(runs)?,
        gains(runs)?,
        warm_up(runs)?,
        hits(runs)?,
        responses(runs)?,
    ])
}

fn table_1(runs: &Runs) -> Result<Row> {
    let mut points = Vec::new();
    for (system, paper) in LARGE_TPSE.into_iter().filter(|(system, _)| *system != "sce") {
        let ours: Vec<f64> = runs.rate(system)?.iter().map(|r| r / EACH_COUNTED).collect();
        points.push(at(system, paper, &ours));
    }
    let [all, fc, bc, eio, none] =
        ["all-flash", "flashcache", "bcache", "enhanceio", "no-cache"].map(|s| runs.rate(s));
    let (all, fc, bc, eio, none) = (all?, fc?, bc?, eio?, none?);
    let gap = over(&fc, &bc);
    let alike = always(&bc, &eio, |a, b| (a / b - 1.0).abs() <= 0.1);
    let holds = falling(&[&all, &fc, &bc, &none]) && alike && is_near(&gap, 56.9 / 17.3, TABLE);
    let between = [&fc, &bc, &eio].iter().all(|cache| falling(&[&all, cache, &none]));
    let otherwise = format!(
        "The caches {} between all-flash and no cache and are alike: {PROGRAMS}.",
        if between { "lie" } else { "do not all lie" }
    );
    let asked = "All-flash over flashcache over bcache over no cache on every seed, EnhanceIO within a tenth of \
                 bcache (the paper's differ by 1 %), flashcache 3.29 times bcache within a tenth, twice the 5 % \
                 by which the paper's text and table differ.";
    let ours = format!("flashcache over bcache {:.2}", median(&gap));
    Ok(Row::new("S1", Kind::Shape)?
        .ours(ours)
        .points(points)
        .at_scale(runs.scale())
        .changed(format!("{A_CHANGED}; the tolerance of the factor, which was half to twice"))
        .judged(holds, asked, either(holds, "The order is the paper's.", &otherwise)))
}

fn hit_rate_alone() -> Result<Row> {
    Row::not_reproducible(
        "S2",
        "It compares programs with equal hit ratios, and no model of their choices differs by how they are \
         programmed.",
    )
}

fn near_flash(runs: &Runs) -> Result<Row> {
    let ratio = over(&runs.rate("sce")?, &runs.rate("all-flash")?);
    let row = Row::new("S4", Kind::Shape)?.ours(rounded(&ratio)).at_scale(runs.scale());
    let paper = row.paper_number();
    let holds = ratio.iter().all(|r| *r >= paper);
    let asked = format!("At least {paper} in the last hour on every seed: a bound.");
    let misses: Vec<f64> = runs.hits("sce")?.iter().map(|hits| 100.0 - hits).collect();
    let why = format!(
        "The seeds have {} of all-flash's rate, as {} % of the reads of the last hour still miss.",
        range(&ratio),
        range(&misses)
    );
    Ok(row.changed(A_CHANGED).judged(holds, asked, why))
}

fn gains(runs: &Runs) -> Result<Row> {
    let ours = runs.rate("sce")?;
    let (mut points, mut holds, mut ahead, mut words) = (Vec::new(), true, true, Vec::new());
    for (peer, paper) in [("flashcache", 1.45), ("bcache", 4.8), ("enhanceio", 4.7)] {
        let ratio = over(&ours, &runs.rate(peer)?);
        holds &= is_near(&ratio, paper, TABLE);
        ahead &= ratio.iter().all(|r| *r > 1.0);
        words.push(format!("{:.2}", median(&ratio)));
        points.push(at(format!("over {peer}"), paper, &ratio));
    }
    let asked = "Each within a tenth, last hour: the factors are those of Table 1, from which the text's differ by up \
                 to 5 %.";
    let otherwise =
        format!("SCE is {}ahead of each, but {PROGRAMS}.", if ahead { "" } else { "not " });
    Ok(Row::new("S5", Kind::Shape)?
        .ours(words.join("; "))
        .points(points)
        .at_scale(runs.scale())
        .changed(format!("{A_CHANGED}; the tolerance, which was half to twice the gain"))
        .judged(holds, asked, either(holds, "The factors are the paper's.", &otherwise)))
}

/// The number of the first minute in which it is at least `least`; all without one.
fn first(samples: &[f64], least: f64) -> f64 {
    samples.iter().position(|s| *s >= least).map_or(samples.len(), |i| i + 1) as f64
}

/// Minutes until nine tenths of the hit ratio that the same system has in its last hour.
pub(super) fn ramp(ratios: &[f64]) -> f64 {
    let last = ratios.get(ratios.len().saturating_sub(60)..).unwrap_or_default();
    first(ratios, 0.9 * last.iter().sum::<f64>() / last.len().max(1) as f64)
}

/// S6. Bounds, not gains: the paper prints "only 38 minutes", "less than 2.5 hours" and 12 times in
/// its abstract, so ours must pass flashcache's best at least 12 times as early as flashcache gets
/// there, and must ramp up at least 7 / 2.5 = 2.8 times as fast, on every seed. The best is that of a
/// minute, as in the paper; the end of a ramp, which the paper reads off a picture, is nine tenths of
/// the own final hit ratio.
fn warm_up(runs: &Runs) -> Result<Row> {
    let rates = |system| runs.lists("system", system, "/samples/transactions_per_second");
    let ratios = |system| runs.lists("system", system, "/samples/hit_ratio");
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for (sce, peer) in rates("sce")?.iter().zip(rates("flashcache")?) {
        let best = peer.iter().copied().fold(0.0, f64::max);
        ours.push(first(sce, best));
        theirs.push(first(&peer, best));
    }
    let ramps =
        |system| -> Result<Vec<f64>> { Ok(ratios(system)?.iter().map(|r| ramp(r)).collect()) };
    let (ramp, peer_ramp) = (ramps("sce")?, ramps("flashcache")?);
    let (faster, ramps) = (over(&theirs, &ours), over(&peer_ramp, &ramp));
    let holds = faster.iter().all(|r| *r >= 12.0) && ramps.iter().all(|r| *r >= 2.8);
    let points = vec![
        at("SCE passes flashcache's best, minutes", 38.0, &ours),
        at("flashcache's best, minutes", 456.0, &theirs),
        at("times as early", 12.0, &faster),
        at("ramp of SCE, minutes", 150.0, &ramp),
        at("ramp of flashcache, minutes", 420.0, &peer_ramp),
        at("times as fast", 2.8, &ramps),
    ];
    let asked = format!(
        "At least 12 times as early and 2.8 times as fast, on every seed; seeds {} and {}. Both are bounds: the \
         paper prints 'only 38 minutes', 'less than 2.5 hours' and, in its abstract, 12 times.",
        range(&faster),
        range(&ramps)
    );
    let bound = "Population has one read of the origin in flight so that misses come first, which is about a fifth of \
                 what the wire carries (docs/benchmarks.md, warm-up).";
    let ours =
        format!("{:.1} times as early, {:.2} times as fast", median(&faster), median(&ramps));
    Ok(Row::new("S6", Kind::Shape)?
        .ours(ours)
        .points(points)
        .at_scale(runs.scale())
        .changed(A_CHANGED)
        .judged(holds, asked, either(holds, "Fragments fill flash sooner than pages do.", bound)))
}

/// S7. SCE's "100 %" is a whole number, so at least 99.5; the others must be within a point of the
/// paper's, and below SCE.
fn hits(runs: &Runs) -> Result<Row> {
    let ours = runs.hits("sce")?;
    let (mut points, mut holds) = (Vec::new(), ours.iter().all(|h| *h >= 99.5));
    for (system, paper) in LARGE_HITS {
        let hits = runs.hits(system)?;
        points.push(at(system, paper, &hits));
        if system != "sce" {
            holds &= falling(&[&ours, &hits]) && hits.iter().all(|h| (h - paper).abs() <= 1.0);
        }
    }
    let asked = "SCE at least 99.5, as its 100 is a whole number; the others below it and within a point of the \
                 paper's, which is half of what they differ by among themselves.";
    let all: Vec<f64> = points.iter().filter_map(|point| point.ours).collect();
    let otherwise = format!(
        "All four end at {} %, because here bcache and EnhanceIO do as many reads in eight hours as flashcache, and \
         in the paper less than a third of them.",
        range(&all)
    );
    Ok(Row::new("S7", Kind::Absolute)?
        .ours(listed(&points))
        .points(points)
        .at_scale(runs.scale())
        .changed(A_CHANGED)
        .judged(
            holds,
            asked,
            either(holds, "All of them have nearly all active data.", &otherwise),
        ))
}

/// S8. SCE's is a bound ("only 17 %"), the others' are gains.
fn responses(runs: &Runs) -> Result<Row> {
    let flash = runs.took("all-flash")?;
    let (mut points, mut holds) = (Vec::new(), true);
    for (system, paper) in LARGE_RESPONSES {
        let ratio = over(&runs.took(system)?, &flash);
        holds &= if system == "sce" {
            ratio.iter().all(|r| *r <= paper)
        } else {
            is_like(&ratio, paper)
        };
        points.push(at(format!("{system} over all-flash"), paper, &ratio));
    }
    let shorter = over(&runs.took("flashcache")?, &runs.took("sce")?);
    holds &= is_like(&shorter, 2.2);
    points.push(at("flashcache over SCE", 2.2, &shorter));
    let asked = "SCE at most 1.17 times all-flash, a bound; the others as gains, half to twice, because their values \
                 are read off a picture ('about 11'); means of a transaction, computing included, last hour.";
    let misses: Vec<f64> = runs.hits("flashcache")?.iter().map(|hits| 100.0 - hits).collect();
    let otherwise = format!(
        "Those of the other three are far lower: {PROGRAMS}, and flashcache misses {} % of its reads (1.34 in the \
         paper).",
        rounded(&misses)
    );
    Ok(Row::new("S8", Kind::Shape)?
        .ours(listed(&points))
        .points(points)
        .at_scale(runs.scale())
        .changed(A_CHANGED)
        .judged(holds, asked, either(holds, "The times are like the paper's.", &otherwise)))
}
