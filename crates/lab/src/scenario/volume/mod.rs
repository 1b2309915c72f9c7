// SPDX-License-Identifier: MIT OR Apache-2.0
//! One run of one system under one load, in virtual time: what benches and the papers' tables share.
//!
//! Purpose: the preset `sce` beside the systems that the paper compares with, each of which is the
//! same engine with other choices, beside no cache and beside flash alone. The engine takes no
//! time here; what differs is what the choices make the devices do.
//!
//! A [`Setup`] is a run ([`run`]); [`Settings`] are one as a scenario ([`point`]). Volumes that share a flash are several
//! setups in one world (`shared/mod.rs`). Hosts that share an origin are worlds in one time (`hosts/mod.rs`).
//!
//! Invariants: a run follows from its [`Setup`] alone, to the last bit; systems of one comparison
//! get the same seed for load and devices; nothing is left out of a run, and what counts is said
//! by spans that are fixed beforehand ([`crate::load`]).
//!
//! Why not real time: eight hours of a paper's run, six systems and three seeds.

mod hosts;
mod outcome;
mod passes;
mod point;
mod run;
mod settings;
mod shared;
#[cfg(test)]
mod tests;
mod trace;

use anyhow::{Context, Result};
use larder_core::config::{Choices, Limits, preset};
use larder_core::exec::{DevId, Nanos};

pub use self::outcome::{Outcome, Totals};
pub use self::passes::{Pass, Passes};
pub use self::point::{look, point};
pub use self::run::{VOLUME, plan, run, run_all, world};
pub use self::settings::Settings;
pub(crate) use self::trace::OUTSTANDING;
use crate::device::Device;
use crate::load::clients::Plan;
use crate::load::{DATA_BYTES, HOUR, PAGE_BYTES, Pattern};

/// The paper's one-minute samples.
pub const SAMPLE: Nanos = HOUR / SAMPLES_PER_HOUR;
/// Samples of one of the paper's hours.
pub const SAMPLES_PER_HOUR: u64 = 60;
/// The SSD, as a cache and as all there is.
pub const FLASH_PROFILE: &str = "ssd-s3500";
/// The paper's three 15k disks behind a gigabit.
pub const SAN_PROFILE: &str = "san-1g";

/// The flash device's number in a world.
pub const FLASH: DevId = DevId(1);

/// What serves the load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum System {
    /// A cache: the engine with a preset's choices.
    Preset(&'static str),
    /// The origin alone.
    NoCache,
    /// Flash alone, in the origin's place.
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

    /// Its name in tables.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Preset(name) => name,
            Self::NoCache => "no-cache",
            Self::AllFlash => "all-flash",
        }
    }

    /// The choices of its cache; those of `sce`, without a flash device, where it has none.
    ///
    /// # Errors
    /// If there is no such preset.
    pub fn choices(self) -> Result<Choices> {
        let name = if let Self::Preset(name) = self { name } else { "sce" };
        Ok(preset(name).with_context(|| format!("no preset {name}"))?.choices())
    }
}

/// A run.
#[derive(Clone, Debug)]
pub struct Setup {
    /// What serves.
    pub system: System,
    /// Its choices.
    pub choices: Choices,
    /// Its budgets.
    pub limits: Limits,
    /// Where requests go.
    pub pattern: Pattern,
    /// How clients go about it.
    pub plan: Plan,
    /// Bytes of the origin.
    pub data_bytes: u64,
    /// Those of them that clients ask for.
    pub active_bytes: u64,
    /// Bytes of a client's request.
    pub page_bytes: u64,
    /// Bytes of flash for cached data.
    pub flash_bytes: u64,
    /// The origin.
    pub origin: Device,
    /// The flash device; the only device where all is flash.
    pub flash: Device,
    /// A minute of the paper, by which is counted.
    pub sample: Nanos,
    /// How long it lasts, a multiple of a sample.
    pub span: Nanos,
    /// The part at its end whose latencies count.
    pub last: Nanos,
    /// Of load and devices.
    pub seed: u64,
}

impl Setup {
    /// The paper's load over its origin, for so many of its hours, the last of which counts, at the
    /// scale of [`crate::load`].
    ///
    /// # Errors
    /// If there is no such preset.
    pub fn paper(
        system: System,
        pattern: Pattern,
        flash_bytes: u64,
        hours: u64,
        seed: u64,
    ) -> Result<Self> {
        Ok(Self {
            system,
            choices: system.choices()?,
            limits: Limits::default(),
            pattern,
            plan: Plan::default(),
            data_bytes: DATA_BYTES,
            active_bytes: DATA_BYTES,
            page_bytes: PAGE_BYTES,
            flash_bytes,
            origin: Device::named(SAN_PROFILE)?,
            flash: Device::named(FLASH_PROFILE)?,
            sample: SAMPLE,
            span: hours * HOUR,
            last: HOUR,
            seed,
        })
    }
}
