// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ten days of a desktop in front of one system, in virtual time: what PRWC was measured with.
//!
//! Method: a day's requests ([`crate::load::desktop`]) are replayed from its eighth hour on, one
//! after the other as fast as they are answered; systems that update do so at midnight. A backup
//! comes in the middle of its day. The engine takes no time; what differs is what a system makes the
//! devices do.
//!
//! Invariants: a run follows from its [`Setup`] alone, to the last bit; systems of one comparison get
//! the same seed for load and devices; the backup's own requests are counted apart from the user's.
//!
//! Why the disk's write cache is not scaled: latencies stay what they are, and how long a write
//! waits for room follows from how many writes the elevator sorts.

mod point;

use anyhow::{Context, Error, Result, anyhow, bail, ensure};
use larder_core::config::{Choices, Limits};
use larder_core::exec::{MILLISECOND, Nanos};
use larder_core::format::UnitsPlan;
use larder_core::policy::admission::Schedule;
use larder_core::shape::Shape;
use larder_core::stats::Counters;
use larder_model::{DeviceSpec, described};
use larder_sim::device::SimDevice;
use larder_sim::world::World;

pub use self::point::{Settings, look, point};
use crate::device::Device;
use crate::latencies::Latencies;
use crate::load::desktop::{Ask, DAYS, Desktop, FLASH_GB, RUN, Scale, User};
use crate::load::replay::{Replayed, replay};
use crate::scenario::volume::{System, VOLUME, plan};
use crate::scenario::writes::WriteSettings;

/// The paper's disk, as a model.
pub const ORIGIN_PROFILE: &str = "hdd-7200";
/// The paper's SSD, as a model.
pub const FLASH_PROFILE: &str = "ssd-840pro";
/// Hours of a day.
pub const HOURS: u32 = 24;
/// The day of the paper's backup, the eighth.
pub const SCAN_DAY: u32 = 7;
/// When a day's requests begin.
const MORNING: u32 = 8;

/// A run.
#[derive(Clone, Debug, PartialEq)]
pub struct Setup {
    /// What serves the load.
    pub system: System,
    /// Whether flash is empty again every midnight, as after a power failure (SLRU_r).
    pub resets: bool,
    /// The user whose requests are replayed.
    pub user: User,
    /// Requests of a visit, at most.
    pub visit: u64,
    /// What stands for a GB.
    pub scale: Scale,
    /// Flash, in the paper's GB.
    pub flash_gb: u64,
    /// Bytes of a unit; the preset's without.
    pub unit_bytes: Option<u64>,
    /// Days, of ten.
    pub days: u32,
    /// The day of a backup, from 0 on.
    pub backup: Option<u32>,
    /// Hours between updates.
    pub update_hours: u32,
    /// What a write does.
    pub writes: WriteSettings,
    /// Profile of the origin.
    pub origin: String,
    /// Whether the origin, where it is the paper's disk, has its write cache.
    pub disk_cache: bool,
    /// Profile of flash.
    pub flash: String,
    /// The seed of load and devices.
    pub seed: u64,
}

impl Setup {
    /// The paper's set-up.
    #[must_use]
    pub fn paper(system: System, user: User, seed: u64) -> Self {
        Self {
            system,
            resets: false,
            user,
            visit: RUN,
            scale: Scale::QUARTER,
            flash_gb: FLASH_GB,
            unit_bytes: None,
            days: DAYS,
            backup: None,
            update_hours: HOURS,
            writes: WriteSettings::default(),
            origin: ORIGIN_PROFILE.to_owned(),
            disk_cache: true,
            flash: FLASH_PROFILE.to_owned(),
            seed,
        }
    }

    /// Whether there is flash.
    fn is_cached(&self) -> bool {
        matches!(self.system, System::Preset(_))
    }

    fn choices(&self) -> Result<Choices> {
        let mut choices = self.system.choices()?;
        choices.unit_bytes = self.unit_bytes.unwrap_or(choices.unit_bytes);
        if let Some(settings) = choices.periodic_mut() {
            settings.schedule = Schedule::Every(self.hours(self.update_hours));
        }
        self.writes.apply(&mut choices).map_err(Error::msg)?;
        Ok(choices)
    }

    /// The volume.
    ///
    /// # Errors
    /// If the system is not known.
    pub fn shape(&self) -> Result<Shape> {
        let (origin_bytes, unit_bytes) = (self.scale.disk_bytes(), self.choices()?.unit_bytes);
        Ok(Shape::new(origin_bytes, unit_bytes, 1))
    }

    /// Where things lie on flash.
    ///
    /// # Errors
    /// If the system is not known.
    pub fn plan(&self) -> Result<UnitsPlan> {
        let bytes = self.scale.bytes(self.flash_gb);
        Ok(plan(&self.choices()?, self.scale.disk_bytes(), bytes, 1))
    }

    /// Whether there is flash, and no metadata on it: it is cold after a power failure.
    fn is_volatile(&self) -> Result<bool> {
        Ok(self.is_cached() && self.plan()?.metadata.is_none())
    }

    fn hours(&self, hours: u32) -> Nanos {
        self.scale.day() / u64::from(HOURS) * u64::from(hours)
    }

    fn flash(&self) -> Result<SimDevice> {
        let bytes = self.scale.bytes(self.flash_gb);
        Ok(Device::named(&self.flash)?.without_bytes(bytes, self.seed))
    }

