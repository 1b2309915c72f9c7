// SPDX-License-Identifier: MIT OR Apache-2.0
//! `timing`: how many blocks a second the simulator of hierarchies takes, with all their latencies.
//!
//! Method: Holland's baseline (RAM, flash, network, filer, eight threads, 60 GB working set) at 1/64,
//! with the load continuing for a million, ten and a hundred million blocks; on one thread. What counts
//! is processor time, since machines are shared. Building the caches and the load counts too.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use larder_lab::scenario::{Scenario, run_point};
use rustix::time::{ClockId, clock_gettime};
use toml::Value;

use super::common::{BenchOptions, progress};
use super::row::{Goal, Row, median};

const NAME: &str = "timing";
/// Blocks of a working set at this scale.
const SET_BLOCKS: f64 = 60.0 * 1024.0 * 256.0 / 64.0;
const SCENARIO: &str = "kind = \"hierarchy\"\nseed = 1\nscale = \"1/64\"\n";

pub(super) fn run(options: &BenchOptions) -> Result<Vec<Row>> {
    let millions: &[f64] = if options.quick { &[0.3, 1.0] } else { &[1.0, 10.0, 100.0] };
    let mut rates = Vec::new();
    for millions in millions {
        let rounds = if *millions > 10.0 { 1 } else { 3 };
        let rates_of: Result<Vec<f64>> = (0..rounds).map(|_| rate(*millions)).collect();
        let rate = median(&rates_of?);
        progress(NAME, format!("{millions} million blocks: {rate:.2} million a second"));
        rates.push((*millions, rate));
    }
    let row = |(millions, rate): &(f64, f64)| {
        let row =
            Row::new(NAME, format!("{millions} million blocks"), "million blocks/s").alone(*rate);
        row.goals(&[Goal::OursAtLeast(0.7)]).note("of one core's time; 2 is aimed at")
    };
    let mut rows: Vec<Row> = rates.iter().map(row).collect();
    let (Some((least, short)), Some((most, long))) = (rates.first(), rates.last()) else {
        bail!("nothing was run");
    };
    let case = format!("flat: {most} million blocks against {least}");
    let flat = Row::new(NAME, case, "million blocks/s").against("the short run", *long, *short);
    rows.push(flat.goals(&[Goal::RatioAtLeast(0.9)]));
    Ok(rows)
}

/// Million blocks a second of processor time.
fn rate(millions: f64) -> Result<f64> {
    let mut scenario = Scenario::parse(NAME, SCENARIO)?;
    scenario.set("load.volume", Value::Float(millions * 1e6 / SET_BLOCKS))?;
    let points = scenario.points()?;
    let point = points.first().context("a scenario has a point")?;
    let begin = thread_time();
    run_point(&point.settings)?;
    Ok(millions / (thread_time() - begin).as_secs_f64().max(1e-9))
}

/// The processor time of this thread.
fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}
