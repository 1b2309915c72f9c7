// SPDX-License-Identifier: MIT OR Apache-2.0
//! The answer to `status`, for a volume and for a cache that several volumes share.

use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;

use larder_core::format::Plan;
use serde::Serialize;

use super::cache::Cache;
use super::curve::Shown;
use super::error::VolumeError;
use super::lock::lock;
use super::part::Part;
use super::state::State;
use super::stats::Stats;
use super::volume_ranges::{ShownRanges, VolumeRanges};

/// The status of a volume, or of a cache with all of its volumes.
#[derive(Clone, Debug, Serialize)]
pub struct Status {
    /// Export name of a volume; name of a cache.
    pub name: String,
    /// Of a volume that shares its cache: the cache's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache: Option<String>,
    /// As in [`Stats::state`](super::Stats::state).
    pub state: &'static str,
    /// Why the flash device failed, or the operation in which an origin failed permanently.
    pub alarm: Option<String>,
    /// What works in this state and what an administrator should do; none in a normal state.
    pub advice: Option<&'static str>,
    /// The origin, or the origins with commas between them.
    pub origin: String,
    /// Its size, or the sum of their sizes.
    pub origin_bytes: u64,
    /// The flash device, if one is attached.
    pub flash: Option<String>,
    /// Bytes of it that are in use, from its first byte on.
    pub flash_bytes: Option<u64>,
    /// Bytes of a unit, or of a page of a log; the following fields count these.
    pub unit_bytes: u64,
    /// Slots; while flash shrinks also those behind its new end that hold something.
    pub units_total: u64,
    /// Slots in use; of a volume that shares its cache: with its units.
    pub units_used: u64,
    /// Units with dirty data.
    pub units_dirty: u64,
    /// Under the write policy `ordered`: for how long the oldest change has waited for the origin.
    pub origin_behind_ns: u64,
    /// Pages that were read from flash since the start, and not as they were written.
    pub damaged_pages: u64,
    /// What an administrator asked for.
    #[serde(flatten)]
    pub asked: AskedFor,
    /// Memory of maps, slots, bitmaps, buffers and the recorder, with that of clients.
    pub memory_bytes: u64,
    /// Worker threads.
    pub workers: u32,
    /// Connections.
    pub connections: u64,
    /// Files that are the volume, by FUSE.
    pub files: Vec<PathBuf>,
    /// Client requests in flight.
    pub requests_open: u64,
    /// The serving process.
    pub pid: u32,
    /// The hit ratio with other sizes of flash; of a volume that clients used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub curve: Option<Shown>,
    /// The volumes of a shared cache.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub volumes: Vec<Member>,
}

/// What an administrator asked for, in the status of a volume or a cache.
#[derive(Clone, Debug, Serialize)]
pub struct AskedFor {
    /// Units on flash that a rule keeps there, of all volumes.
    pub units_pinned: u64,
    /// Bytes that are written to flash in a day, as since the start; null in the first ten minutes.
    pub flash_write_forecast_bytes: Option<u64>,
    /// Bytes that may be written to flash in a day; null without a bound.
    pub flash_write_budget_bytes: Option<u64>,
    /// What is pinned and excluded of a volume.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pinned: Option<ShownRanges>,
    /// See `pinned`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub excluded: Option<ShownRanges>,
}

/// A volume in the status of its cache.
#[derive(Clone, Debug, Serialize)]
pub struct Member {
    /// Export name.
    pub name: String,
    /// As in [`Status::state`].
    pub state: &'static str,
    /// What concerns this volume alone.
    pub alarm: Option<String>,
    /// Its origin.
    pub origin: String,
    /// Its size.
    pub origin_bytes: u64,
    /// Slots with its units.
    pub units_used: u64,
    /// Units with dirty data.
    pub units_dirty: u64,
    /// Connections.
    pub connections: u64,
    /// Files that are the volume, by FUSE.
    pub files: Vec<PathBuf>,
}

/// What works in a state, and what an administrator should do.
fn advice(word: &str, state: &State, origin_failed: bool) -> Option<&'static str> {
    if origin_failed {
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
        "outside" => Some("clients are served from the origin; to cache again: larder attach"),
        "missing" => {
            Some("connect the origin, then restart the server; flash keeps its cached data")
        }
        "pass-through" => Some("clients are served from the origin; to cache: larder attach DEV"),
        "suspended" => Some("flash is bypassed until it answers; check it if this recurs"),
        "detaching" => Some("clients are served from the origin; flash is closed when it is idle"),
        _ => None,
    }
}

/// What concerns a volume alone.
fn alarm(part: &Part, number: u32, state: &State) -> Option<String> {
    let overdue = || state.is_overdue(number).then(|| OVERDUE.to_owned());
    state.origin_alarms.get(&number).cloned().or_else(|| part.alarm()).or_else(overdue)
}

/// The alarm of an origin that is overdue.
const OVERDUE: &str = "the origin does not answer: clients of this volume wait for it";

/// What is written in a day, if so many bytes were in a time.
fn forecast(bytes: u64, span: Duration) -> Option<u64> {
    let days = span.as_secs_f64() / 86_400.0;
    (span >= Duration::from_secs(600)).then_some((bytes as f64 / days) as u64)
}

/// What a volume's workers hold.
struct Held {
    connections: Vec<u64>,
    requests_open: u64,
}

