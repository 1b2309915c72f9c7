// SPDX-License-Identifier: MIT OR Apache-2.0
//! The target of the reads, their arrival times, and the rows of both ways to run them.

use anyhow::{Context, Result};
use larder_core::buf::PAGE;
use larder_core::config::Choices;
use larder_core::exec::{Nanos, SECOND};
use larder_lab::latencies::Latencies;
use larder_model::{SplitMix64, profiles};
use larder_sim::scenario::choices_of;

use crate::bench::row::{Goal, Row, median};

pub(super) const NAME: &str = "cold-miss";
/// About the size of the disks that the profiles model.
pub(super) const ORIGIN_BYTES: u64 = 512 << 30;
pub(super) const FLASH_BYTES: u64 = 256 << 30;
pub(super) const FLASH_PROFILE: &str = "ssd-s3500";
/// Units that half of the reads of a mixed load are of.
const HOT_UNITS: usize = 1024;

/// The target of the reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Bare,
    Idle,
    Running,
}

impl Side {
    pub(super) const ALL: [Self; 3] = [Self::Bare, Self::Idle, Self::Running];

    /// The choices of the load's preset, for the sides that have a cache.
    pub(super) fn choices(self, load: &Load) -> Choices {
        let mut choices = choices_of(load.preset);
        if self == Self::Idle
            && let Some(settings) = choices.selective_mut()
        {
            settings.classes.clear();
            (settings.extended, settings.singles, settings.sequential) = (None, None, None);
        }
        choices
    }
}

/// A profile, a preset, and the rate at which reads arrive.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    pub(super) profile: &'static str,
    pub(super) preset: &'static str,
    /// Half of the reads are of so many units, and their latencies do not count. 0: every read is in a unit of its own.
    pub(super) hot_units: usize,
    /// Whether population that runs must copy something in every run. Under `larder` cold reads may be worth nothing.
    pub(super) populates: bool,
    pub(super) per_second: u64,
    /// What the rate is half of.
    pub(super) of: &'static str,
    pub(super) span: Nanos,
}

impl Load {
    /// Half of what the device does at this depth.
    pub(super) fn half_of(profile: &'static str, deep: bool, seconds: u64) -> Result<Self> {
        let info = profiles().iter().find(|p| p.name == profile).context("the profile")?;
        let (rate, of) = if deep {
            (info.rated.read_iops_qd32, "32 at a time")
        } else {
            (info.rated.read_iops_qd1, "one at a time")
        };
        let span = seconds * SECOND;
        let (preset, hot_units, populates) = ("sce", 0, true);
        Ok(Self { profile, preset, hot_units, populates, per_second: rate / 2, of, span })
    }

    /// The same under the preset `larder`.
    pub(super) fn larder(self) -> Self {
        Self { preset: "larder", populates: false, ..self }
    }

    /// The same with reads of hot units among the others.
    pub(super) fn mixed(self) -> Self {
        Self { hot_units: HOT_UNITS, populates: true, ..self }
    }

    /// The goal of p99 over the bare device while population runs.
    fn most_p99(&self) -> f64 {
        if self.preset == "sce" { 2.0 } else { 1.5 }
    }

    /// Its name in the rows.
    fn name(&self) -> String {
        let preset = if self.preset == "sce" { "" } else { ", larder" };
        let mixed = if self.hot_units == 0 { "" } else { ", beside hot reads" };
        format!("{} at {}/s{preset}{mixed}", self.profile, self.per_second)
    }

    pub(super) fn words(&self) -> String {
        let mixed = match self.hot_units {
            0 => String::new(),
            hot => format!("; half of the reads are of {hot} units and do not count"),
        };
        format!(
            "{}: Poisson arrivals, {}/s for {} s, half of its rate {}{mixed}; preset {}",
            self.profile,
            self.per_second,
            self.span / SECOND,
            self.of,
            self.preset
        )
    }
}

/// A read: when it comes, and where it goes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrival {
    pub(super) at: Nanos,
    pub(super) offset: u64,
    /// Whether its latency counts: it is not of a hot unit.
    pub(super) counts: bool,
}

