// SPDX-License-Identifier: MIT OR Apache-2.0
//! A history before it happens: the volume and a list of steps, drawn from a seed.
//!
//! Invariants: a plan decides everything that its run does; running it twice gives the same.
//! Why a list and not decisions on the way: the shrinker leaves steps out and runs the rest.

use larder_core::buf::{PAGE, SECTOR};
use larder_core::config::{
    AdmissionChoice, Choices, Durability, FRAGMENT_BYTES_LEAST, Limits, Placement, WritePolicy,
    preset,
};
use larder_core::exec::{MILLISECOND, Nanos};
use larder_core::format::label::LABELS_END;
use larder_core::format::{self, LogsPlan};
use larder_core::pagelog::{Geometry, LogPolicy};
use larder_core::policy::admission::{Class, OnMissSettings, SelectiveSettings};
use larder_core::shape::Shape;
use rand::RngExt;
use rand_pcg::Pcg64Mcg;

use super::load::steps;
use super::profile::{Cache, PROFILES, Profile, by_weight};
use super::promise::Trouble;
use super::setup::{self, Setup};
use super::step::Step;

const MICRO: Nanos = 1_000;

/// A history before it happens, see the module.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The seed.
    pub seed: u64,
    /// The row it was drawn from.
    pub profile: &'static str,
    /// The volume.
    pub setup: Setup,
    /// Decides latencies and the like.
    pub salt: u64,
    /// What happens.
    pub steps: Vec<Step>,
}

impl Plan {
    /// The plan of a seed; of this row of the swarm, or of one that the seed picks.
    #[must_use]
    pub fn of(seed: u64, row: Option<&'static Profile>) -> Self {
        let mut rng = Pcg64Mcg::new(u128::from(seed) << 64 | 0x70_4742_4535);
        let sum: u32 = PROFILES.iter().map(|p| p.weight).sum();
        let drawn = by_weight(PROFILES, |p| p.weight, rng.random_range(0..sum));
        let row = row.unwrap_or(drawn);
        let setup = draw(row, &mut rng);
        let steps = steps(row, &setup, &mut rng);
        Self { seed, profile: row.name, setup, salt: rng.random(), steps }
    }

    /// The volume in a line.
    #[must_use]
    pub fn headline(&self) -> String {
        let setup = &self.setup;
        format!(
            "profile {}, preset {} {}, {} units of {} KiB, {} slots, {} shards, {} in flight, trouble {:?}",
            self.profile,
            setup.preset,
            match setup.choices.log() {
                Some(log) => format!("{:?}", log.policy).to_lowercase(),
                None if setup.is_journaled() => "journaled".to_owned(),
                None => "volatile".to_owned(),
            },
            setup.shape.origin_bytes.div_ceil(setup.shape.unit_bytes),
            setup.shape.unit_bytes >> 10,
            match setup.plan {
                format::Plan::Logs(logs) => u64::from(logs.blocks),
                format::Plan::Units(units) => units.slots,
            },
            setup.shape.shards,
            setup.in_flight,
            setup.trouble,
        )
    }
}

