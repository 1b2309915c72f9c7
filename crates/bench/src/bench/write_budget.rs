// SPDX-License-Identifier: MIT OR Apache-2.0
//! `write-budget`: a day of virtual time under half of the bytes that the load would write to flash.
//!
//! Method: the load of [`larder_sim::budgeted`] warms a cache for a day. In the second day one cache continues, and another one has a budget
//! of half of the bytes that the first writes in that day. Once all requests read, so that flash writes are admissions; once a tenth
//! writes, whose copies flash gets too.

use anyhow::Result;
use larder_lab::jobs::run_jobs;
use larder_sim::budgeted::{Day, day, small_units};

use super::common::{BenchOptions, Findings};
use super::row::{Goal, Row, median};

const NAME: &str = "write-budget";
const PRESETS: [&str; 3] = ["larder", "sce", "flashcache"];
const WRITE_PERCENTS: [u64; 2] = [0, 10];

/// A day without and with the budget.
struct Pair {
    free: Day,
    half: Day,
}

pub(super) fn run(options: &BenchOptions) -> Result<Findings> {
    let seeds = if options.quick { 1 } else { 3 };
    let mut jobs = Vec::new();
    for preset in PRESETS {
        for writes in WRITE_PERCENTS {
            jobs.extend((1..=seeds).map(|seed| (preset, writes, seed)));
        }
    }
    let name = |(preset, writes, seed): &(&str, u64, u64)| {
        format!("{preset}, {writes} % writes, seed {seed}")
    };
    let one = |(preset, writes, seed): &(&'static str, u64, u64)| {
        let choices = small_units(preset);
        let free = day(&choices, 0, *writes, *seed);
        Ok(Pair { free, half: day(&choices, free.written / 2, *writes, *seed) })
    };
    let pairs = run_jobs(NAME, &jobs, name, one)?;
    let mut rows = Vec::new();
    for (jobs, pairs) in jobs.chunks(seeds as usize).zip(pairs.chunks(seeds as usize)) {
        let (preset, writes, _) = jobs[0];
        let case = |what: &str| format!("{preset}, {writes} % writes: {what}");
        let each = |of: fn(&Pair) -> f64| pairs.iter().map(of).collect::<Vec<f64>>();
        rows.push(
            Row::new(NAME, case("written in a day"), "MiB")
                .paired(
                    "the budget",
                    &each(|p| mib(p.half.written)),
                    &each(|p| mib(p.free.written / 2)),
                )
                .goals(&[Goal::RatioAtMost(1.05)]),
        );
        let lost = each(|p| 100.0 * (p.free.hit_ratio - p.half.hit_ratio));
        let free = median(&each(|p| 100.0 * p.free.hit_ratio));
        rows.push(
            Row::new(NAME, case("hit ratio lost"), "points")
                .alone(median(&lost))
                .goals(&[Goal::OursAtMost(5.0)])
                .note(format!("of {free:.1} %")),
        );
    }
    Ok(Findings { rows, figures: Vec::new() })
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}
