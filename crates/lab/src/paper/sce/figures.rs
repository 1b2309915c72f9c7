// SPDX-License-Identifier: MIT OR Apache-2.0
//! The paper's figures, redrawn: ours as lines and bars, and as rings what the paper states in words
//! or numbers; its curves themselves are not given as numbers.

use anyhow::Result;
use larder_report::{Axis, Bar, Curve, Figure};

use super::super::runs::{FLASH_EACH, Runs, median, medians, over};
use super::cases::{Ablation, Case};
use super::published::{
    CACHES, EACH_COUNTED, LARGE_HITS, LARGE_RESPONSES, LARGE_TPSE, SMALL_HITS, SMALL_TPSE,
};
use super::write_back::Back;

/// The middle of the paper's last hour, of eight and of four.
const LAST_OF_8: f64 = 7.5;
const LAST_OF_4: f64 = 3.5;
const TPSE: &str = "transactions a second, as TPC-E counts";
const KIB: f64 = 1024.0;

fn bar(name: &str, paper: Option<f64>, ours: &[f64]) -> Bar {
    Bar { name: name.to_owned(), value: median(ours), paper }
}

/// Rates of the paper's minutes over its hours.
fn rates(samples: &[Vec<f64>]) -> Vec<(f64, f64)> {
    let minutes = medians(samples).into_iter().enumerate();
    minutes.map(|(i, rate)| ((i as f64 + 0.5) / 60.0, rate / EACH_COUNTED)).collect()
}

fn throughput(title: &str, caption: &str, curves: Vec<Curve>) -> Figure {
    let x = Axis::linear("hours of the paper since the cold start");
    let caption = format!("{caption} One of ten transactions here counts.");
    Figure::curves(title, &caption, x, Axis::linear(TPSE), curves)
}

fn samples(runs: &Runs, system: &str) -> Result<Vec<Vec<f64>>> {
    runs.lists("system", system, "/samples/transactions_per_second")
}

/// Figure 7, a to c.
pub(super) fn figure_7(runs: &Runs) -> Result<Vec<Figure>> {
    let mut curves = Vec::new();
    for (system, tpse) in LARGE_TPSE {
        let mut paper = vec![(LAST_OF_8, tpse)];
        if system == "flashcache" {
            paper.insert(0, (4.6, 45.0));
        }
        let ours = rates(&samples(runs, system)?);
        curves.push(Curve { name: system.to_owned(), ours, paper });
    }
    let (mut hits, mut responses) = (Vec::new(), Vec::new());
    let flash = runs.took("all-flash")?;
    for (system, paper) in LARGE_HITS {
        hits.push(bar(system, Some(paper), &runs.hits(system)?));
    }
    for (system, paper) in LARGE_RESPONSES {
        responses.push(bar(system, Some(paper), &over(&runs.took(system)?, &flash)));
    }
    let caption = "Eight hours, 200 GiB of flash over 160 GiB of data.";
    let last = "The last of eight hours, 200 GiB of flash over 160 GiB of data.";
    Ok(vec![
        throughput("SCE, Figure 7a: throughput", caption, curves),
        Figure::bars_beside("SCE, Figure 7b: read hits", last, "% of reads", hits),
        Figure::bars_beside("SCE, Figure 7c: response time", last, "times all-flash's", responses),
    ])
}

