// SPDX-License-Identifier: MIT OR Apache-2.0
//! `endurance`: bytes written to flash for each transaction, and the hit ratio for it.
//!
//! Method: the paper's two runs (SCE 4.6, Figure 12) at the scale of [`larder_lab::load`]: eight of
//! its hours with a cache larger than the data (A), four with one of 30 : 160 (B), both from an
//! empty flash device on. All that is written to flash counts, population and write-through alike,
//! divided by all transactions of the run; hit ratios are those of the last hour (S9, Figure 9).
//! Reads of flash per write of flash stand beside (S12, Figure 8).
//!
//! Why the whole run and not the steady state: the paper's figure is of the whole run, and filling
//! a cache is what wears it.

use anyhow::Result;
use larder_lab::load::{FLASH_A_BYTES, FLASH_B_BYTES, MIB_PER_GIB, Oltp, Pattern};
use larder_lab::scenario::volume::{Outcome, Setup, System, run_all};

use super::common::{BenchOptions, Findings};
use super::figures::{flash_writes, hit_ratios, latencies};
use super::row::{Goal, Row, median};

const NAME: &str = "endurance";

/// One of the paper's configurations.
struct Config {
    name: &'static str,
    flash_bytes: u64,
    hours: u64,
    /// The system than which ours must write less, and how much less.
    writes: (&'static str, f64),
    /// Whether ours must have the highest hit ratio.
    hits: bool,
}

const CONFIGS: [Config; 2] = [
    Config {
        name: "A (200 : 160)",
        flash_bytes: FLASH_A_BYTES,
        hours: 8,
        writes: ("flashcache", 0.57),
        hits: false,
    },
    Config {
        name: "B (30 : 160)",
        flash_bytes: FLASH_B_BYTES,
        hours: 4,
        writes: ("bcache", 0.79),
        hits: true,
    },
];

pub(super) fn run(options: &BenchOptions) -> Result<Findings> {
    let seeds = if options.quick { 1 } else { 3 };
    let mut cases = Vec::new();
    for config in &CONFIGS {
        cases.extend(Pattern::ALL.map(|pattern| (config, pattern)));
    }
    let mut setups = Vec::new();
    for (config, pattern) in &cases {
        let hours = if options.quick { 1 } else { config.hours };
        for system in System::CACHES {
            let setup = |seed| Setup::paper(system, *pattern, config.flash_bytes, hours, seed);
            for seed in 1..=seeds {
                setups.push(setup(seed)?);
            }
        }
    }
    let outcomes = run_all(NAME, &setups)?;
    let mut found = Findings::default();
    let all = seeds as usize * System::CACHES.len();
    for ((config, pattern), outcomes) in cases.iter().zip(outcomes.chunks(all)) {
        let systems: Vec<&[Outcome]> = outcomes.chunks(seeds as usize).collect();
        found.rows.extend(case_rows(config, *pattern, &systems, options));
        let title = |what| format!("{what}: {}, {}", config.name, pattern.name());
        let names = System::CACHES.map(System::name);
        found.figures.push(flash_writes(&title("Flash writes"), &names, &systems));
        found.figures.push(hit_ratios(&title("Hit ratio"), &names, &systems));
        found.figures.push(latencies(&title("Latency of transactions"), &names, &systems));
    }
    Ok(found)
}

fn each(outcomes: &[Outcome], figure: impl Fn(&Outcome) -> f64) -> Vec<f64> {
    outcomes.iter().map(figure).collect()
}

fn case_rows(
    config: &Config,
    pattern: Pattern,
    systems: &[&[Outcome]],
    options: &BenchOptions,
) -> Vec<Row> {
    let mut rows = Vec::new();
    let Some((ours, _)) = systems.split_first() else { return rows };
    let counts = pattern == Pattern::Oltp && !options.quick;
    let case = |what: &str| format!("{}, {}: {what}", config.name, pattern.name());
    let kib = |o: &Outcome| o.flash_bytes_each() / 1024.0;
    for (system, peer) in System::CACHES.iter().zip(systems).skip(1) {
        let name = system.name();
        let row = Row::new(NAME, case("flash written a transaction"), "KiB")
            .paired(name, &each(ours, kib), &each(peer, kib))
            .note(words(peer));
        let (whom, most) = config.writes;
        let goal = counts && whom == name;
        rows.push(if goal { row.goals(&[Goal::RatioAtMost(most)]) } else { row });
        let hits = |outcomes| each(outcomes, Outcome::final_hit_ratio);
        let row = Row::new(NAME, case("hit ratio of the last hour"), "").paired(
            name,
            &hits(ours),
            &hits(peer),
        );
        let goal = counts && config.hits;
        rows.push(if goal { row.goals(&[Goal::RatioAtLeast(1.0)]) } else { row });
    }
    let row = Row::new(NAME, case("flash bytes read for each written"), "")
        .alone(median(&each(ours, service)));
    rows.push(row.note(format!("{}; {}", words(ours), best(config, pattern))));
    rows
}

/// Bytes that flash served for each that was written to it.
fn service(outcome: &Outcome) -> f64 {
    let counters = outcome.end().counters;
    counters.flash_read_bytes as f64 / counters.flash_write_bytes.max(1) as f64
}

fn words(outcomes: &[Outcome]) -> String {
    let figure = |of: fn(&Outcome) -> f64| median(&each(outcomes, of));
    format!(
        "{:.0} transactions, {:.0} units entered, {:.0} left; flash reads to writes {:.2}; {:.0} \
         write-arounds",
        figure(|o| o.end().transactions as f64),
        figure(|o| o.end().counters.populations as f64),
        figure(|o| o.end().counters.evictions as f64),
        figure(service),
        figure(|o| o.end().counters.write_arounds as f64),
    )
}

/// What the best possible choice of places would hit, for scale.
fn best(config: &Config, pattern: Pattern) -> String {
    let load = Oltp::new(pattern, larder_lab::load::DATA_BYTES, 1);
    let place_bytes = match pattern {
        Pattern::Oltp => larder_lab::load::REGION_BYTES,
        Pattern::Scattered => larder_lab::load::PAGE_BYTES,
    };
    let share = load.zipf().share_of_top((config.flash_bytes / place_bytes) as u32);
    format!(
        "a cache that knew what is popular would hit {share:.3}; a GiB of the paper is \
         {MIB_PER_GIB} MiB here"
    )
}
