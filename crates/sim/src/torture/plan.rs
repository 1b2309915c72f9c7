// SPDX-License-Identifier: MIT OR Apache-2.0
//! A history before it happens: the volume and a list of steps, drawn from a seed.
//!
//! Invariants: a plan decides everything that its run does; running it twice gives the same.
//! Why a list and not decisions on the way: the shrinker leaves steps out and runs the rest.

use larder_core::buf::SECTOR;
use larder_core::config::{Limits, preset};
use larder_core::exec::{MILLISECOND, Nanos};
use larder_core::shape::Shape;
use larder_core::volumes::{Share, Volumes};
use rand::RngExt;
use rand_pcg::Pcg64Mcg;

use super::caches::Cache;
use super::choices::any_limits;
use super::grown::any_size;
use super::load::steps;
use super::mix::by_weight;
use super::places::Sizes;
use super::profile::Profile;
use super::promise::Trouble;
use super::rows::PROFILES;
use super::setup::Setup;
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
        let row = row.or_else(|| drawn_before(seed)).unwrap_or(drawn);
        let setup = draw(row, &mut rng);
        let steps = steps(row, &setup, &mut rng);
        Self { seed, profile: row.name, setup, salt: rng.random(), steps }
    }

    /// The volume in a line.
    #[must_use]
    pub fn headline(&self) -> String {
        let setup = &self.setup;
        format!(
            "profile {}, preset {} {}, {} volumes, {} units of {} KiB, {} slots, {} shards, {} in flight, trouble {:?}",
            self.profile,
            setup.preset,
            setup.kind.name,
            setup.volumes.count(),
            setup.shape.origin_bytes.div_ceil(setup.shape.unit_bytes),
            setup.shape.unit_bytes >> 10,
            setup.plan.slots(),
            setup.shape.shards,
            setup.in_flight,
            setup.trouble,
        )
    }
}

/// The row that a seed takes whatever the weights say.
fn drawn_before(seed: u64) -> Option<&'static Profile> {
    let mut rng = Pcg64Mcg::new(u128::from(seed) << 64 | 0x6265_666f_7265);
    let mut drawn: u32 = rng.random_range(0..100);
    PROFILES.iter().find(|row| match drawn.checked_sub(row.percent) {
        Some(rest) => {
            drawn = rest;
            false
        }
        None => true,
    })
}

/// One volume of this shape, or several of one to about twice their part of so many units, which may end inside a page; a
/// third of those with shares.
fn volumes(row: &Profile, shape: &Shape, units: u64, rng: &mut Pcg64Mcg) -> Volumes {
    let count = match row.volumes {
        [1] => return Volumes::one(shape.origin_bytes),
        several => several[rng.random_range(0..several.len())],
    };
    let units = (units / u64::from(count)).max(1);
    let sizes: Vec<u64> = (0..count)
        .map(|_| {
            let bytes = rng.random_range(1..=2 * units) * shape.unit_bytes;
            bytes - rng.random_range(0..20) * SECTOR as u64 % shape.unit_bytes
        })
        .collect();
    let volumes = Volumes::placed(&sizes, shape.stripe_bytes());
    if rng.random_bool(0.7) {
        return volumes;
    }
    let shares = (0..count).map(|_| Share {
        least: rng.random_range(0.0..1.0 / f64::from(count)),
        most: rng.random_range(0.3..1.0),
    });
    volumes.sharing(&shares.collect::<Vec<_>>())
}

/// The patience with an origin that hangs.
fn origin_patience(trouble: Trouble, rng: &mut Pcg64Mcg) -> Option<Nanos> {
    (trouble == Trouble::OriginHangs).then(|| rng.random_range(1..10) * MILLISECOND)
}

