// SPDX-License-Identifier: MIT OR Apache-2.0
//! Settings that may change while a cache serves.
//!
//! Why not every setting: the unit, the preset's choices and the sizes decide what lies on flash; all time limits of a worker's
//! flash operations are equal, and are kept in the order of their start.

use larder_core::config::Limits;
use serde::{Deserialize, Serialize};

use super::config::CacheConfig;
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
    /// The interval at which the journal records the contents of units.
    pub checkpoint_ns: u64,
    /// How long a connection may be idle; 0: for ever.
    pub client_idle_ns: u64,
    /// Memory of each volume for its last requests; 0: neither these nor a miss-ratio curve.
    pub recorder_bytes: u64,
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
    pub checkpoint_ns: Option<u64>,
    #[allow(missing_docs)]
    pub client_idle_ns: Option<u64>,
    #[allow(missing_docs)]
    pub recorder_bytes: Option<u64>,
}

/// The shortest time limit of an idle connection.
const LEAST_IDLE: u64 = 1_000_000_000;

impl Settings {
    /// Those of a configuration.
    pub(crate) fn of(config: &CacheConfig) -> Self {
        let Limits { populates, population_share, population_io_bytes, checkpoint, .. } =
            config.limits;
        Self {
            populate: populates,
            populate_share_ratio: population_share,
            populate_io_bytes: population_io_bytes,
            checkpoint_ns: checkpoint,
            client_idle_ns: config.clients.idle.map_or(0, |span| span.as_nanos() as u64),
            recorder_bytes: config.recorder_bytes,
        }
    }

    /// With a change.
    pub(crate) fn changed(self, change: &Change) -> Self {
        Self {
            populate: change.populate.unwrap_or(self.populate),
            populate_share_ratio: change.populate_share_ratio.unwrap_or(self.populate_share_ratio),
            populate_io_bytes: change.populate_io_bytes.unwrap_or(self.populate_io_bytes),
            checkpoint_ns: change.checkpoint_ns.unwrap_or(self.checkpoint_ns),
            client_idle_ns: change.client_idle_ns.unwrap_or(self.client_idle_ns),
            recorder_bytes: change.recorder_bytes.unwrap_or(self.recorder_bytes),
        }
    }

    /// Checks each value.
    pub(crate) fn check(&self) -> Result<(), VolumeError> {
        let wrong = |why: &str| Err(VolumeError::Usage(why.to_owned()));
        if !(0.0..=1.0).contains(&self.populate_share_ratio) {
            return wrong("populate_share: accepted 0% to 100%");
        }
        if !Limits::is_population_io(self.populate_io_bytes) {
            return wrong("populate_io: accepted a multiple of 4KiB up to 1MiB");
        }
        if self.checkpoint_ns < 1_000_000 {
            return wrong("checkpoint: accepted at least 1ms");
        }
        if self.client_idle_ns != 0 && self.client_idle_ns < LEAST_IDLE {
            return wrong("client_idle: accepted 0 (never), or at least 1s");
        }
        Ok(())
    }

    /// `limits` with these settings.
    pub(crate) fn limits(&self, limits: &Limits) -> Limits {
        Limits {
            populates: self.populate,
            population_share: self.populate_share_ratio,
            population_io_bytes: self.populate_io_bytes,
            checkpoint: self.checkpoint_ns,
            ..*limits
        }
    }

    /// Memory of each of so many workers for the last requests of a volume.
    pub(crate) fn ring_bytes(&self, workers: u32) -> u64 {
        self.recorder_bytes / u64::from(workers)
    }
}
