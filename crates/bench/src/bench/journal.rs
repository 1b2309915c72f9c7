// SPDX-License-Identifier: MIT OR Apache-2.0
//! `journal`: the cost of a warm restart, where 13 % of the requests write.
//!
//! Method: the first row of `throughput` (its load, devices, warm-up and spans) twice: `sce` with
//! `--durability journal` beside `sce` with `--durability volatile`. With a journal the first write
//! to a region of a unit waits until the log durably records it, the log and its checkpoints share
//! flash with everything else, and each checkpoint flushes the origin.
//!
//! Why that load and not one of writes alone: the paper's claim is about such a load (H15: the
//! cost of persistent flash is invisible).

use anyhow::Result;
use larder_core::config::Durability;
use larder_core::exec::Nanos;
use larder_lab::device::Device;
use larder_lab::jobs::run_jobs;
use larder_lab::load::clients::Plan;
use larder_lab::load::{FLASH_A_BYTES, HOUR, Pattern};
use larder_lab::scenario::volume::{Setup, System, world};

use super::common::{BenchOptions, Findings};
use super::row::{Goal, Row, median};
use super::throughput::{ARRAY_PROFILE, Found, measure, warm};

const NAME: &str = "journal";
/// Of the throughput without.
const GOAL: f64 = 0.97;

/// One run.
struct Outcome {
    found: Found,
    /// Bytes written to flash for each transaction.
    flash_bytes_each: f64,
}

pub(super) fn run(options: &BenchOptions) -> Result<Findings> {
    let (seeds, lead, span) =
        if options.quick { (1, HOUR / 60, HOUR / 30) } else { (3, HOUR / 4, HOUR / 12) };
    let ways = [Durability::Journal, Durability::Volatile];
    let jobs: Vec<(Durability, u64)> =
        ways.into_iter().flat_map(|way| (1..=seeds).map(move |seed| (way, seed))).collect();
    let words = |(way, seed): &(Durability, u64)| format!("{way:?}, seed {seed}");
    let outcomes = run_jobs(NAME, &jobs, words, |(way, seed)| one(*way, *seed, (lead, span)))?;
    let (journal, volatile) = outcomes.split_at(seeds as usize);
    Ok(rows(journal, volatile, options.quick).into())
}

fn one(way: Durability, seed: u64, spans: (Nanos, Nanos)) -> Result<Outcome> {
    let mut setup = Setup::paper(System::Preset("sce"), Pattern::Oltp, FLASH_A_BYTES, 1, seed)?;
    setup.origin = Device::named(ARRAY_PROFILE)?;
    setup.choices.durability = way;
    let mut world = world(&setup)?;
    warm(&mut world);
    let before = world.counters().flash_write_bytes;
    let found = measure(&mut world, Plan::throughput(), seed, spans);
    let written = (world.counters().flash_write_bytes - before) as f64;
    let seconds = (spans.0 + spans.1) as f64 / larder_core::exec::SECOND as f64;
    Ok(Outcome { found, flash_bytes_each: written / (found.per_second * seconds).max(1.0) })
}

fn rows(journal: &[Outcome], volatile: &[Outcome], quick: bool) -> Vec<Row> {
    let each = |of: &[Outcome], figure: fn(&Outcome) -> f64| -> Vec<f64> {
        of.iter().map(figure).collect()
    };
    let words = |of: &[Outcome]| {
        let mid = |figure| median(&each(of, figure));
        format!(
            "hit ratio {:.4}, p50 {:.2} ms, p99 {:.2} ms",
            mid(|o| o.found.hit_ratio),
            mid(|o| o.found.p50_us) / 1e3,
            mid(|o| o.found.p99_us) / 1e3,
        )
    };
    let pair = |case: &str, unit: &str, figure: fn(&Outcome) -> f64| {
        let (ours, peer) = (each(journal, figure), each(volatile, figure));
        Row::new(NAME, case, unit).paired("sce, volatile", &ours, &peer)
    };
    let row = pair("transactions, sce", "tx/s", |o| o.found.per_second).note(format!(
        "{}; volatile: {}",
        words(journal),
        words(volatile)
    ));
    vec![
        if quick { row } else { row.goals(&[Goal::RatioAtLeast(GOAL)]) },
        pair("p99 of transactions", "ms", |o| o.found.p99_us / 1e3),
        pair("flash written a transaction", "KiB", |o| o.flash_bytes_each / 1024.0),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(per_second: f64) -> Outcome {
        Outcome { found: Found { per_second, ..Found::default() }, flash_bytes_each: 1.0 }
    }

    #[test]
    fn three_percent_are_lost_at_most() {
        let volatile = [outcome(100.0), outcome(200.0), outcome(400.0)];
        for (last, reached) in [(0.975, true), (0.965, false)] {
            let journal = [100.0, 180.0, 400.0 * last].map(outcome);
            let rows = rows(&journal, &volatile, false);
            assert_eq!((rows[0].ratio, rows[0].reached), (Some(last), Some(reached)));
        }
    }
}
