// SPDX-License-Identifier: MIT OR Apache-2.0
//! `verify`: what checksums over cached pages cost a hit.
//!
//! Method: two caches in memory with all data on flash, one of them with checksums. Reads of 4 KiB at random places take turns of
//! half a second, after as long without being counted. Flash is memory, so a hit costs nothing but the processor: over an SSD the
//! share of the checksum is smaller. In the last row a tenth of the checksums fit in memory, and nearly each hit reads a block of
//! them: over an SSD that is a second read.

use std::time::Duration;

use anyhow::{Result, ensure};
use larder_core::config::Limits;

use super::all_hits::{BOUND, Warm};
use super::common::{BenchOptions, progress};
use super::quiet::{Counted, Watch};
use super::row::{Goal, Row};

const NAME: &str = "verify";
const MIB: u64 = 1 << 20;

/// What is measured: reads in flight, whether the checksums fit in memory, the goal.
type Case = (&'static str, u64, bool, Goal);

const CASES: &[Case] = &[
    ("hits, 32 in flight", 32, true, Goal::RatioAtLeast(0.95)),
    ("a hit, 1 in flight", 1, true, Goal::AddsAtMost(2.0)),
    ("hits, 32 in flight, a tenth of the checksums in memory", 32, false, Goal::RatioAtLeast(0.5)),
];

pub(super) fn run(options: &BenchOptions) -> Result<Vec<Row>> {
    CASES.iter().map(|row| compare(options, row)).collect()
}

fn compare(options: &BenchOptions, (what, depth, fits, goal): &Case) -> Result<Row> {
    let (bytes, pairs, span) = match options.quick {
        true => (16 * MIB, 2, Duration::from_millis(100)),
        false => (512 * MIB, 21, Duration::from_millis(500)),
    };
    let verify_bytes = if *fits { bytes / 512 } else { bytes / 10_240 };
    let limits = Limits { verify_bytes, ..Limits::default() };
    let caches = [Warm::new(bytes, true, limits)?, Warm::new(bytes, false, limits)?];
    let (mut found, mut others) = ([Vec::new(), Vec::new()], Vec::new());
    for pair in 0..pairs {
        let watch = Watch::begin(None)?;
        // Which is first changes, so that a machine that slows down favours neither.
        for turn in 0..2 {
            let one = (pair as usize + turn) % 2;
            caches[one].reads(span, (*depth, pair))?;
            found[one].push(caches[one].reads(span, (*depth, pair))?);
        }
        others.push(watch.others()?);
        progress(NAME, format!("{what}: {} of {pairs}", pair + 1));
    }
    for cache in &caches {
        let damaged = cache.volume.stats()?.counters.damaged_pages;
        ensure!(damaged == 0, "{damaged} pages are damaged");
        cache.volume.cache().stop(BOUND, |_| (), || false)?;
    }
    let counted = Counted::quietest(&others);
    // One at a time, the time of a hit is the inverse of their number.
    let unit = if *depth == 1 { "us" } else { "IOPS" };
    let value = |iops: &f64| if *depth == 1 { 1e6 / iops } else { *iops };
    let [ours, peer] = found.map(|all| counted.each(&all, value));
    let row = Row::new(NAME, *what, unit);
    Ok(row.paired("--verify off", &ours, &peer).goals(&[*goal]))
}
