// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pictures of outcomes, for reports: medians over seeds, as in the rows.

use larder_core::exec::Nanos;
use larder_lab::scenario::volume::Outcome;
use larder_report::{Figure, Spread};

use super::row::median;

/// The median of a figure over seeds.
fn mid(outcomes: &[Outcome], figure: impl Fn(&Outcome) -> f64) -> f64 {
    median(&outcomes.iter().map(figure).collect::<Vec<_>>())
}

/// A figure of each sample, the median over seeds.
pub(super) fn middle(outcomes: &[Outcome], figure: fn(&Outcome, Nanos, Nanos) -> f64) -> Vec<f64> {
    let all: Vec<Vec<f64>> = outcomes.iter().map(|o| o.each(figure)).collect();
    let samples = all.first().map_or(0, Vec::len);
    let sample = |i: usize| all.iter().filter_map(|one| one.get(i).copied()).collect::<Vec<_>>();
    (0..samples).map(|i| median(&sample(i))).collect()
}

/// Transactions of the last hour.
pub(super) fn latencies(title: &str, names: &[&str], systems: &[&[Outcome]]) -> Figure {
    let ms = |outcomes: &[Outcome], share: f64| {
        mid(outcomes, |o| o.transactions.quantile_us(share)) / 1e3
    };
    let spreads = names.iter().zip(systems).map(|(name, outcomes)| Spread {
        name: (*name).to_owned(),
        p50: ms(outcomes, 0.5),
        p95: ms(outcomes, 0.95),
        p99: ms(outcomes, 0.99),
    });
    let caption = "Computing included, over the paper's last hour.";
    Figure::spreads(title, caption, "milliseconds", spreads.collect())
}

/// Bytes written to flash for each transaction of the run.
pub(super) fn flash_writes(title: &str, names: &[&str], systems: &[&[Outcome]]) -> Figure {
    let kib = |outcomes: &[Outcome]| mid(outcomes, Outcome::flash_bytes_each) / 1024.0;
    let bars = names.iter().zip(systems).map(|(name, o)| ((*name).to_owned(), kib(o)));
    let caption = "Population and write-through, over the whole run from an empty cache on.";
    Figure::bars(title, caption, "KiB a transaction", bars.collect())
}

/// Hit ratios of the last hour.
pub(super) fn hit_ratios(title: &str, names: &[&str], systems: &[&[Outcome]]) -> Figure {
    let ratio = |outcomes: &[Outcome]| mid(outcomes, Outcome::final_hit_ratio) * 100.0;
    let bars = names.iter().zip(systems).map(|(name, o)| ((*name).to_owned(), ratio(o)));
    Figure::bars(title, "Reads, in the paper's last hour.", "% of reads", bars.collect())
}
