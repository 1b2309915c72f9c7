// SPDX-License-Identifier: MIT OR Apache-2.0
//! Settings that may change while a cache serves.
//!
//! Why not every setting: the unit, the preset's choices and the sizes decide what lies on flash; all time limits of a worker's
//! flash operations are equal, and are kept in the order of their start; a journal counts time in checkpoints.

use std::ops::RangeInclusive;

use larder_core::config::Limits;
use larder_io::format_size;
use serde::{Deserialize, Serialize};

use super::config::CacheConfig;
use super::daily_writes::DailyWrites;
use super::error::VolumeError;

/// The settings.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// Whether reads admit what they miss, at once or in the background.
    pub populate: bool,
    /// The share of the time in which population may use the origin while clients use it.
    pub populate_share_ratio: f64,
    /// The largest read of population.
    pub populate_io_bytes: u64,
    /// How long a connection may be idle; 0: for ever.
    pub client_idle_ns: u64,
    /// Memory of each volume for its last requests; 0: neither these nor a miss-ratio curve.
    pub recorder_bytes: u64,
    /// How much is written to flash in a day.
    pub flash_write_budget: DailyWrites,
}

/// A change: what is `None` remains.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Change {
    /// See [`Settings`], as all fields.
    pub populate: Option<bool>,
    #[allow(missing_docs)]
    pub populate_share_ratio: Option<f64>,
    #[allow(missing_docs)]
    pub populate_io_bytes: Option<u64>,
    #[allow(missing_docs)]
    pub client_idle_ns: Option<u64>,
    #[allow(missing_docs)]
    pub recorder_bytes: Option<u64>,
    #[allow(missing_docs)]
    pub flash_write_budget: Option<DailyWrites>,
}

/// The time limits of an idle connection.
const IDLE: RangeInclusive<u64> = 1_000_000_000..=1_000_000_000_000_000_000;
/// The largest memory of a volume for its last requests.
pub const MOST_RECORDER_BYTES: u64 = 1 << 30;

impl Settings {
    /// Those of a configuration.
    pub(crate) fn of(config: &CacheConfig) -> Self {
        let Limits { populates, population_share, population_io_bytes, .. } = config.limits;
        Self {
            populate: populates,
            populate_share_ratio: population_share,
            populate_io_bytes: population_io_bytes,
            client_idle_ns: config.clients.idle.map_or(0, |span| span.as_nanos() as u64),
            recorder_bytes: config.recorder_bytes,
            flash_write_budget: config.flash_write_budget,
        }
    }

    /// With a change.
    pub(crate) fn changed(self, change: &Change) -> Self {
        Self {
            populate: change.populate.unwrap_or(self.populate),
            populate_share_ratio: change.populate_share_ratio.unwrap_or(self.populate_share_ratio),
            populate_io_bytes: change.populate_io_bytes.unwrap_or(self.populate_io_bytes),
            client_idle_ns: change.client_idle_ns.unwrap_or(self.client_idle_ns),
            recorder_bytes: change.recorder_bytes.unwrap_or(self.recorder_bytes),
            flash_write_budget: change.flash_write_budget.unwrap_or(self.flash_write_budget),
        }
    }

    /// Checks each value.
    pub(crate) fn check(&self) -> Result<(), VolumeError> {
        let wrong = |why: String| Err(VolumeError::Usage(why));
        let (share, io) = (self.populate_share_ratio, self.populate_io_bytes);
        if !(0.0..=1.0).contains(&share) {
            return wrong(format!("populate_share: got {share}, accepted 0% to 100%"));
        }
        if !Limits::is_population_io(io) {
            let io = format_size(io);
            return wrong(format!("populate_io: got {io}, accepted a multiple of 4KiB up to 1MiB"));
        }
        if self.client_idle_ns != 0 && !IDLE.contains(&self.client_idle_ns) {
            let ns = self.client_idle_ns;
            return wrong(format!(
                "client_idle: got {ns} ns, accepted 0 (never), or 1s to 31 years"
            ));
        }
        if self.recorder_bytes > MOST_RECORDER_BYTES {
            let (got, most) = (format_size(self.recorder_bytes), format_size(MOST_RECORDER_BYTES));
            return wrong(format!("recorder: got {got}, accepted up to {most}"));
        }
        if !self.flash_write_budget.is_accepted() {
            let got = self.flash_write_budget;
            return wrong(format!(
                "flash_write_budget: got {got:?}, accepted any, 1MB/day to 1EiB/day, or 0.001DWPD to 1000DWPD"
            ));
        }
        Ok(())
    }

    /// `limits` with these settings, for a flash device of so many bytes.
    pub(crate) fn limits(&self, limits: &Limits, device_bytes: Option<u64>) -> Limits {
        Limits {
            populates: self.populate,
            population_share: self.populate_share_ratio,
            population_io_bytes: self.populate_io_bytes,
            flash_write_budget: self.flash_write_budget.bytes(device_bytes),
            ..*limits
        }
    }

    /// Memory of each of so many workers for the last requests of a volume.
    pub(crate) fn ring_bytes(&self, workers: u32) -> u64 {
        self.recorder_bytes / u64::from(workers)
    }
}
