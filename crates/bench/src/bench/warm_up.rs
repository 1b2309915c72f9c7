// SPDX-License-Identifier: MIT OR Apache-2.0
//! `warm-up`: how long a cold cache that is larger than the data takes to become useful.
//!
//! Method: the paper's run (SCE 4.2, configuration A), eight of its hours at the scale of
//! [`larder_lab::load`], over the model of its origin (`san-1g` is its three 15k disks behind a
//! gigabit), from an empty flash device on. Samples are the paper's minutes.
//! - *Time to 90 %*: until a sample first has 90 % of the hit ratio that the same system has in its
//!   own last hour. A system that ends lower has less to reach.
//! - *Passing*: the paper's "12 times faster": when `sce` first does more transactions than the
//!   other's best sample, and when that best sample was.
//!
//! The scattered load stands beside: there a fragment copies 255 pages that no client asked for.
//!
//! Why the ratio is the peer's time over ours: both are times, and it states how many times faster.

use anyhow::Result;
use larder_core::exec::{Nanos, SECOND};
use larder_lab::load::{FLASH_A_BYTES, Pattern};
use larder_lab::scenario::volume::{Outcome, SAMPLE, Setup, System, run_all};
use larder_report::{Axis, Figure, Series};

use super::common::{BenchOptions, Findings};
use super::figures::{flash_writes, latencies, middle};
use super::row::{Goal, Row, median};

const NAME: &str = "warm-up";
const HOURS: u64 = 8;
/// Of the final hit ratio.
const SHARE: f64 = 0.9;
const SYSTEMS: [System; 7] = [
    System::CACHES[0],
    System::CACHES[1],
    System::CACHES[2],
    System::CACHES[3],
    System::CACHES[4],
    System::NoCache,
    System::AllFlash,
];

pub(super) fn run(options: &BenchOptions) -> Result<Findings> {
    let (seeds, hours) = if options.quick { (1, 2) } else { (3, HOURS) };
    let mut setups = Vec::new();
    for pattern in Pattern::ALL {
        for system in SYSTEMS {
            let setup = |seed| Setup::paper(system, pattern, FLASH_A_BYTES, hours, seed);
            for seed in 1..=seeds {
                setups.push(setup(seed)?);
            }
        }
    }
    let outcomes = run_all(NAME, &setups)?;
    let mut found = Findings::default();
    let all = seeds as usize * SYSTEMS.len();
    for (pattern, outcomes) in Pattern::ALL.into_iter().zip(outcomes.chunks(all)) {
        let systems: Vec<&[Outcome]> = outcomes.chunks(seeds as usize).collect();
        found.rows.extend(pattern_rows(pattern, &systems, options));
        found.figures.extend(pictures(pattern, &systems));
    }
    Ok(found)
}

fn pictures(pattern: Pattern, systems: &[&[Outcome]]) -> Vec<Figure> {
    let x = "minutes since the cold start (1/16 of the data, so of the time, of the paper)";
    let figure = |title: &str, caption: &str, y: Axis, skip: usize, of: Sampled| {
        let shown = SYSTEMS.iter().zip(systems).take(SYSTEMS.len() - skip);
        let series = shown.map(|(system, outcomes)| Series {
            name: system.name().to_owned(),
            points: middle(outcomes, of),
        });
        let title = format!("{title}: {}", pattern.name());
        Figure::lines(&title, caption, (x, seconds(SAMPLE) / 60.0), y, series.collect())
    };
    let about = match pattern {
        Pattern::Oltp => "Zipf 0.9 over regions of 1 MiB, walks within 64 KiB runs.",
        Pattern::Scattered => {
            "Zipf 0.9 over single pages anywhere: a fragment copies 255 pages that no client \
             asked for."
        }
    };
    let named = SYSTEMS.map(System::name);
    let (writes, caches) = (systems.get(..5).unwrap_or(systems), named.get(..5).unwrap_or(&named));
    let hits = Axis::linear("hit ratio").up_to(1.0);
    let mut all = vec![
        figure("Hit ratio of reads", about, hits, 2, Outcome::hit_ratio),
        figure("Transactions", about, Axis::linear("transactions a second"), 0, Outcome::rate),
    ];
    all.push(latencies(&format!("Latency of transactions: {}", pattern.name()), &named, systems));
    all.push(flash_writes(&format!("Flash writes: {}", pattern.name()), caches, writes));
    all
}

