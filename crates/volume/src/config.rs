// SPDX-License-Identifier: MIT OR Apache-2.0
//! The parts of a cache and of its volumes.

use std::time::Duration;

use larder_core::config::{Choices, Limits};
use larder_core::format::label;
use larder_core::volumes::{MOST_VOLUMES, Share, Volumes};
use larder_io::Device;

use super::budget::Budget;
use super::daily_writes::DailyWrites;
use super::error::VolumeError;
use super::peer::MOST_CONNECTIONS;
use super::state_file::StateFile;
use super::volume_ranges::VolumeRanges;

/// The memory of a volume for its last requests, without a setting: a quarter of a million requests.
pub const RECORDER_BYTES: u64 = 8 << 20;

/// The parts of a cache.
pub struct CacheConfig {
    /// Its name; that of the volume, if there is one.
    pub name: String,
    /// The volumes that it serves, in the order of their places.
    pub volumes: Vec<VolumeConfig>,
    /// The five choices.
    pub choices: Choices,
    /// Budgets and time limits.
    pub limits: Limits,
    /// Worker threads, each with a shard.
    pub workers: u32,
    /// The state file, which records whether the flash may be used. A cache without a journal needs it too: an earlier run
    /// may have left a journal.
    pub state: Option<StateFile>,
    /// Bytes that flash may grow to; by default a few times its size.
    pub flash_most: Option<u64>,
    /// What clients may take.
    pub clients: ClientLimits,
    /// Memory for the last requests of each volume. With 0 there is no miss-ratio curve either.
    pub recorder_bytes: u64,
    /// How much is written to flash in a day.
    pub flash_write_budget: DailyWrites,
}

/// The parts of a volume.
pub struct VolumeConfig {
    /// Its export name; may be empty.
    pub name: String,
    /// The grant under which a cluster's manager lets this machine serve it; 0: there is no manager.
    pub generation: u64,
    /// The slow device.
    pub origin: Device,
    /// How many of the slots it may have.
    pub share: Share,
    /// What of it is pinned and excluded.
    pub ranges: VolumeRanges,
}

impl CacheConfig {
    /// The cache of a volume without a name and a state file, with the default limits.
    #[must_use]
    pub fn of(origin: Device, choices: Choices, workers: u32) -> Self {
        let (name, share) = (String::new(), Share::default());
        let volumes = vec![VolumeConfig {
            name: name.clone(),
            generation: 0,
            origin,
            share,
            ranges: VolumeRanges::default(),
        }];
        let (limits, clients) = (Limits::default(), ClientLimits::default());
        Self {
            name,
            volumes,
            choices,
            limits,
            workers,
            state: None,
            flash_most: None,
            clients,
            recorder_bytes: RECORDER_BYTES,
            flash_write_budget: DailyWrites::Any,
        }
    }

    /// The same with a name, which is also that of its only volume.
    #[must_use]
    pub fn named(mut self, name: &str) -> Self {
        name.clone_into(&mut self.name);
        if let [alone] = &mut self.volumes[..] {
            name.clone_into(&mut alone.name);
        }
        self
    }

    /// The places of the volumes.
    pub(crate) fn placed(&self) -> Result<Volumes, VolumeError> {
        if !(1..=MOST_VOLUMES).contains(&self.volumes.len()) {
            return Err(VolumeError::Usage(format!(
                "{} volumes over one flash; accepted: 1 to {MOST_VOLUMES}",
                self.volumes.len()
            )));
        }
        let sizes: Vec<u64> = self.volumes.iter().map(VolumeConfig::bytes).collect();
        let shares: Vec<Share> = self.volumes.iter().map(|volume| volume.share).collect();
        let stripe_bytes = self.choices.shape(0, self.workers).stripe_bytes();
        Ok(Volumes::placed(&sizes, stripe_bytes).sharing(&shares))
    }

    /// The digest of several volumes, which the label has; 0 of one.
    #[must_use]
    pub fn digest(&self) -> u64 {
        match &self.volumes[..] {
            [_] => 0,
            several => label::digest(several.iter().map(|of| (of.name.as_str(), of.bytes()))),
        }
    }

    /// What it is called in messages.
    pub(crate) fn title(&self) -> String {
        let what = if self.volumes.len() > 1 { "cache" } else { "volume" };
        format!("{what} '{}'", self.name)
    }

    /// The origins, for a message.
    pub(crate) fn origins_in_words(&self) -> String {
        let names: Vec<&str> = self.volumes.iter().map(|volume| volume.origin.name()).collect();
        names.join(", ")
    }

    /// The beginning of a message about one volume: which one, if there are several.
    pub(crate) fn of_volume(&self, number: u32) -> String {
        match &self.volumes[..] {
            [_] => String::new(),
            several => format!("volume '{}': ", several[number as usize].name),
        }
    }
}

impl VolumeConfig {
    /// Its size.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.origin.geometry().bytes
    }
}

/// What the clients of a volume may take.
#[derive(Clone, Debug)]
pub struct ClientLimits {
    /// Connections of one peer.
    pub most_each: usize,
    /// How long a connection may be idle; without it for ever.
    pub idle: Option<Duration>,
    /// The memory of all clients of the process.
    pub budget: Budget,
}

impl Default for ClientLimits {
    fn default() -> Self {
        Self { most_each: MOST_CONNECTIONS, idle: None, budget: Budget::default() }
    }
}
