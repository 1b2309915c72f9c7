// SPDX-License-Identifier: MIT OR Apache-2.0
//! A run as a scenario: its settings.
//!
//! ```toml
//! kind = "volume"
//! seed = 1
//! scale = "1/16"        # of data, flash and time; requests, units, latencies and periods stay
//! system = "larder"     # a preset, "no-cache" or "all-flash"
//! load = "oltp"         # or "scattered", or "passes", or "trace"
//! data_gib = 160        # the paper's GiB
//! active_gib = 160      # those of them that clients ask for; without, all
//! page_kib = 4          # of a client's request: 4 to 64
//! flash_gib = 200
//! hours = 8             # the paper's hours, the last of which counts
//! origin = "san-1g"     # or a table, see `../../device.rs`; and flash
//! flash = "ssd-s3500"
//! unit_kib = 1024       # from here to update_seconds: without, what the system chooses
//! replacement = "lru"
//! writes = "async"      # with durability, sync_seconds and dirty_share: see `../writes.rs`
//! update_seconds = 3600 # of systems with periodic update
//! balance = true        # hits are also read from the origin; without, what the system chooses
//! population_share = 0.8 # of the time in which population may use the origin while clients use it: 0.01 to 1
//!
//! [plan]                # of loads but "passes"
//! clients = 4
//! walks = 1             # of four pages, for each transaction
//! writes = 0.6          # for each transaction
//! computing_us = 4000
//! cleaners = 32         # with none, clients wait for their own writes
//! dirty_pages = 1024
//!
//! [passes]              # of the load "passes": reads of different pages, and all of them again
//! count = 4
//! mib = 100             # at any scale
//!
//! [trace]               # of the load "trace", see `trace/settings.rs`
//! path = "t.btr.zst"
//!
//! [[volumes]]           # volumes that share the flash, see `shared/settings.rs`
//!
//! [hosts]               # hosts that share the origin, see `hosts/mod.rs`
//! ```
//! All but the trace have a default, which is the one shown. A trace has its own data, flash and time: with
//! it scale, data_gib, active_gib, page_kib, flash_gib and hours are refused.

use larder_core::config::{
    AdmissionChoice, Choices, DEFAULT_PRESET, FRAGMENT_BYTES_LEAST, Limits, PRESETS,
    ReplacementChoice, UNIT_BYTES_LEAST, UNIT_BYTES_MOST,
};
use larder_core::exec::{Nanos, SECOND};
use larder_core::policy::admission::Schedule;
use larder_policy::balance::BalanceSettings;
use serde::Deserialize;
use toml::Value;

use super::super::setting::{bad, in_range};
use super::super::writes::WriteSettings;
use super::hosts::HostSettings;
use super::shared::{Sharing, VolumeSettings};
use super::trace::TraceSettings;
use super::{FLASH_PROFILE, Passes, SAMPLES_PER_HOUR, SAN_PROFILE, Setup, System};
use crate::device::Device;
use crate::load::clients::Plan;
use crate::load::{PAGE_BYTES, Pattern};

/// The defaults of what a trace determines itself.
const SCALE: &str = "1/16";
const DATA_GIB: u64 = 160;
const FLASH_GIB: u64 = 200;
const HOURS: u64 = 8;
/// What full size may be divided by: a GiB is a whole number of MiB.
const SMALLEST: u64 = 1024;
/// Sizes of a request: a run of sixteen is at most a region.
const PAGES_KIB: [u64; 5] = [4, 8, 16, 32, 64];
/// The most GiB, of the paper.
pub(super) const MOST_GIB: u64 = 4096;
/// The most hours, of the paper.
pub(super) const MOST_HOURS: u64 = 240;

/// Settings of a point, see the module.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    pub(super) seed: u64,
    scale: Option<String>,
    system: String,
    load: String,
    data_gib: Option<u64>,
    active_gib: Option<u64>,
    page_kib: Option<u64>,
    flash_gib: Option<u64>,
    hours: Option<u64>,
    origin: Option<Device>,
    flash: Option<Device>,
    unit_kib: Option<u64>,
    replacement: Option<String>,
    writes: Option<String>,
    durability: Option<String>,
    update_seconds: Option<u64>,
    sync_seconds: Option<i64>,
    dirty_share: Option<f64>,
    balance: Option<bool>,
    population_share: Option<f64>,
    plan: PlanSettings,
    pub(super) passes: Passes,
    trace: Option<TraceSettings>,
    pub(super) turn_hours: Option<u64>,
    pub(super) sharing: Option<Sharing>,
    pub(super) volumes: Option<Vec<VolumeSettings>>,
    pub(super) hosts: Option<HostSettings>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct PlanSettings {
    clients: u32,
    walks: u32,
    writes: f64,
    computing_us: u64,
    cleaners: u32,
    dirty_pages: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            seed: 1,
            scale: None,
            system: DEFAULT_PRESET.to_owned(),
            load: Pattern::Oltp.name().to_owned(),
            data_gib: None,
            active_gib: None,
            page_kib: None,
            flash_gib: None,
            hours: None,
            origin: None,
            flash: None,
            unit_kib: None,
            replacement: None,
            writes: None,
            durability: None,
            update_seconds: None,
            sync_seconds: None,
            dirty_share: None,
            balance: None,
            population_share: None,
            plan: PlanSettings::default(),
            passes: Passes::default(),
            trace: None,
            turn_hours: None,
            sharing: None,
            volumes: None,
            hosts: None,
        }
    }
}

