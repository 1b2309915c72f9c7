// SPDX-License-Identifier: MIT OR Apache-2.0
//! The volume's state of its flash device, and the answers to `status` and `stats`.

use std::collections::BTreeMap;

use larder_core::config::Memory;
use larder_core::desk::Requests;
use larder_core::exec::DevId;
use larder_core::format::Plan;
use larder_core::request::Errno;
use larder_core::shard::CacheStatus;
use larder_core::stats::Counters;
use larder_io::Device;
use serde::Serialize;

use super::config::VolumeConfig;
use super::flash::FlashDevice;
use super::latency::Latencies;
use super::returned::Returned;

/// A flash device that shards use, or have not released.
pub(crate) struct Attached {
    pub dev: DevId,
    pub flash: FlashDevice,
    /// It was detached or failed, and has operations in flight.
    pub leaving: bool,
    /// The id that it is labelled with.
    volume: u64,
    /// Workers that have not released it.
    waiting: usize,
    /// Workers that have not opened their page logs on it.
    opening: usize,
}

impl Attached {
    fn is(&self, dev: DevId) -> bool {
        self.dev == dev
    }
}

/// The state, see the module.
#[derive(Default)]
pub(crate) struct State {
    pub attached: Option<Attached>,
    /// Why the last flash device failed, until another is attached.
    pub alarm: Option<String>,
    /// The flash that failed, with the id on its label, while it is tried again.
    pub failed: Option<(FlashDevice, u64)>,
    /// When a flash that had failed returned last.
    pub returned: Returned,
    /// Why a page log that may hold dirty data cannot be used. Its device may be closed by now.
    refused: Option<(DevId, String)>,
    /// Workers for which the attached device fails although it stays in use, because it holds dirty data, with the error.
    pub flash_errors: BTreeMap<u32, String>,
    /// Workers whose dirty data the origin refuses, with the error.
    pub origin_refuses: BTreeMap<u32, Errno>,
    /// The operation in which the origin failed permanently.
    pub origin_alarm: Option<String>,
}

impl State {
    pub fn attach(&mut self, dev: DevId, flash: FlashDevice, volume: u64, workers: usize) {
        self.forgive();
        self.refused = None;
        let (leaving, waiting) = (false, workers);
        let opening = if matches!(flash.plan, Plan::Logs(_)) { workers } else { 0 };
        self.attached = Some(Attached { dev, flash, leaving, volume, waiting, opening });
    }

    /// What went wrong with an earlier device no longer matters; it is closed.
    pub fn forgive(&mut self) {
        self.alarm = None;
        self.failed = None;
        self.flash_errors.clear();
        self.origin_refuses.clear();
    }

    /// A worker has opened its page log, or cannot, for this reason.
    pub fn opened(&mut self, dev: DevId, refused: Option<String>) {
        self.refused = self.refused.take().or(refused.map(|why| (dev, why)));
        if let Some(attached) = self.attached.as_mut().filter(|a| a.is(dev)) {
            attached.opening = attached.opening.saturating_sub(1);
        }
    }

    /// The number of workers that are opening their page logs; none if the device failed or was detached.
    pub fn logs_opening(&self, dev: DevId) -> usize {
        let attached = self.attached.as_ref().filter(|a| a.is(dev) && !a.leaving);
        attached.map_or(0, |a| a.opening)
    }

    /// Why a page log cannot be used.
    pub fn log_refused(&self, dev: DevId) -> Option<String> {
        self.refused.as_ref().filter(|(of, _)| *of == dev).map(|(_, why)| why.clone())
    }

    /// Detaches the device. Returns its number and name, if there is one. If it has page logs that would still count as
    /// dirty, it also returns the device and the id on its label.
    #[allow(clippy::type_complexity)] // said once
    pub fn leave(&mut self) -> Option<(DevId, String, Option<(FlashDevice, u64)>)> {
        self.attached.as_ref()?;
        self.forgive();
        let attached = self.attached.as_mut()?;
        attached.leaving = true;
        let outlives = matches!(attached.flash.plan, Plan::Logs(logs) if logs.survives_crash);
        let emptied = outlives.then(|| (attached.flash.clone(), attached.volume));
        Some((attached.dev, attached.flash.device.name().to_owned(), emptied))
    }