/// Draws the volume.
fn draw(row: &'static Profile, rng: &mut Pcg64Mcg) -> Setup {
    let Cache { preset: name, kind, also, .. } = row.cache(|range| rng.random_range(range));
    let unit_bytes = row.units[rng.random_range(0..row.units.len())];
    let shards = row.shards[rng.random_range(0..row.shards.len())];
    let Some(preset) = preset(name) else { unreachable!("the rows name presets that exist") };
    let mut choices = preset.choices();
    choices.verify = !row.sums.is_empty();
    choices.durability = kind.durability;
    choices.write = kind.write.unwrap_or(choices.write);
    let tune = if row.any { kind.any } else { kind.tune };
    let blocks = tune(&mut choices, unit_bytes, rng);
    if let Some(write) = also.filter(|_| !row.any && rng.random_bool(0.2)) {
        choices.write = write;
    }
    let unit_bytes = choices.unit_bytes;
    let units = match unit_bytes >> 10 {
        0..64 => rng.random_range(24..64),
        64..256 => rng.random_range(3..8),
        _ => rng.random_range(2..5),
    };
    // A volume that ends inside a unit and inside a page. One that grows does so between whole units.
    let less = if row.grows { 0 } else { rng.random_range(0..20) * SECTOR as u64 % unit_bytes };
    let origin_bytes = units * unit_bytes - less;
    let stripe = match row.stripes {
        [one] => *one,
        several => several[rng.random_range(0..several.len())],
    };
    let shape = Shape::new(origin_bytes, unit_bytes, shards).striped(stripe);
    let volumes = volumes(row, &shape, units, rng);
    let shape = Shape { origin_bytes: volumes.bytes(), ..shape };
    let first_bytes = match row.grows {
        true => any_size(u64::from(shards), &shape, rng),
        false => shape.origin_bytes,
    };
    let units = first_bytes.div_ceil(unit_bytes);
    let tenths = rng.random_range(row.slots.clone());
    let slots = (units * tenths / 10).max(1) + rng.random_range(0..2);
    let slots = slots.clamp(u64::from(shards), units.max(u64::from(shards)));
    let flash_slowest = rng.random_range(50..1_000) * MICRO;
    let limits = draw_limits(row, flash_slowest, rng);
    let block_bytes = if rng.random_bool(0.2) { kind.large_block_bytes } else { 512 };
    let trouble = row.troubles[rng.random_range(0..row.troubles.len())];
    let trouble = kind.bears(trouble, choices.verify);
    let origin_patience = origin_patience(trouble, rng).unwrap_or(limits.origin_patience);
    let limits = Limits { origin_patience, ..limits };
    let troubled = match volumes.count() {
        1 => None,
        several => Some(rng.random_range(0..several)),
    };
    let formatted = Sizes { shape: shape.of_origin(first_bytes), slots, block_bytes, blocks };
    let plan = (kind.plan)(&formatted, &choices).of_origin(shape.origin_bytes);
    Setup {
        preset: name,
        kind,
        choices,
        limits,
        shape,
        volumes,
        troubled,
        plan,
        in_flight: row.in_flight[rng.random_range(0..row.in_flight.len())],
        origin_slowest: rng.random_range(100..2_000) * MICRO,
        flash_slowest,
        copy: rng.random_range(0..2),
        trouble,
        first_bytes,
        resizes: row.resizes > 0.0,
        strays: row.strays,
    }
}

/// Limits under which a thousand requests meet all of them.
fn draw_limits(row: &Profile, flash_slowest: Nanos, rng: &mut Pcg64Mcg) -> Limits {
    let mut limits = Limits {
        write_through_bytes: rng.random_range(1..64) * (64 << 10),
        population_io_bytes: [16 << 10, 64 << 10, 1 << 20][rng.random_range(0..3)],
        population_share: [0.25, 1.0, 1.0][rng.random_range(0..3)],
        checkpoint: rng.random_range(1..20) * MILLISECOND,
        flash_timeout: flash_slowest + 2 * MILLISECOND,
        flash_dead_after: 60 * MILLISECOND,
        ordered_lag: 40 * MILLISECOND,
        ..Limits::default()
    };
    if row.any {
        any_limits(&mut limits, rng);
    }
    if let [_, _, ..] = row.ram {
        limits.ram_bytes = row.ram[rng.random_range(0..row.ram.len())];
    }
    if let [_, ..] = row.sums {
        limits.verify_bytes = row.sums[rng.random_range(0..row.sums.len())];
    }
    limits
}