impl Default for PlanSettings {
    fn default() -> Self {
        let plan = Plan::default();
        Self {
            clients: plan.clients,
            walks: plan.walks,
            writes: plan.writes,
            computing_us: plan.computing / 1000,
            cleaners: plan.cleaners,
            dirty_pages: plan.dirty_pages,
        }
    }
}

/// How requests come.
#[derive(Clone, Copy, Debug)]
pub(super) enum Load<'a> {
    /// From clients that do transactions.
    Clients(Pattern),
    /// In passes.
    Passes,
    /// From a trace.
    Trace(&'a TraceSettings),
}

impl Settings {
    /// The settings of one of several volumes, as if it were alone. Each has a load of its own.
    ///
    /// # Errors
    /// What its origin is, if that is no device.
    pub(super) fn of_volume(&self, number: usize, volume: &VolumeSettings) -> Result<Self, String> {
        let origin = volume.origin.clone().map(Value::try_into).transpose();
        let origin = origin.map_err(|error: toml::de::Error| error.message().to_owned())?;
        Ok(Self {
            seed: self.seed.wrapping_add((number as u64) << 32),
            load: volume.load.clone().unwrap_or_else(|| self.load.clone()),
            data_gib: volume.data_gib.or(self.data_gib),
            active_gib: volume.active_gib.or(self.active_gib),
            page_kib: volume.page_kib.or(self.page_kib),
            origin: origin.or_else(|| self.origin.clone()),
            ..self.clone()
        })
    }

    /// The run that they describe.
    ///
    /// # Errors
    /// What cannot be, and what would be accepted.
    pub fn setup(&self) -> Result<Setup, String> {
        let (system, mib_per_gib) = (self.system()?, self.mib_per_gib()?);
        let data_gib = self.data_gib.unwrap_or(DATA_GIB);
        let active_gib = self.active_gib.unwrap_or(data_gib);
        let page_kib = self.page_kib.unwrap_or(PAGE_BYTES >> 10);
        let flash_gib = self.flash_gib.unwrap_or(FLASH_GIB);
        let hours = self.hours.unwrap_or(HOURS);
        in_range("data_gib", data_gib, 1, MOST_GIB)?;
        in_range("active_gib", active_gib, 1, data_gib)?;
        if !PAGES_KIB.contains(&page_kib) {
            return bad("page_kib", page_kib, "4, 8, 16, 32, 64");
        }
        in_range("flash_gib", flash_gib, 1, MOST_GIB)?;
        in_range("hours", hours, 1, MOST_HOURS)?;
        let data_bytes = (data_gib * mib_per_gib) << 20;
        let pattern = match self.load()? {
            Load::Clients(pattern) => pattern,
            Load::Passes => {
                in_range("passes.count", self.passes.count, 1, 1000)?;
                in_range("passes.mib", self.passes.mib, 1, data_bytes >> 20)?;
                Pattern::Oltp
            }
            Load::Trace(trace) => {
                self.no_size_of_its_own()?;
                trace.lawful()?;
                Pattern::Oltp
            }
        };
        let hour = 3600 * SECOND * mib_per_gib / 1024;
        let setup = Setup {
            system,
            choices: self.choices(system)?,
            limits: self.limits()?,
            pattern,
            plan: self.plan.plan()?,
            data_bytes,
            active_bytes: (active_gib * mib_per_gib) << 20,
            page_bytes: page_kib << 10,
            flash_bytes: (flash_gib * mib_per_gib) << 20,
            origin: device(self.origin.as_ref(), SAN_PROFILE)?,
            flash: device(self.flash.as_ref(), FLASH_PROFILE)?,
            sample: hour / SAMPLES_PER_HOUR,
            span: hours * hour,
            last: hour,
            seed: self.seed,
        };
        if setup.flash_bytes < setup.choices.unit_bytes {
            return bad("flash_gib", flash_gib, "room for a unit at this scale");
        }
        Ok(setup)
    }