/// Draws the volume.
fn draw(row: &'static Profile, rng: &mut Pcg64Mcg) -> Setup {
    let Cache { preset, durability, .. } = row.cache(|range| rng.random_range(range));
    let unit_bytes = row.units[rng.random_range(0..row.units.len())];
    let shards = row.shards[rng.random_range(0..row.shards.len())];
    let mut choices = choices(preset, durability, unit_bytes, rng);
    let log = draw_log(&mut choices, row.log, unit_bytes, rng);
    let unit_bytes = choices.unit_bytes;
    let units = match unit_bytes >> 10 {
        0..64 => rng.random_range(24..64),
        64..256 => rng.random_range(3..8),
        _ => rng.random_range(2..5),
    };
    // A volume that ends inside a unit and inside a page.
    let origin_bytes = units * unit_bytes - rng.random_range(0..20) * SECTOR as u64 % unit_bytes;
    let stripe = match row.stripes {
        [one] => *one,
        several => several[rng.random_range(0..several.len())],
    };
    let shape = Shape::new(origin_bytes, unit_bytes, shards).striped(stripe);
    let tenths = rng.random_range(row.slots.clone());
    let slots = (units * tenths / 10).max(1) + rng.random_range(0..2);
    let slots = slots.clamp(u64::from(shards), units.max(u64::from(shards)));
    let flash_slowest = rng.random_range(50..1_000) * MICRO;
    let limits = Limits {
        write_through_bytes: rng.random_range(1..64) * (64 << 10),
        population_io_bytes: [16 << 10, 64 << 10, 1 << 20][rng.random_range(0..3)],
        population_share: [0.25, 1.0, 1.0][rng.random_range(0..3)],
        checkpoint: rng.random_range(1..20) * MILLISECOND,
        flash_timeout: flash_slowest + 2 * MILLISECOND,
        flash_dead_after: 60 * MILLISECOND,
        ..Limits::default()
    };
    // A flash that owns takes what the origin takes.
    let large_blocks = rng.random_bool(0.2) && !choices.write.flash_owns() && log.is_none();
    let mut trouble = row.troubles[rng.random_range(0..row.troubles.len())];
    let suits = trouble.suits_an_owner() || (log.is_some() && trouble == Trouble::MetadataRot);
    if choices.write.flash_owns() && !suits {
        trouble = Trouble::None;
    }
    let block_bytes = if large_blocks { 4096 } else { 512 };
    let plan = match log {
        Some((log, policy)) => format::Plan::Logs(LogsPlan::of(LABELS_END, shape, log, policy)),
        None => setup::units(shape, slots, block_bytes, &choices),
    };
    Setup {
        preset,
        choices,
        limits,
        shape,
        plan,
        in_flight: row.in_flight[rng.random_range(0..row.in_flight.len())],
        origin_slowest: rng.random_range(100..2_000) * MICRO,
        flash_slowest,
        copy: rng.random_range(0..2),
        trouble,
    }
}

/// Small batches, and a log of a few of them, so that laps are short; nothing where there is none.
fn draw_log(
    choices: &mut Choices,
    policy: Option<LogPolicy>,
    unit_bytes: u64,
    rng: &mut Pcg64Mcg,
) -> Option<(Geometry, LogPolicy)> {
    let AdmissionChoice::OnExit(settings) = &mut choices.admission else { return None };
    settings.batch_pages = [2, 4, 8][rng.random_range(0..3)];
    settings.reads = rng.random_bool(0.8);
    let policy = policy.unwrap_or(LogPolicy::Full);
    choices.write = WritePolicy::Logged(policy);
    choices.unit_bytes = unit_bytes;
    let geometry = Geometry {
        base: 0,
        blocks: 0,
        page_bytes: PAGE as u32,
        batch_pages: settings.batch_pages,
        volume: 0,
    };
    let least = geometry.least_blocks();
    let geometry = Geometry { blocks: least + rng.random_range(0..2 * least), ..geometry };
    Some((geometry.grown_to(geometry.bytes())?, policy))
}

/// The preset's choices, with settings under which a thousand requests meet more than hours of
/// a real load.
fn choices(name: &str, durability: Durability, unit_bytes: u64, rng: &mut Pcg64Mcg) -> Choices {
    let Some(preset) = preset(name) else { unreachable!("the rows name presets that exist") };
    let mut choices = preset.choices();
    choices.durability = durability;
    if choices.unit_bytes >= FRAGMENT_BYTES_LEAST {
        choices.unit_bytes = unit_bytes;
    }
    if let Placement::Sets { ways, .. } = &mut choices.placement {
        *ways = rng.random_range(1..9);
    }
    if unit_bytes < FRAGMENT_BYTES_LEAST
        && let AdmissionChoice::Selective(_) = choices.admission
    {
        let client_waits = rng.random_bool(0.5);
        let settings = OnMissSettings { client_waits, on_write: true, bypass_bytes: 0 };
        choices.admission = AdmissionChoice::OnMiss(settings);
    }
    if let Some(settings) = choices.selective_mut() {
        let class = |workers, target_miss_ratio, period_ns| Class {
            workers,
            target_miss_ratio,
            min_free_ratio: 0.0,
            period_ns,
        };
        *settings = SelectiveSettings {
            classes: vec![class(4, 0.2, 0), class(2, 0.0, rng.random_range(0..200) * MICRO)],
            list_length: rng.random_range(2..20),
            window_ns: 5 * MILLISECOND,
            displace_heat: 1,
        };
    }
    if let Some(settings) = choices.periodic_mut() {
        settings.period = rng.random_range(500..8_000) * MICRO;
        settings.hot = [0, 20, 50][rng.random_range(0..3)];
    }
    if name == "sce" && rng.random_bool(0.2) {
        choices.write = WritePolicy::WriteThrough;
    }
    choices
}
