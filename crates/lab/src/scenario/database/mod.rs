// SPDX-License-Identifier: MIT OR Apache-2.0
//! A database with an extension by flash as a scenario: its settings, and what a run gives.
//!
//! ```toml
//! kind = "database"
//! seed = 1
//! scale = "1/32"          # of database, pool, flash, disks, the array's write cache, and periods
//! system = "face"         # see SYSTEMS
//! caches = "mixed"        # or "clean", "dirty": which pages flash takes
//! sync = "back"           # or "through", "around"
//! warehouses = 500        # 105 MB each
//! pool_mib = 200
//! flash_gib = 10
//! drive_gib = 0           # the drive that flash is a part of; 0: as large as flash
//! clients = 50
//! processors = 12         # of the database's machine (6.1: two of six cores each)
//! transaction_us = 0      # that a transaction takes of a processor
//! disks = 16              # 15,000 rpm, 146.8 GB each, one controller with 512 MiB of write cache
//! flash = "ssd-840pro"    # a profile; of ssd-only, that of the database's drive
//! checkpoint_seconds = 300
//! fill_laps = 2           # so often flash is filled before anything is timed,
//! fill_transactions = 4000000   # by so many transactions at most (scaled, as the next two);
//! warm_transactions = 60000     # so many follow with devices,
//! transactions = 240000         # and so many that are counted
//! crash = "none"          # or "crash", in the middle of a checkpoint interval, or "stop"
//! after_spans = 0         # throughput after a crash, in so many spans
//! after_seconds = 20      # of this length (scaled)
//! ```
//! All but `system` have a default, which is the one shown. `result.rs` describes the result of a run.

mod result;
#[cfg(test)]
mod tests;

use larder_core::exec::{Nanos, SECOND};
use larder_model::{DeviceSpec, Model, described, profile, profiles};
use serde::Deserialize;
use serde_json::Value as Json;

use super::setting::{bad, in_range};
use crate::database::{
    BucketOrder, Caches, Crash, Devices, InPlace, PAGE_BYTES, PageLog, Spec, Sync, System, run,
};

/// What can be between pool and disk, by name.
pub const SYSTEMS: [(&str, System); 10] = [
    ("hdd-only", System::None),
    ("ssd-only", System::None),
    ("lc", System::InPlace(InPlace::LC)),
    ("tac", System::InPlace(InPlace::TAC)),
    ("exadata", System::InPlace(InPlace::EXADATA)),
    ("bcache-lru", System::Buckets(BucketOrder::Lru)),
    ("bcache-fifo", System::Buckets(BucketOrder::Fifo)),
    ("face", System::Log(PageLog { second_chance: true, batches: true })),
    // The engine's preset of this name.
    ("face-basic", System::Log(PageLog { second_chance: false, batches: true })),
    // As in the paper: without groups a page is a write.
    ("face-basic-pages", System::Log(PageLog { second_chance: false, batches: false })),
];

/// The disks of FaCE's Table 1.
const ARRAY: &str = "array-16";
const DISK_BYTES: f64 = 146.8e9;
const DISKS_MOST: u64 = 16;
const GIB: f64 = (1u64 << 30) as f64;
const MIB: f64 = (1u64 << 20) as f64;

/// Settings of a point, see the module.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    seed: u64,
    scale: String,
    system: String,
    caches: String,
    sync: String,
    warehouses: u32,
    pool_mib: f64,
    flash_gib: f64,
    drive_gib: f64,
    clients: u32,
    processors: u32,
    transaction_us: u64,
    disks: u64,
    flash: String,
    checkpoint_seconds: f64,
    fill_laps: u32,
    fill_transactions: u64,
    warm_transactions: u64,
    transactions: u64,
    crash: String,
    after_spans: u32,
    after_seconds: f64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            seed: 1,
            scale: "1/32".to_owned(),
            system: String::new(),
            caches: "mixed".to_owned(),
            sync: "back".to_owned(),
            warehouses: 500,
            pool_mib: 200.0,
            flash_gib: 10.0,
            drive_gib: 0.0,
            clients: 50,
            processors: 12,
            transaction_us: 0,
            disks: 16,
            flash: "ssd-840pro".to_owned(),
            checkpoint_seconds: 300.0,
            fill_laps: 2,
            fill_transactions: 4_000_000,
            warm_transactions: 60_000,
            transactions: 240_000,
            crash: "none".to_owned(),
            after_spans: 0,
            after_seconds: 20.0,
        }
    }
}