    /// The device failed; returns the alarm, if it is new.
    pub fn fail(&mut self, dev: DevId, why: &str) -> Option<String> {
        let attached = self.attached.as_mut().filter(|a| a.is(dev))?;
        if std::mem::replace(&mut attached.leaving, true) {
            return None;
        }
        let alarm = format!("flash {} failed: {why}", attached.flash.device.name());
        self.alarm = Some(alarm.clone());
        Some(alarm)
    }

    /// A worker released the device; returns whether it was the last.
    pub fn released(&mut self, dev: DevId) -> bool {
        let Some(attached) = self.attached.as_mut().filter(|a| a.is(dev)) else { return false };
        attached.leaving = true;
        attached.waiting = attached.waiting.saturating_sub(1);
        attached.waiting == 0
    }

    /// The device is no longer used. Returns whether it will be tried again, because it failed; else it is closed.
    pub fn forget(&mut self, dev: DevId) -> bool {
        let forgotten = self.attached.take_if(|a| a.is(dev));
        let failed = forgotten.filter(|_| self.alarm.is_some());
        self.failed = failed.map(|attached| (attached.flash, attached.volume));
        self.failed.is_some()
    }

    /// The number of workers that have not released the device.
    pub fn waiting_for(&self, dev: DevId) -> usize {
        let attached = self.attached.as_ref().filter(|a| a.is(dev));
        attached.map_or(0, |a| a.waiting.max(1))
    }

    /// The alarm of the volume over this origin.
    fn told(&self, origin: &Device) -> Option<String> {
        let refuses = self.origin_refuses.values().next();
        let refuses =
            refuses.map(|errno| format!("the origin refuses dirty data from flash ({errno})"));
        let lost = || origin.may_have_lost_writes().then(|| LOST_WRITES.to_owned());
        let flash = || self.alarm.clone().or_else(|| self.flash_errors.values().next().cloned());
        self.origin_alarm.clone().or_else(lost).or_else(flash).or(refuses)
    }

    /// The state in one word.
    pub fn word(&self, suspended: bool) -> &'static str {
        match &self.attached {
            _ if self.alarm.is_some() || !self.flash_errors.is_empty() => "failed",
            None => "pass-through",
            Some(attached) if attached.leaving => "detaching",
            Some(_) if suspended => "suspended",
            Some(_) => "caching",
        }
    }
}

/// What a worker holds for clients.
pub(crate) struct Clients {
    pub bytes: u64,
    pub kept_bytes: u64,
}

/// The counters of a volume since its start.
#[derive(Clone, Debug, Serialize)]
pub struct Stats {
    /// Client requests.
    #[serde(flatten)]
    pub requests: Requests,
    /// Operations of the engine for them.
    #[serde(flatten)]
    pub counters: Counters,
    /// Slots.
    pub units_total: u64,
    /// Slots in use.
    pub units_used: u64,
    /// Units with dirty data: none in a clean cache.
    pub units_dirty: u64,
    /// Memory of maps, slots, bitmaps and buffers, with client_bytes and kept_bytes.
    pub memory_bytes: u64,
    /// Memory of connections and of their requests in flight.
    pub client_bytes: u64,
    /// Buffers that workers keep for reuse.
    pub kept_bytes: u64,
    /// How often a request of a client waited for memory, in all volumes of the process.
    pub memory_waits: u64,
    /// `caching`, `pass-through`, `suspended`, `detaching` or `failed`.
    pub state: &'static str,
    /// Latencies of requests.
    #[serde(skip)]
    pub latencies: Latencies,
    /// Whether a shard bypasses flash because an operation is overdue.
    #[serde(skip)]
    pub(crate) suspended: bool,
}

impl Stats {
    pub(crate) fn new(memory: Memory) -> Self {
        Self {
            requests: Requests::default(),
            counters: Counters::default(),
            units_total: 0,
            units_used: 0,
            units_dirty: 0,
            memory_bytes: memory.full_bytes(),
            client_bytes: 0,
            kept_bytes: 0,
            memory_waits: 0,
            state: "",
            latencies: Latencies::default(),
            suspended: false,
        }
    }