/// The arrivals of a seed: each in a unit of its own, in no order, except those of hot units.
pub(super) fn arrivals(load: &Load, seed: u64, unit_bytes: u64) -> Vec<Arrival> {
    let mut random = SplitMix64::new(seed);
    let mut units: Vec<u32> = (0..(ORIGIN_BYTES / unit_bytes) as u32).collect();
    let mean_ns = SECOND as f64 / load.per_second as f64;
    let mut at = 0.0;
    let mut arrivals = Vec::new();
    for i in load.hot_units..units.len() {
        // In (0, 1], so that the logarithm is finite.
        let chance = ((random.next_u64() >> 11) + 1) as f64 / (1u64 << 53) as f64;
        at -= chance.ln() * mean_ns;
        if at >= load.span as f64 {
            break;
        }
        let page = random.below(unit_bytes / PAGE as u64) * PAGE as u64;
        let at = at as Nanos;
        if load.hot_units > 0 && random.below(2) == 0 {
            let offset = random.below(load.hot_units as u64) * unit_bytes + page;
            arrivals.push(Arrival { at, offset, counts: false });
            continue;
        }
        let pick = i + random.below((units.len() - i) as u64) as usize;
        units.swap(i, pick);
        let offset = u64::from(units[i]) * unit_bytes + page;
        arrivals.push(Arrival { at, offset, counts: true });
    }
    arrivals
}

/// One run.
pub(super) struct Outcome {
    pub(super) p50_us: f64,
    pub(super) p99_us: f64,
    pub(super) populated_mb_s: f64,
}

impl Outcome {
    pub(super) fn new(latencies: &Latencies, populated_bytes: u64, span: Nanos) -> Self {
        Self {
            p50_us: latencies.quantile_us(0.5),
            p99_us: latencies.quantile_us(0.99),
            populated_mb_s: populated_bytes as f64 / 1e6 / (span as f64 / SECOND as f64),
        }
    }
}

/// Several runs of each side with equal arrivals.
pub(super) struct Outcomes {
    pub(super) bare: Vec<Outcome>,
    pub(super) idle: Vec<Outcome>,
    pub(super) running: Vec<Outcome>,
}

impl Outcomes {
    pub(super) fn new() -> Self {
        Self { bare: Vec::new(), idle: Vec::new(), running: Vec::new() }
    }

    pub(super) fn push(&mut self, side: Side, outcome: Outcome) {
        match side {
            Side::Bare => self.bare.push(outcome),
            Side::Idle => self.idle.push(outcome),
            Side::Running => self.running.push(outcome),
        }
    }

    pub(super) fn rows(&self, how: &str, load: &Load) -> Vec<Row> {
        type Figure = fn(&Outcome) -> f64;
        let each = |outcomes: &[Outcome], figure: Figure| -> Vec<f64> {
            outcomes.iter().map(figure).collect()
        };
        let p50: Figure = |outcome| outcome.p50_us;
        let p99: Figure = |outcome| outcome.p99_us;
        let row = |side: &str, what: &str, ours: &[Outcome], figure: Figure| {
            let case = format!("{how}, {}, {side}, {what}", load.name());
            let (ours, bare) = (each(ours, figure), each(&self.bare, figure));
            Row::new(NAME, case, "us").paired("the bare device", &ours, &bare)
        };
        let populated = median(&each(&self.running, |o| o.populated_mb_s));
        let achieved = format!(
            "population copies {populated:.1} MB/s meanwhile; flash: {FLASH_PROFILE}, empty"
        );
        vec![
            row("idle", "p50", &self.idle, p50).note(load.words()),
            row("idle", "p99", &self.idle, p99).goals(&[Goal::RatioAtMost(1.05)]),
            row("running", "p50", &self.running, p50)
                .goals(&[Goal::RatioAtMost(1.05)])
                .note(achieved),
            row("running", "p99", &self.running, p99).goals(&[Goal::RatioAtMost(load.most_p99())]),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrivals_keep_their_rate_and_never_return_to_a_unit() {
        let load = Load::half_of("cloud", true, 10).unwrap();
        let mixed = super::arrivals(&load.mixed(), 3, 1 << 20);
        let counted = mixed.iter().filter(|a| a.counts).count();
        assert!((7000..8000).contains(&counted), "{counted} of {}", mixed.len());
        assert!(mixed.iter().all(|a| a.counts == (a.offset >> 20 >= HOT_UNITS as u64)));
        let arrivals = arrivals(&load, 3, 1 << 20);
        assert!((14_500..15_500).contains(&arrivals.len()), "{}", arrivals.len());
        assert!(arrivals.is_sorted_by_key(|a| a.at));
        let units: std::collections::HashSet<u64> =
            arrivals.iter().map(|a| a.offset >> 20).collect();
        assert_eq!(units.len(), arrivals.len());
        assert!(arrivals.iter().all(|a| a.offset % PAGE as u64 == 0 && a.offset < ORIGIN_BYTES));
    }
}