/// Figures 8 and 9.
pub(super) fn figures_8_and_9(runs: &Runs) -> Result<Vec<Figure>> {
    let (mut service, mut curves, mut hits, mut responses) =
        (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let flash = runs.took("all-flash")?;
    for system in CACHES {
        let of = |figure| runs.system(system, figure);
        let ratio = over(&of("flash_read_bytes")?, &of("flash_write_bytes")?);
        service.push(bar(system, (system == "sce").then_some(3.0), &ratio));
        let slower = over(&runs.took(system)?, &flash);
        responses.push(bar(system, (system == "sce").then_some(1.4), &slower));
    }
    for (system, paper) in SMALL_TPSE {
        let (ours, paper) = (rates(&samples(runs, system)?), vec![(LAST_OF_4, paper)]);
        curves.push(Curve { name: system.to_owned(), ours, paper });
    }
    for (system, paper) in SMALL_HITS {
        hits.push(bar(system, Some(paper), &runs.hits(system)?));
    }
    let caption = "Four hours, 30 GiB of flash over 160 GiB of data.";
    let last = "The last of four hours, 30 GiB of flash over 160 GiB of data.";
    let (read, times) = ("flash bytes read over written", "times all-flash's");
    Ok(vec![
        Figure::bars_beside("SCE, Figure 8: service over population", caption, read, service),
        throughput("SCE, Figure 9a: throughput", caption, curves),
        Figure::bars_beside("SCE, Figure 9b: read hits", last, "% of reads", hits),
        Figure::bars_beside("SCE, Figure 9c: response time", last, times, responses),
    ])
}

/// Figure 10, a to c.
pub(super) fn figure_10(through: &Runs, back: &[Back]) -> Result<Vec<Figure>> {
    let tpse = |name| SMALL_TPSE.into_iter().find(|(system, _)| *system == name).map(|(_, t)| t);
    let point = |tpse: f64| (LAST_OF_4, tpse);
    let mut curves = vec![Curve {
        name: "sce".to_owned(),
        ours: rates(&samples(through, "sce")?),
        paper: tpse("sce").map(point).into_iter().collect(),
    }];
    let (mut hits, mut responses) = (Vec::new(), Vec::new());
    let flash = through.took("all-flash")?;
    for one in back {
        let paper = tpse(one.name).map(|tpse| point(tpse * one.gain));
        let (name, ours) = (one.name.to_owned(), rates(&one.rates()?));
        curves.push(Curve { name, ours, paper: paper.into_iter().collect() });
        hits.push(bar(&format!("{}, through", one.name), None, &through.hits(one.name)?));
        hits.push(bar(&format!("{}, back", one.name), None, &one.hits()?));
        let before = over(&through.took(one.name)?, &flash);
        responses.push(bar(&format!("{}, through", one.name), None, &before));
        responses.push(bar(&format!("{}, back", one.name), None, &over(&one.took()?, &flash)));
    }
    let caption = "Four hours, 30 GiB of flash over 160 GiB of data; all but SCE under write-back.";
    let last = "The last of four hours, 30 GiB of flash over 160 GiB of data.";
    Ok(vec![
        throughput("SCE, Figure 10a: throughput under write-back", caption, curves),
        Figure::bars_beside("SCE, Figure 10b: read hits", last, "% of reads", hits),
        Figure::bars_beside("SCE, Figure 10c: response time", last, "times all-flash's", responses),
    ])
}

/// Figure 11, a to c.
pub(super) fn figure_11(runs: &Ablation) -> Result<Vec<Figure>> {
    let (mut curves, mut hits, mut responses) = (Vec::new(), Vec::new(), Vec::new());
    for case in Case::ALL {
        let ours = rates(&runs.samples(case, "transactions_per_second")?);
        curves.push(Curve { name: case.name().to_owned(), ours, paper: Vec::new() });
        hits.push(bar(case.name(), Some(case.paper_hits()), &runs.hits(case)?));
        responses.push(bar(case.name(), Some(case.paper_ms()), &runs.ms(case)?));
    }
    let caption = "Four hours, 30 GiB of flash over 160 GiB of data.";
    let last = "The last of four hours, 30 GiB of flash over 160 GiB of data.";
    Ok(vec![
        throughput("SCE, Figure 11a: throughput by write policy and fragment", caption, curves),
        Figure::bars_beside("SCE, Figure 11b: read hits", last, "% of reads", hits),
        Figure::bars_beside("SCE, Figure 11c: response time", last, "ms", responses),
    ])
}

/// Figure 12.
pub(super) fn figure_12(large: &Runs, small: &Runs) -> Result<Figure> {
    let mut bars = Vec::new();
    for (runs, config) in [(large, "200 GiB"), (small, "30 GiB")] {
        for system in CACHES {
            let each: Vec<f64> = runs.system(system, FLASH_EACH)?.iter().map(|b| b / KIB).collect();
            bars.push(bar(&format!("{system} {config}"), None, &each));
        }
    }
    let caption = "Population and write-through over the whole run. The paper states two ratios: SCE \
                   0.57 of flashcache with 200 GiB, 0.79 of bcache with 30 GiB (S19).";
    let title = "SCE, Figure 12: writes to flash";
    Ok(Figure::bars_beside(title, caption, "KiB a transaction", bars))
}
