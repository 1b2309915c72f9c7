// SPDX-License-Identifier: MIT OR Apache-2.0
//! One run of one system under one load, in virtual time: what benches and the papers' tables share.
//!
//! Purpose: the preset `sce` beside the systems that the paper compares with, each of which is the
//! same engine with other choices, beside no cache and beside flash alone. The engine takes no
//! time here; what differs is what the choices make the devices do.
//!
//! Invariants: a run follows from its [`Setup`] alone, to the last bit; systems of one comparison
//! get the same seed for load and devices; nothing is left out of a run, and what counts is said
//! by spans that are fixed beforehand ([`larder_sim::load`]).
//!
//! Why not real time: eight hours of a paper's run, six systems and three seeds.

use anyhow::{Context, Result, anyhow};
use larder_core::cache::{Flash, Keeps, MetadataPlace};
use larder_core::desk::Requests;
use larder_core::exec::{DevId, MILLISECOND, Nanos, SECOND};
use larder_core::journal::layout::{Layout, log_bytes};
use larder_core::preset::{Choices, Durability, Limits, preset};
use larder_core::shape::Shape;
use larder_core::stats::Counters;
use larder_model::profile;
use larder_sim::device::SimDevice;
use larder_sim::load::clients::{Clients, Plan, What};
use larder_sim::load::{DATA_BYTES, HOUR, Oltp, Pattern};
use larder_sim::world::World;

use crate::jobs::run_jobs;
use crate::latencies::Latencies;

/// The paper's one-minute samples.
pub const SAMPLE: Nanos = HOUR / 60;
/// The SSD, as a cache and as all there is.
pub const FLASH_PROFILE: &str = "ssd-s3500";
/// The paper's three 15k disks behind a gigabit.
pub const SAN_PROFILE: &str = "san-1g";

/// The flash device's number in a world.
pub const FLASH: DevId = DevId(1);
/// The id of a volume whose metadata is kept.
const VOLUME: u64 = 1;

/// What serves the load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum System {
    Preset(&'static str),
    NoCache,
    AllFlash,
}

impl System {
    /// Every cache, ours first.
    pub const CACHES: [Self; 5] = [
        Self::Preset("sce"),
        Self::Preset("slru"),
        Self::Preset("flashcache"),
        Self::Preset("enhanceio"),
        Self::Preset("bcache"),
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Preset(name) => name,
            Self::NoCache => "no-cache",
            Self::AllFlash => "all-flash",
        }
    }

    pub fn choices(self) -> Result<Choices> {
        let name = if let Self::Preset(name) = self { name } else { "sce" };
        Ok(preset(name).with_context(|| format!("no preset {name}"))?.choices())
    }
}

/// A run.
#[derive(Clone, Debug)]
pub struct Setup {
    pub system: System,
    pub pattern: Pattern,
    pub flash_bytes: u64,
    pub origin: &'static str,
    pub plan: Plan,
    /// How long it lasts, a multiple of [`SAMPLE`].
    pub span: Nanos,
    /// The part at its end whose latencies count.
    pub last: Nanos,
    pub seed: u64,
    /// What an experiment changes, nothing in a bench.
    pub change: fn(&mut Choices, &mut Limits),
}

impl Setup {
    /// The paper's load over its origin, for so many of its hours, the last of which counts.
    pub fn paper(
        system: System,
        pattern: Pattern,
        flash_bytes: u64,
        hours: u64,
        seed: u64,
    ) -> Self {
        Self {
            system,
            pattern,
            flash_bytes,
            origin: SAN_PROFILE,
            plan: Plan::default(),
            span: hours * HOUR,
            last: HOUR,
            seed,
            change: |_, _| (),
        }
    }
}

/// What was counted up to a moment.
#[derive(Clone, Copy, Debug, Default)]
pub struct Totals {
    pub transactions: u64,
    pub requests: Requests,
    pub counters: Counters,
}

/// What a run found.
pub struct Outcome {
    /// At the end of each sample, from time zero on.
    pub totals: Vec<Totals>,
    /// Of the last part.
    pub reads: Latencies,
    pub transactions: Latencies,
}

impl Outcome {
    /// What was counted at this moment.
    fn at(&self, at: Nanos) -> Totals {
        self.totals.get((at / SAMPLE) as usize).copied().unwrap_or_default()
    }

    pub fn end(&self) -> Totals {
        self.totals.last().copied().unwrap_or_default()
    }

    pub fn span(&self) -> Nanos {
        (self.totals.len() as u64 - 1) * SAMPLE
    }