    pub(crate) fn add(
        &mut self,
        requests: Requests,
        counters: Counters,
        cache: Option<CacheStatus>,
        clients: Clients,
    ) {
        self.client_bytes += clients.bytes;
        self.kept_bytes += clients.kept_bytes;
        self.memory_bytes += clients.bytes + clients.kept_bytes;
        self.requests += requests;
        self.counters += counters;
        if let Some(cache) = cache {
            self.units_total += cache.units_total;
            self.units_used += cache.units_used;
            self.units_dirty += cache.units_dirty;
            self.memory_bytes += cache.bitmap_bytes;
            self.suspended |= cache.suspended;
        }
    }
}

/// The status of a volume.
#[derive(Clone, Debug, Serialize)]
pub struct Status {
    /// Export name.
    pub name: String,
    /// As in [`Stats::state`].
    pub state: &'static str,
    /// Why the flash device failed, or the operation in which the origin failed permanently.
    pub alarm: Option<String>,
    /// What works in this state and what an administrator should do; none in a normal state.
    pub advice: Option<&'static str>,
    /// The origin.
    pub origin: String,
    /// Its size.
    pub origin_bytes: u64,
    /// The flash device, if one is attached.
    pub flash: Option<String>,
    /// Bytes of a unit, or of a page of a log; the following fields count these.
    pub unit_bytes: u64,
    /// Slots.
    pub units_total: u64,
    /// Slots in use.
    pub units_used: u64,
    /// Units with dirty data.
    pub units_dirty: u64,
    /// Memory of maps, slots, bitmaps and buffers, with that of clients.
    pub memory_bytes: u64,
    /// Worker threads.
    pub workers: u32,
    /// Connections.
    pub connections: u64,
    /// Files that are the volume, by FUSE.
    pub files: Vec<std::path::PathBuf>,
    /// Client requests in flight.
    pub requests_open: u64,
    /// The serving process.
    pub pid: u32,
}

/// The alarm of a remote origin whose connection broke.
const LOST_WRITES: &str = "the origin's server had acknowledged writes that were not flushed and may have lost them: every FLUSH fails until the volume is restarted";

/// What works in a state and what an administrator should do.
fn advice(word: &str, state: &State, origin: &Device) -> Option<&'static str> {
    if state.origin_alarm.is_some() || origin.may_have_lost_writes() {
        return Some("reads and writes work, no FLUSH succeeds; check the origin, then restart");
    }
    // A flash that may hold dirty data stays in use after an I/O error.
    let owns = state.attached.as_ref().is_some_and(|a| !a.leaving);
    let log = state.attached.as_ref().is_some_and(|a| matches!(a.flash.plan, Plan::Logs(_)));
    let leaving = state.attached.is_some();
    match word {
        "failed" if owns && log => Some(
            "writes go to the origin after --flash-dead-after, EIO for dirty data that only flash has; flash is used again when it works; otherwise: larder detach",
        ),
        "failed" if owns => Some(
            "requests that need flash wait, then get EIO, until it works; without it dirty data is lost: check the device",
        ),
        "failed" if leaving => Some(
            "clients are served from the origin, nothing is lost; the lost device is still busy",
        ),
        "failed" => Some(
            "clients are served from the origin, nothing is lost; replace the flash: larder attach DEV",
        ),
        "pass-through" => Some("clients are served from the origin; to cache: larder attach DEV"),
        "suspended" => Some("flash is bypassed until it answers; check it if this recurs"),
        "detaching" => Some("clients are served from the origin; flash is closed when it is idle"),
        _ => None,
    }
}

impl Status {
    pub(crate) fn of(
        config: &VolumeConfig,
        state: &State,
        stats: &Stats,
        requests_open: u64,
        connections: u64,
    ) -> Self {
        Self {
            name: config.name.clone(),
            state: stats.state,
            alarm: state.told(&config.origin),
            advice: advice(stats.state, state, &config.origin),
            origin: config.origin.name().to_owned(),
            origin_bytes: config.origin.geometry().bytes,
            flash: state.attached.as_ref().map(|a| a.flash.device.name().to_owned()),
            unit_bytes: config.choices.cached_bytes(),
            units_total: stats.units_total,
            units_used: stats.units_used,
            units_dirty: stats.units_dirty,
            memory_bytes: stats.memory_bytes,
            workers: config.workers,
            connections,
            files: Vec::new(),
            requests_open,
            pid: std::process::id(),
        }
    }
}