    fn origin(&self) -> Result<SimDevice> {
        let bytes = self.scale.disk_bytes();
        if self.disk_cache {
            return Ok(Device::named(&self.origin)?.without_bytes(bytes, self.seed));
        }
        let mut disk = described(&self.origin)?;
        let DeviceSpec::Disk(spec) = &mut disk.device else {
            bail!(
                "origin {}: is no disk, so it has no write cache to be switched off",
                self.origin
            );
        };
        spec.cache = None;
        Ok(SimDevice::new(disk.build(bytes, self.seed), None, self.seed, MILLISECOND))
    }
}

/// What a day came to.
#[derive(Clone, Debug, Default)]
pub struct Day {
    /// The user's requests.
    pub replayed: Replayed,
    /// Of the user's reads.
    pub reads: Latencies,
    /// Of the user's writes.
    pub writes: Latencies,
    /// What the engine had done by the end of the day's requests; the update of the night after counts
    /// with the next day.
    pub counters: Counters,
}

/// What a run found.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Each day.
    pub days: Vec<Day>,
    /// The second half of the day of the backup, or of the day that the paper has one on.
    pub rest: Replayed,
    /// The backup.
    pub backup: Replayed,
}

impl Outcome {
    /// The user's requests of these days.
    #[must_use]
    pub fn sum(days: &[Day]) -> Replayed {
        let mut all = Replayed::default();
        days.iter().for_each(|day| all += day.replayed);
        all
    }

    /// What the engine did in all days.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.days.last().map(|day| day.counters).unwrap_or_default()
    }
}

/// A run that proceeds day by day.
pub struct Run<'a> {
    setup: &'a Setup,
    world: World,
    desktop: Desktop,
    outcome: Outcome,
}

impl<'a> Run<'a> {
    /// The world of a setup, cold.
    ///
    /// # Errors
    /// If a device is not known.
    pub fn new(setup: &'a Setup) -> Result<Self> {
        let flash = setup.flash()?;
        Self::over(setup, flash)
    }

    /// As [`Run::new`], over this flash.
    ///
    /// # Errors
    /// If the origin is not known.
    pub fn over(setup: &'a Setup, flash: SimDevice) -> Result<Self> {
        let (choices, bytes) = (setup.choices()?, setup.scale.disk_bytes());
        let world = World::new(setup.origin()?, bytes, &(&choices).try_into()?, &Limits::default());
        let desktop = Desktop::with_run(&setup.user, setup.scale, setup.visit, setup.seed);
        let mut run = Self { setup, world, desktop, outcome: Outcome::default() };
        if setup.is_cached() {
            run.world.attach_journaled(flash, &setup.plan()?, VOLUME, &[None]);
        }
        Ok(run)
    }

    /// The world as it is now.
    pub fn world(&mut self) -> &mut World {
        &mut self.world
    }

    /// The next day.
    ///
    /// # Errors
    /// If a request fails, or the day has too few hours.
    pub fn day(&mut self) -> Result<()> {
        let number = self.outcome.days.len() as u32;
        let midnight = u64::from(number) * self.setup.scale.day();
        if self.setup.resets && number > 0 {
            self.world.idle_until(midnight);
            self.world.detach();
            self.world.settle();
            let flash = self.setup.flash()?;
            self.world.attach_journaled(flash, &self.setup.plan()?, VOLUME, &[None]);
        }
        let asks = self.desktop.day(number);
        let (morning, afternoon) = asks.split_at(asks.len() / 2);
        self.world.idle_until(midnight + self.setup.hours(MORNING));
        let mut day = Day::default();
        self.replay(morning, &mut day)?;
        let backs_up = self.setup.backup == Some(number);
        if backs_up {
            let asks = self.desktop.backup(number);
            self.outcome.backup = self.replay(&asks, &mut Day::default())?;
        }
        let rest = self.replay(afternoon, &mut day)?;
        if self.setup.backup.unwrap_or(SCAN_DAY) == number {
            self.outcome.rest = rest;
        }
        let end = midnight + self.setup.scale.day();
        ensure!(self.world.now() < end, "day {} takes longer than a day", number + 1);
        day.counters = self.world.counters();
        self.outcome.days.push(day);
        Ok(())
    }

    fn replay(&mut self, asks: &[Ask], day: &mut Day) -> Result<Replayed> {
        let Day { replayed, reads, writes, .. } = day;
        let took =
            |ask: &Ask, span| (if ask.writes { &mut *writes } else { &mut *reads }).record(span);
        let number = self.outcome.days.len() + 1;
        let found =
            replay(&mut self.world, asks, took).map_err(|e| anyhow!("day {number}: {e}"))?;
        *replayed += found;
        Ok(found)
    }

    /// What the days came to.
    ///
    /// # Errors
    /// If flash failed on the way.
    pub fn end(self) -> Result<Outcome> {
        if self.setup.is_cached() {
            let status = self.world.shards().first().and_then(|shard| shard.cache_status());
            status.context("the flash device has failed")?;
            ensure!(self.world.counters().flash_errors == 0, "flash failed");
        }
        Ok(self.outcome)
    }
}

/// All days of a setup.
///
/// # Errors
/// If a device is not known, or a request fails.
pub fn run(setup: &Setup) -> Result<Outcome> {
    let mut run = Run::new(setup)?;
    for _ in 0..setup.days {
        run.day()?;
    }
    run.end()
}