fn one_of<T: Copy>(key: &str, value: &str, all: &[(&str, T)]) -> Result<T, String> {
    match all.iter().find(|(name, _)| *name == value) {
        Some((_, found)) => Ok(*found),
        None => bad(key, value, all.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ")),
    }
}

impl Settings {
    /// What part of full size.
    fn part(&self) -> Result<f64, String> {
        let text = self.scale.trim();
        let (above, below) = text.split_once('/').unwrap_or((text, "1"));
        match (above.parse::<f64>(), below.parse::<f64>()) {
            (Ok(above), Ok(below)) if above > 0.0 && above <= below && below <= 512.0 => {
                Ok(above / below)
            }
            _ => bad("scale", text, "1, or a part of it as 1/16, down to 1/512"),
        }
    }

    /// The run that they describe.
    ///
    /// # Errors
    /// What cannot be, and what would be accepted.
    pub fn spec(&self) -> Result<Spec, String> {
        let part = self.part()?;
        let (system, caches, sync) = self.choices()?;
        in_range("disks", self.disks as f64, 1.0, DISKS_MOST as f64)?;
        in_range("drive_gib", self.drive_gib, 0.0, 4096.0)?;
        one_of("flash", &self.flash, &ssds())?;
        let scaled = |count: u64| ((count as f64 * part) as u64).max(1);
        let pages = |key, value, least, most, unit: f64| {
            let bytes = in_range(key, value, least, most)? * unit * part;
            Ok::<u32, String>(((bytes / PAGE_BYTES as f64) as u32).max(64))
        };
        let span = |seconds: f64| ((seconds * part * SECOND as f64) as Nanos).max(1);
        in_range("transactions", self.transactions as f64, 1.0, 1e9)?;
        in_range("after_seconds", self.after_seconds, 0.1, 1e5)?;
        let none = None;
        let after = Crash { stops: false, spans: self.after_spans, span: span(self.after_seconds) };
        let stop = Some(Crash { stops: true, ..after });
        let crashes = [("none", none), ("crash", Some(after)), ("stop", stop)];
        let crash = one_of("crash", &self.crash, &crashes)?;
        if crash.is_some() && !matches!(system, System::None | System::Log(_)) {
            return bad(
                "crash",
                &self.crash,
                "none, because this system's metadata is lost with memory",
            );
        }
        Ok(Spec {
            warehouses: (f64::from(
                in_range("warehouses", f64::from(self.warehouses), 1.0, 5000.0)? as u32,
            ) * part)
                .round()
                .max(1.0) as u32,
            pool_pages: pages("pool_mib", self.pool_mib, 1.0, 1e5, MIB)?,
            flash_pages: pages("flash_gib", self.flash_gib, 0.1, 1000.0, GIB)?,
            clients: in_range("clients", f64::from(self.clients), 1.0, 1000.0)? as u32,
            processors: in_range("processors", f64::from(self.processors), 1.0, 1024.0)? as u32,
            computing: in_range("transaction_us", self.transaction_us as f64, 0.0, 1e6)? as Nanos
                * 1000,
            checkpoint: span(in_range("checkpoint_seconds", self.checkpoint_seconds, 1.0, 1e5)?),
            system,
            caches,
            sync,
            fill_laps: self.fill_laps,
            fill_transactions: scaled(self.fill_transactions),
            warm_transactions: scaled(self.warm_transactions),
            transactions: scaled(self.transactions),
            crash,
            audit: false,
            seed: self.seed,
        })
    }

    fn choices(&self) -> Result<(System, Caches, Sync), String> {
        let system = one_of("system", &self.system, &SYSTEMS)?;
        let kinds = [("mixed", Caches::Mixed), ("clean", Caches::Clean), ("dirty", Caches::Dirty)];
        let caches = one_of("caches", &self.caches, &kinds)?;
        let syncs = [("back", Sync::Back), ("through", Sync::Through), ("around", Sync::Around)];
        let sync = one_of("sync", &self.sync, &syncs)?;
        if matches!(system, System::Buckets(_)) && (caches, sync) != (Caches::Mixed, Sync::Back) {
            return bad("system", &self.system, "with caches = 'mixed' and sync = 'back' alone");
        }
        if self.system == "tac" && sync != Sync::Through {
            return bad("sync", &self.sync, "through, of tac");
        }
        if sync == Sync::Around && self.system != "exadata" {
            return bad("sync", "around", "back, through; around of exadata alone");
        }
        Ok((system, caches, sync))
    }

    fn devices(&self) -> anyhow::Result<Devices> {
        let part = self.part().map_err(anyhow::Error::msg)?;
        let flash_bytes = (self.flash_gib * GIB * part).max(64.0 * PAGE_BYTES as f64);
        let drive_bytes = flash_bytes.max(self.drive_gib * GIB * part) as u64;
        let flash = profile(&self.flash, drive_bytes, self.seed)?;
        let disk: Box<dyn Model> = if self.system == "ssd-only" {
            profile(&self.flash, drive_bytes, self.seed)?
        } else {
            self.array(part)?
        };
        Ok(Devices { disk, flash })
    }

    /// The array: as large a part of each disk, and of the controller's cache, as of the database. So the
    /// database covers the same part of each platter, and the same part of it fits into the cache.
    fn array(&self, part: f64) -> anyhow::Result<Box<dyn Model>> {
        let mut array = described(ARRAY)?;
        if let DeviceSpec::Array(spec) = &mut array.device {
            *spec = spec.with_disks(self.disks);
            if let Some(cache) = &mut spec.disk.cache {
                cache.size_bytes = ((cache.size_bytes as f64 * part) as u64).max(PAGE_BYTES);
            }
        }
        Ok(array.build((DISK_BYTES * self.disks as f64 * part) as u64, self.seed))
    }
}

/// Drives of flash.
fn ssds() -> Vec<(&'static str, ())> {
    profiles().iter().filter(|p| p.name.starts_with("ssd-")).map(|p| (p.name, ())).collect()
}

/// Whether a point could be run.
///
/// # Errors
/// What cannot be, and what would be accepted.
pub fn look(settings: &Settings) -> Result<(), String> {
    settings.spec().map(|_| ())
}

/// Runs a point.
///
/// # Errors
/// If the settings are bad.
pub fn point(settings: &Settings) -> anyhow::Result<Json> {
    let spec = settings.spec().map_err(anyhow::Error::msg)?;
    let outcome = run(&spec, settings.devices()?);
    let part = settings.part().map_err(anyhow::Error::msg)?;
    Ok(result::json(&spec, &outcome, part))
}