impl Cache {
    /// The state of the cache and its volumes.
    ///
    /// # Errors
    /// When a worker does not answer.
    pub fn status(&self) -> Result<Status, VolumeError> {
        self.status_of(None)
    }

    /// The state of all volumes, or of one.
    pub(crate) fn status_of(&self, volume: Option<u32>) -> Result<Status, VolumeError> {
        let stats = self.stats_of(volume)?;
        let held = self.held(volume)?;
        let units = self.units_by_volume()?;
        let state = lock(&self.state);
        let numbers: Vec<u32> = match volume {
            Some(volume) => vec![volume],
            None => (0..self.parts.len() as u32).collect(),
        };
        let parts = || numbers.iter().map(|number| (*number, &self.parts[*number as usize]));
        let shared = self.parts.len() > 1;
        let member = |(number, part): (u32, &Part)| Member {
            name: part.name.clone(),
            state: state.word_of(part, number, stats.state),
            alarm: alarm(part, number, &state),
            origin: part.origin.name().to_owned(),
            origin_bytes: part.range.end - part.range.start,
            units_used: units[number as usize].0,
            units_dirty: units[number as usize].1,
            connections: held.connections[number as usize],
            files: lock(&part.files).clone(),
        };
        let members: Vec<Member> = parts().map(member).collect();
        let failed = |number: &u32| {
            state.origin_alarms.contains_key(number)
                || self.parts[*number as usize].origin.may_have_lost_writes()
        };
        let word = match &members[..] {
            [alone] => alone.state,
            _ => stats.state,
        };
        let alarm = members.iter().find_map(|of| {
            let alarm = of.alarm.clone()?;
            Some(if volume.is_none() && shared { format!("{}: {alarm}", of.name) } else { alarm })
        });
        let plan = state.attached.as_ref().map(|a| a.flash.plan);
        Ok(Status {
            name: match volume {
                Some(volume) => self.parts[volume as usize].name.clone(),
                None => self.config.name.clone(),
            },
            cache: (shared && volume.is_some()).then(|| self.config.name.clone()),
            state: word,
            alarm: alarm.or_else(|| state.flash_alarm()),
            advice: advice(word, &state, numbers.iter().any(failed)),
            origin: members.iter().map(|of| of.origin.as_str()).collect::<Vec<_>>().join(", "),
            origin_bytes: members.iter().map(|of| of.origin_bytes).sum(),
            flash: state.attached.as_ref().map(|a| a.flash.device.name().to_owned()),
            flash_bytes: plan.map(|plan| plan.end()),
            unit_bytes: self.config.choices.cached_bytes(),
            units_total: stats.units_total,
            units_used: stats.units_used,
            units_dirty: stats.units_dirty,
            origin_behind_ns: stats.origin_behind_ns,
            damaged_pages: stats.counters.damaged_pages,
            asked: self.asked_for(&numbers, &stats, &state),
            memory_bytes: stats.memory_bytes,
            workers: self.config.workers,
            connections: members.iter().map(|of| of.connections).sum(),
            files: members.iter().flat_map(|of| of.files.clone()).collect(),
            requests_open: held.requests_open,
            pid: std::process::id(),
            curve: match &numbers[..] {
                [number] => {
                    let cached = plan.map(|plan| self.flash_bytes(plan.slots()));
                    self.parts[*number as usize].curve.shown(cached)
                }
                _ => None,
            },
            volumes: if shared && volume.is_none() { members } else { Vec::new() },
        })
    }

    fn asked_for(&self, numbers: &[u32], stats: &Stats, state: &State) -> AskedFor {
        let device_bytes = state.attached.as_ref().map(|a| a.flash.device.geometry().bytes);
        let written = stats.counters.flash_write_bytes;
        let rules = (numbers.len() == 1).then(|| lock(&self.asked)[numbers[0] as usize].all());
        let shown = |of: fn(&VolumeRanges) -> &[Range<u64>]| {
            rules.as_ref().and_then(|rules| ShownRanges::of(of(rules)))
        };
        AskedFor {
            units_pinned: stats.units_pinned,
            flash_write_forecast_bytes: forecast(written, self.started.elapsed()),
            flash_write_budget_bytes: self.daily_writes(device_bytes),
            pinned: shown(|rules| &rules.pinned),
            excluded: shown(|rules| &rules.excluded),
        }
    }

    /// Connections by volume, and requests in flight, of all volumes or of one.
    fn held(&self, volume: Option<u32>) -> Result<Held, VolumeError> {
        let answers = self.ask(move |w| {
            w.hand_over();
            (w.open_requests(volume), w.connections_by_volume())
        })?;
        let mut held = Held { connections: vec![0; self.parts.len()], requests_open: 0 };
        for (open, connections) in answers {
            held.requests_open += open;
            held.connections.iter_mut().zip(connections).for_each(|(sum, more)| *sum += more);
        }
        Ok(held)
    }

    /// Slots in use, and those with dirty data, by volume. Single pages in mixed slots are not counted where several share.
    fn units_by_volume(&self) -> Result<Vec<(u64, u64)>, VolumeError> {
        let volumes = self.parts.len() as u32;
        let answers = self.ask(move |worker| {
            (0..volumes).map(|volume| worker.shard.units_of(volume)).collect::<Vec<_>>()
        })?;
        let mut sums = vec![(0, 0); self.parts.len()];
        for each in answers {
            for (sum, (used, dirty)) in sums.iter_mut().zip(each) {
                sum.0 += used;
                sum.1 += dirty;
            }
        }
        Ok(sums)
    }
}
