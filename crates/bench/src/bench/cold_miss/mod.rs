// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cold-miss`: what the cache adds to reads that it cannot serve, and what population does to
//! them.
//!
//! Method: an open loop of 4 KiB reads arrives as a Poisson process at half of the origin's own
//! rate, each read in another unit that was never read before, so that all of them miss. The same
//! arrivals meet the bare device, the cache with population switched off (*idle*), and the cache
//! with population on (*running*), over an empty flash device that is large enough for everything.
//! Latency counts from the moment of arrival. Nothing is warmed up or left out.
//!
//! In [virtual time](virtual_time) over many seeds, and once more in [real time](real_time)
//! through the real driver, as a cross-check on a machine that others use too.
//!
//! Why not a closed loop: it slows down with the device and so hides what waits.
//! Why Poisson and not even spacing: independent clients come in bunches, and a bunch is where a
//! population read in the way hurts.

mod real_time;
mod virtual_time;

use anyhow::{Context, Result};
use larder_core::buf::PAGE;
use larder_core::config::Choices;
use larder_core::exec::{Nanos, SECOND};
use larder_model::{SplitMix64, profiles};
use larder_sim::scenario::sce;

use super::BenchOptions;
use super::row::{Goal, Row, median};
use larder_lab::latencies::Latencies;

const NAME: &str = "cold-miss";
/// About the size of the disks that the profiles model.
const ORIGIN_BYTES: u64 = 512 << 30;
const FLASH_BYTES: u64 = 256 << 30;
const FLASH_PROFILE: &str = "ssd-s3500";

pub(super) fn run(options: &BenchOptions) -> Result<Vec<Row>> {
    let mut rows = virtual_time::run(options)?;
    rows.extend(real_time::run(options)?);
    Ok(rows)
}

/// What the reads meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Bare,
    Idle,
    Running,
}

impl Side {
    const ALL: [Self; 3] = [Self::Bare, Self::Idle, Self::Running];

    /// The preset's choices, for the sides that have a cache.
    fn choices(self) -> Choices {
        let mut choices = sce();
        if self == Self::Idle {
            choices.selective_mut().into_iter().for_each(|s| s.classes.clear());
        }
        choices
    }
}

/// A profile and the rate at which reads arrive.
#[derive(Clone, Copy, Debug)]
struct Load {
    profile: &'static str,
    per_second: u64,
    /// What the rate is half of.
    of: &'static str,
    span: Nanos,
}

impl Load {
    /// Half of what the device does at this depth.
    fn half_of(profile: &'static str, deep: bool, seconds: u64) -> Result<Self> {
        let info = profiles().iter().find(|p| p.name == profile).context("the profile")?;
        let (rate, of) = if deep {
            (info.rated.read_iops_qd32, "32 at a time")
        } else {
            (info.rated.read_iops_qd1, "one at a time")
        };
        Ok(Self { profile, per_second: rate / 2, of, span: seconds * SECOND })
    }

    fn words(&self) -> String {
        format!(
            "{}: Poisson arrivals, {}/s for {} s, half of its rate {}",
            self.profile,
            self.per_second,
            self.span / SECOND,
            self.of
        )
    }
}

/// A read: when it comes, and where it goes.
#[derive(Clone, Copy, Debug)]
struct Arrival {
    at: Nanos,
    offset: u64,
}

/// The arrivals of a seed: each in a unit of its own, in no order.
fn arrivals(load: &Load, seed: u64, unit_bytes: u64) -> Vec<Arrival> {
    let mut random = SplitMix64::new(seed);
    let mut units: Vec<u32> = (0..(ORIGIN_BYTES / unit_bytes) as u32).collect();
    let mean_ns = SECOND as f64 / load.per_second as f64;
    let mut at = 0.0;
    let mut arrivals = Vec::new();
    for i in 0..units.len() {
        // In (0, 1], so that the logarithm is finite.
        let chance = ((random.next_u64() >> 11) + 1) as f64 / (1u64 << 53) as f64;
        at -= chance.ln() * mean_ns;
        if at >= load.span as f64 {
            break;
        }
        let pick = i + random.below((units.len() - i) as u64) as usize;
        units.swap(i, pick);
        let page = random.below(unit_bytes / PAGE as u64);
        let offset = u64::from(units[i]) * unit_bytes + page * PAGE as u64;
        arrivals.push(Arrival { at: at as Nanos, offset });
    }
    arrivals
}

/// One run.
struct Outcome {
    p50_us: f64,
    p99_us: f64,
    populated_mb_s: f64,
}

impl Outcome {
    fn new(latencies: &Latencies, populated_bytes: u64, span: Nanos) -> Self {
        Self {
            p50_us: latencies.quantile_us(0.5),
            p99_us: latencies.quantile_us(0.99),
            populated_mb_s: populated_bytes as f64 / 1e6 / (span as f64 / SECOND as f64),
        }
    }
}

/// Several runs of each side with equal arrivals.
struct Outcomes {
    bare: Vec<Outcome>,
    idle: Vec<Outcome>,
    running: Vec<Outcome>,
}

impl Outcomes {
    fn new() -> Self {
        Self { bare: Vec::new(), idle: Vec::new(), running: Vec::new() }
    }

    fn push(&mut self, side: Side, outcome: Outcome) {
        match side {
            Side::Bare => self.bare.push(outcome),
            Side::Idle => self.idle.push(outcome),
            Side::Running => self.running.push(outcome),
        }
    }

    fn rows(&self, how: &str, load: &Load) -> Vec<Row> {
        type Figure = fn(&Outcome) -> f64;
        let each = |outcomes: &[Outcome], figure: Figure| -> Vec<f64> {
            outcomes.iter().map(figure).collect()
        };
        let p50: Figure = |outcome| outcome.p50_us;
        let p99: Figure = |outcome| outcome.p99_us;
        let row = |side: &str, what: &str, ours: &[Outcome], figure: Figure| {
            let case = format!("{how}, {} at {}/s, {side}, {what}", load.profile, load.per_second);
            let (ours, bare) = (each(ours, figure), each(&self.bare, figure));
            Row::new(NAME, case, "us").paired("the bare device", &ours, &bare)
        };
        let populated = median(&each(&self.running, |o| o.populated_mb_s));
        let achieved = format!(
            "population brings {populated:.1} MB/s meanwhile; flash: {FLASH_PROFILE}, empty"
        );
        vec![
            row("idle", "p50", &self.idle, p50).note(load.words()),
            row("idle", "p99", &self.idle, p99).goals(&[Goal::RatioAtMost(1.05)]),
            row("running", "p50", &self.running, p50)
                .goals(&[Goal::RatioAtMost(1.05)])
                .note(achieved),
            row("running", "p99", &self.running, p99).goals(&[Goal::RatioAtMost(2.0)]),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrivals_keep_their_rate_and_never_return_to_a_unit() {
        let load = Load { profile: "cloud", per_second: 1500, of: "", span: 10 * SECOND };
        let arrivals = arrivals(&load, 3, 1 << 20);
        assert!((14_500..15_500).contains(&arrivals.len()), "{}", arrivals.len());
        assert!(arrivals.is_sorted_by_key(|a| a.at));
        let units: std::collections::HashSet<u64> =
            arrivals.iter().map(|a| a.offset >> 20).collect();
        assert_eq!(units.len(), arrivals.len());
        assert!(arrivals.iter().all(|a| a.offset % PAGE as u64 == 0 && a.offset < ORIGIN_BYTES));
    }
}