/// A figure of a sample.
type Sampled = fn(&Outcome, Nanos, Nanos) -> f64;

fn seconds(at: Nanos) -> f64 {
    at as f64 / SECOND as f64
}

/// The end of the first sample that is at least `least`.
fn first(samples: &[f64], least: f64) -> Option<Nanos> {
    Some((samples.iter().position(|s| *s >= least)? as u64 + 1) * SAMPLE)
}

/// Until 90 % of its own final hit ratio.
fn time_to_share(outcome: &Outcome) -> f64 {
    let ratios = outcome.each(Outcome::hit_ratio);
    let at = first(&ratios, outcome.final_hit_ratio() * SHARE);
    seconds(at.unwrap_or(outcome.span()))
}

/// When `ours` passes the best sample of `peer`, and when that was. One that never passes it is
/// given the whole run.
fn passing(ours: &Outcome, peer: &Outcome) -> (f64, f64) {
    let (ours_rates, rates) = (ours.each(Outcome::rate), peer.each(Outcome::rate));
    let best = rates.iter().copied().fold(0.0, f64::max);
    let reached = first(&rates, best).unwrap_or(peer.span());
    (seconds(first(&ours_rates, best).unwrap_or(ours.span())), seconds(reached))
}

fn pattern_rows(pattern: Pattern, systems: &[&[Outcome]], options: &BenchOptions) -> Vec<Row> {
    let mut rows = Vec::new();
    let Some((ours, _)) = systems.split_first() else { return rows };
    let with_goal = |row: Row, goal: f64, peer: System| {
        let counts =
            pattern == Pattern::Oltp && peer == System::Preset("flashcache") && !options.quick;
        if counts { row.goals(&[Goal::RatioAtLeast(goal)]) } else { row }
    };
    let case = |what: &str| format!("{}: {what}", pattern.name());
    let own: Vec<f64> = ours.iter().map(time_to_share).collect();
    for (system, outcomes) in SYSTEMS.iter().zip(systems).skip(1) {
        if !matches!(system, System::Preset(_)) {
            continue;
        }
        let peer: Vec<f64> = outcomes.iter().map(time_to_share).collect();
        let row = Row::new(NAME, case("time to 90 % of the final hit ratio"), "s").faster(
            system.name(),
            &own,
            &peer,
        );
        rows.push(with_goal(row, 5.0, *system));
        let (passed, reached): (Vec<f64>, Vec<f64>) =
            ours.iter().zip(*outcomes).map(|(o, p)| passing(o, p)).unzip();
        let row = Row::new(NAME, case("time to pass the peer's best throughput"), "s").faster(
            system.name(),
            &passed,
            &reached,
        );
        rows.push(with_goal(row, 12.0, *system));
    }
    for (system, outcomes) in SYSTEMS.iter().zip(systems) {
        let each = |figure: &dyn Fn(&Outcome) -> f64| {
            median(&outcomes.iter().map(figure).collect::<Vec<_>>())
        };
        let hour = larder_lab::load::HOUR;
        let rate = each(&|o| o.rate(o.span().saturating_sub(hour), o.span()));
        let note = format!(
            "hit ratio {:.4}; transaction p50 {:.2} ms, p99 {:.2} ms; {:.1} KiB of flash writes a \
             transaction; {} units populated, {} evicted, {:.2} GB population reads",
            each(&Outcome::final_hit_ratio),
            each(&|o| o.transactions.quantile_us(0.5)) / 1e3,
            each(&|o| o.transactions.quantile_us(0.99)) / 1e3,
            each(&Outcome::flash_bytes_each) / 1024.0,
            each(&|o| o.end().counters.populations as f64),
            each(&|o| o.end().counters.evictions as f64),
            each(&|o| o.end().counters.population_bytes as f64) / 1e9,
        );
        let case = case(&format!("last hour, {}", system.name()));
        rows.push(Row::new(NAME, case, "tx/s").alone(rate).note(note));
    }
    rows
}