    pub(super) fn load(&self) -> Result<Load<'_>, String> {
        match (self.load.as_str(), &self.trace) {
            ("trace", Some(trace)) => return Ok(Load::Trace(trace)),
            ("trace", None) => return Err("no [trace]; accepted: one with a path".to_owned()),
            (other, Some(_)) => return bad("load", other, "trace, where there is a [trace]"),
            ("passes", None) => return Ok(Load::Passes),
            _ => {}
        }
        let found = Pattern::ALL.into_iter().find(|pattern| pattern.name() == self.load);
        found.map_or_else(
            || bad("load", &self.load, "oltp, scattered, passes, trace"),
            |p| Ok(Load::Clients(p)),
        )
    }

    /// A trace determines how much data there is and for how long.
    fn no_size_of_its_own(&self) -> Result<(), String> {
        let given = [
            ("scale", self.scale.is_some()),
            ("data_gib", self.data_gib.is_some()),
            ("active_gib", self.active_gib.is_some()),
            ("page_kib", self.page_kib.is_some()),
            ("flash_gib", self.flash_gib.is_some()),
            ("hours", self.hours.is_some()),
        ];
        match given.into_iter().find(|(_, given)| *given) {
            Some((key, _)) => Err(format!(
                "{key} is not for the load 'trace'; accepted: trace.flash_mib, trace.flash_share, trace.requests"
            )),
            None => Ok(()),
        }
    }

    fn system(&self) -> Result<System, String> {
        let bare = [System::NoCache, System::AllFlash];
        if let Some(found) = bare.into_iter().find(|system| system.name() == self.system) {
            return Ok(found);
        }
        if let Some(found) = PRESETS.iter().find(|preset| preset.name == self.system) {
            return Ok(System::Preset(found.name));
        }
        let names: Vec<&str> = PRESETS.iter().map(|preset| preset.name).collect();
        bad("system", &self.system, format!("{}, no-cache, all-flash", names.join(", ")))
    }

    /// So many MiB stand for a GiB of the paper.
    pub(super) fn mib_per_gib(&self) -> Result<u64, String> {
        let text = self.scale.as_deref().unwrap_or(SCALE).trim();
        let divisor = if text == "1" { Some("1") } else { text.strip_prefix("1/") };
        let divisor = divisor.and_then(|n| n.parse::<u64>().ok());
        match divisor.filter(|n| n.is_power_of_two() && *n <= SMALLEST) {
            Some(n) => Ok(1024 / n),
            None => bad("scale", text, "1, 1/2, 1/4, and so on to 1/1024"),
        }
    }

    fn limits(&self) -> Result<Limits, String> {
        let limits = Limits::default();
        let share = self.population_share.unwrap_or(limits.population_share);
        in_range("population_share", share, 0.01, 1.0)?;
        Ok(Limits { population_share: share, ..limits })
    }

    fn choices(&self, system: System) -> Result<Choices, String> {
        let mut choices = system.choices().map_err(|e| e.to_string())?;
        if let Some(kib) = self.unit_kib {
            choices.unit_bytes = unit(kib, &choices)?;
        }
        if let Some(balance) = self.balance {
            choices.balance = balance.then(BalanceSettings::default);
        }
        let writes = WriteSettings {
            writes: self.writes.clone(),
            durability: self.durability.clone(),
            sync_seconds: self.sync_seconds,
            dirty_share: self.dirty_share,
        };
        writes.apply(&mut choices)?;
        match (choices.periodic_mut(), self.update_seconds) {
            (_, None) => {}
            (Some(settings), Some(seconds)) => {
                in_range("update_seconds", seconds, 1, MOST_HOURS * 3600)?;
                settings.schedule = Schedule::Every(seconds * SECOND);
            }
            (None, Some(seconds)) => {
                return bad("update_seconds", seconds, "systems with periodic update");
            }
        }
        let Some(name) = &self.replacement else { return Ok(choices) };
        let known = ReplacementChoice::NAMED;
        let Some((_, replacement)) = known.iter().find(|(known, _)| known == name) else {
            let names: Vec<&str> = known.iter().map(|(name, _)| *name).collect();
            return bad("replacement", name, names.join(", "));
        };
        let system = system.name();
        choices
            .with_replacement(*replacement)
            .map_err(|why| format!("replacement = '{name}' cannot be with {system}: {why}"))
    }
}

fn unit(kib: u64, choices: &Choices) -> Result<u64, String> {
    let selective = matches!(choices.admission, AdmissionChoice::Selective(_));
    let least = if selective { FRAGMENT_BYTES_LEAST } else { UNIT_BYTES_LEAST };
    let bytes = kib.saturating_mul(1024);
    if bytes.is_power_of_two() && (least..=UNIT_BYTES_MOST).contains(&bytes) {
        return Ok(bytes);
    }
    let (least, most) = (least >> 10, UNIT_BYTES_MOST >> 10);
    bad("unit_kib", kib, format!("a power of two from {least} to {most} with this system"))
}

fn device(given: Option<&Device>, default: &str) -> Result<Device, String> {
    given.cloned().map_or_else(|| Device::named(default).map_err(|e| e.to_string()), Ok)
}

impl PlanSettings {
    fn plan(&self) -> Result<Plan, String> {
        in_range("plan.clients", self.clients, 1, 1024)?;
        in_range("plan.walks", self.walks, 1, 1024)?;
        in_range("plan.cleaners", self.cleaners, 0, 1024)?;
        in_range("plan.dirty_pages", self.dirty_pages as u64, 0, 1 << 20)?;
        in_range("plan.computing_us", self.computing_us, 0, 60_000_000)?;
        if !(0.0..=1024.0).contains(&self.writes) {
            return bad("plan.writes", self.writes, "0 to 1024");
        }
        Ok(Plan {
            clients: self.clients,
            walks: self.walks,
            writes: self.writes,
            computing: self.computing_us as Nanos * 1000,
            cleaners: self.cleaners,
            dirty_pages: self.dirty_pages,
        })
    }
}
