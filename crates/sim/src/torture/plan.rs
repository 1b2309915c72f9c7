// SPDX-License-Identifier: MIT OR Apache-2.0
//! A history before it happens: the volume and a list of steps, drawn from a seed.
//!
//! Invariants: a plan decides everything that its run does; running it twice gives the same.
//! Why a list and not decisions on the way: the shrinker leaves steps out and runs the rest.

use larder_core::buf::SECTOR;
use larder_core::config::{
    AdmissionChoice, Choices, Durability, FRAGMENT_BYTES_LEAST, Limits, Placement, WritePolicy,
    preset,
};
use larder_core::exec::{DevId, MILLISECOND, Nanos};
use larder_core::format::{FlashPlan, Keeps, MetadataPlan};
use larder_core::journal::layout::Layout;
use larder_core::pagelog::Geometry;
use larder_core::policy::admission::{Class, OnMissSettings, SelectiveSettings};
use larder_core::request::Kind;
use larder_core::shape::Shape;
use rand::RngExt;
use rand_pcg::Pcg64Mcg;

use super::load::steps;
use super::logs;
use super::profile::{Cache, PROFILES, Profile, by_weight};
use super::promise::{Promise, Trouble};

const MICRO: Nanos = 1_000;
/// Bytes of a log: the smallest that there is, so that it fills.
const LOG_BYTES: u64 = 16 << 10;
/// The flash device's number.
pub(super) const FLASH: DevId = DevId(1);

/// How everything stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The power fails: unflushed sectors are there or not.
    Power,
    /// The process dies: the devices lose nothing.
    Process,
    /// The power fails, and the flash device is another one afterwards.
    FlashLost,
}

/// What goes wrong, from one moment on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The trouble of the plan begins.
    Begins,
    /// It ends: what hangs is answered, what vanished is back.
    Ends,
    /// A bit flips in this sector of flash.
    Flip(u64, u32),
}

/// One step of a history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A client asks for something.
    Ask(Kind, u64, u64),
    /// So many events happen.
    Go(u32),
    /// Time passes.
    Rest(Nanos),
    /// What if the power failed now? So many outcomes, none of which the life goes on with.
    Cut(u64, u32),
    /// Everything stops, and another life begins; whether it first reads everything back.
    Crash(u64, Stop, bool),
    /// Something goes wrong.
    Fault(Fault),
    /// The administrator asks that the origin have everything.
    Flush,
    /// The administrator takes the flash device away.
    Detach,
    /// The volume is about to stop: all of the cache's state is made durable.
    Settle,
}

/// The volume, and the engine's settings.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Name of the preset.
    pub preset: &'static str,
    /// Its choices, with impatient settings.
    pub choices: Choices,
    /// Limits, impatient too.
    pub limits: Limits,
    /// The volume.
    pub shape: Shape,
    /// Slots on flash.
    pub slots: u64,
    /// Block size of flash.
    pub block_bytes: u32,
    /// Client requests in flight, at most.
    pub in_flight: usize,
    /// The longest that an operation on the origin takes.
    pub origin_slowest: Nanos,
    /// The longest that one on flash takes.
    pub flash_slowest: Nanos,
    /// Which copy of the metadata rots.
    pub copy: u8,
    /// What goes wrong.
    pub trouble: Trouble,
    /// Bytes of each shard's page log; 0 for a cache of units.
    pub log_bytes: u64,
}

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
        let setup = Setup::draw(row, &mut rng);
        let steps = steps(row, &setup, &mut rng);
        Self { seed, profile: row.name, setup, salt: rng.random(), steps }
    }
}

impl Setup {
    fn draw(row: &'static Profile, rng: &mut Pcg64Mcg) -> Self {
        let Cache { preset, durability, .. } = row.cache(|range| rng.random_range(range));
        let unit_bytes = row.units[rng.random_range(0..row.units.len())];
        let shards = row.shards[rng.random_range(0..row.shards.len())];
        let mut choices = choices(preset, durability, unit_bytes, rng);
        let log_bytes = logs::draw(&mut choices, row.log, unit_bytes, rng);
        let unit_bytes = choices.unit_bytes;
        let units = match unit_bytes >> 10 {
            0..64 => rng.random_range(24..64),
            64..256 => rng.random_range(3..8),
            _ => rng.random_range(2..5),
        };
        // A volume that ends inside a unit and inside a page.
        let origin_bytes =
            units * unit_bytes - rng.random_range(0..20) * SECTOR as u64 % unit_bytes;
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
        let large_blocks = rng.random_bool(0.2) && !choices.write.flash_owns() && log_bytes == 0;
        let mut trouble = row.troubles[rng.random_range(0..row.troubles.len())];
        let suits = trouble.suits_an_owner() || (log_bytes > 0 && trouble == Trouble::MetadataRot);
        if choices.write.flash_owns() && !suits {
            trouble = Trouble::None;
        }
        Self {
            preset,
            choices,
            limits,
            shape,
            slots,
            block_bytes: if large_blocks { 4096 } else { 512 },
            in_flight: row.in_flight[rng.random_range(0..row.in_flight.len())],
            origin_slowest: rng.random_range(100..2_000) * MICRO,
            flash_slowest,
            copy: rng.random_range(0..2),
            trouble,
            log_bytes,
        }
    }

    /// Whether metadata survives.
    #[must_use]
    pub fn is_journaled(&self) -> bool {
        self.choices.durability == Durability::Journal
    }

    /// What metadata says besides.
    fn keeps(&self) -> Keeps {
        Keeps::of(&self.choices)
    }

    /// Whether flash owns what it holds.
    #[must_use]
    pub fn flash_owns(&self) -> bool {
        self.choices.write.flash_owns()
    }

    /// What is promised under the trouble of the plan.
    #[must_use]
    pub fn promise(&self) -> Promise {
        match self.trouble {
            // It is the only one to ask.
            Trouble::FlashErrors if self.flash_owns() => Promise::ErrorsPass,
            // A page of a log has a checksum.
            Trouble::DataRot if self.log_bytes > 0 => Promise::Invisible,
            trouble => trouble.promise(),
        }
    }

    /// Bytes of the metadata, before the first slot.
    #[must_use]
    pub fn metadata_bytes(&self) -> u64 {
        match self.is_journaled() {
            true => Layout::total_bytes(&self.shape, self.slots, LOG_BYTES, self.keeps()),
            false => 0,
        }
    }

    /// Bytes of the flash device.
    #[must_use]
    pub fn flash_bytes(&self) -> u64 {
        if self.log_bytes > 0 {
            return u64::from(self.shape.shards) * self.log_bytes;
        }
        self.metadata_bytes() + self.slots * self.shape.unit_bytes
    }

    /// The places of the shards' page logs, where there are any.
    #[must_use]
    pub fn logs(&self, volume: u64) -> Vec<Geometry> {
        let batch = self.choices.on_exit().batch_pages;
        let logs = 0..if self.log_bytes > 0 { u64::from(self.shape.shards) } else { 0 };
        let bytes = self.log_bytes;
        logs.filter_map(|n| Geometry::fit(n * bytes, bytes, batch, volume)).collect()
    }

    /// The cache's place on flash.
    #[must_use]
    pub fn flash(&self, volume: u64) -> FlashPlan {
        let place = MetadataPlan { base: 0, volume, log_bytes: LOG_BYTES, keeps: self.keeps() };
        let journal = self.is_journaled().then_some(place);
        let (slots, block_bytes) = (self.slots, self.block_bytes);
        FlashPlan { dev: FLASH, base: self.metadata_bytes(), slots, block_bytes, journal }
    }
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