    /// The hit ratio between two moments.
    pub fn hit_ratio(&self, from: Nanos, to: Nanos) -> f64 {
        let (from, to) = (self.at(from).requests, self.at(to).requests);
        (to.read_hits - from.read_hits) as f64 / (to.reads - from.reads).max(1) as f64
    }

    /// Transactions a second between two moments.
    pub fn rate(&self, from: Nanos, to: Nanos) -> f64 {
        let count = self.at(to).transactions - self.at(from).transactions;
        count as f64 * SECOND as f64 / (to - from).max(1) as f64
    }

    /// A figure of every sample, by its beginning and end.
    pub fn each(&self, figure: impl Fn(&Self, Nanos, Nanos) -> f64) -> Vec<f64> {
        let samples = 1..self.totals.len() as u64;
        samples.map(|i| figure(self, (i - 1) * SAMPLE, i * SAMPLE)).collect()
    }

    /// The hit ratio of the last hour.
    pub fn final_hit_ratio(&self) -> f64 {
        self.hit_ratio(self.span().saturating_sub(HOUR), self.span())
    }

    /// Bytes written to flash for each transaction, over the whole run (SCE 4.6).
    pub fn flash_bytes_each(&self) -> f64 {
        let end = self.end();
        end.counters.flash_write_bytes as f64 / end.transactions.max(1) as f64
    }
}

/// A modelled device without bytes.
pub fn device(name: &str, bytes: u64, seed: u64) -> Result<SimDevice> {
    let model = profile(name, bytes, seed).map_err(|e| anyhow!("{e}"))?;
    Ok(SimDevice::new(model, None, seed, MILLISECOND))
}

/// The world of a setup, cold.
pub fn world(setup: &Setup) -> Result<World> {
    let (mut choices, mut limits) = (setup.system.choices()?, Limits::default());
    (setup.change)(&mut choices, &mut limits);
    let origin = if setup.system == System::AllFlash { FLASH_PROFILE } else { setup.origin };
    let origin = device(origin, DATA_BYTES, setup.seed)?;
    let mut world = World::new(origin, DATA_BYTES, 1, &choices, &limits);
    if let System::Preset(_) = setup.system {
        let flash = device(FLASH_PROFILE, setup.flash_bytes, setup.seed)?;
        let place = place(&choices, DATA_BYTES, setup.flash_bytes);
        world.attach_journaled(flash, place, &[None]);
    }
    Ok(world)
}

/// Where things lie on flash with so many bytes of slots: before them the metadata that the choices
/// ask for, its log as large as a server makes it.
pub fn place(choices: &Choices, origin_bytes: u64, slot_bytes: u64) -> Flash {
    let unit_bytes = choices.unit_bytes;
    let (slots, keeps) = (slot_bytes / unit_bytes, Keeps::of(choices));
    let (mut base, mut journal) = (0, None);
    if choices.durability == Durability::Journal {
        let shape = Shape { origin_bytes, unit_bytes, shards: 1, shard: 0 };
        let log_bytes = log_bytes(slot_bytes, keeps, 1);
        base = Layout::total_bytes(&shape, slots, log_bytes, keeps);
        journal = Some(MetadataPlace { base: 0, volume: VOLUME, log_bytes, keeps });
    }
    Flash { dev: FLASH, base, slots, block_bytes: 512, journal }
}

/// Runs one.
pub fn run(setup: &Setup) -> Result<Outcome> {
    let mut world = world(setup)?;
    let load = Oltp::new(setup.pattern, DATA_BYTES, setup.seed);
    let mut clients = Clients::new(setup.plan.clone(), load);
    let (reads, transactions) = (Latencies::new(), Latencies::new());
    let mut outcome = Outcome { totals: vec![Totals::default()], reads, transactions };
    let mut done = 0;
    for sample in 1..=setup.span / SAMPLE {
        let counts = (sample - 1) * SAMPLE >= setup.span.saturating_sub(setup.last);
        clients.run(&mut world, sample * SAMPLE, |seen| {
            done += u64::from(seen.what == What::Transaction);
            match seen.what {
                What::Read { .. } if counts => outcome.reads.record(seen.took),
                What::Transaction if counts => outcome.transactions.record(seen.took),
                _ => {}
            }
        });
        outcome.totals.push(Totals {
            transactions: done,
            requests: world.requests(),
            counters: world.counters(),
        });
    }
    Ok(outcome)
}

/// Runs all, on every processor; outcomes come in the order of the setups.
pub fn run_all(name: &str, setups: &[Setup]) -> Result<Vec<Outcome>> {
    let words = |s: &Setup| {
        let (pattern, system) = (s.pattern.name(), s.system.name());
        format!("{pattern}, {system}, seed {}: {} virtual seconds", s.seed, s.span / SECOND)
    };
    run_jobs(name, setups, words, run)
}
