// SPDX-License-Identifier: MIT OR Apache-2.0
//! The parts of a volume.

use std::time::Duration;

use larder_core::config::{Choices, Limits};
use larder_io::Device;

use super::budget::Budget;
use super::peer::MOST_CONNECTIONS;
use super::state_file::StateFile;

/// The parts of a volume.
pub struct VolumeConfig {
    /// Its export name; may be empty.
    pub name: String,
    /// The slow device.
    pub origin: Device,
    /// The five choices.
    pub choices: Choices,
    /// Budgets and time limits.
    pub limits: Limits,
    /// Worker threads, each with a shard.
    pub workers: u32,
    /// The state file, which records whether the flash may be used. A volume without a journal needs it too: an earlier run
    /// may have left a journal.
    pub state: Option<StateFile>,
    /// What its clients may take.
    pub clients: ClientLimits,
}

impl VolumeConfig {
    /// A volume without a name and a state file, with the default limits.
    #[must_use]
    pub fn of(origin: Device, choices: Choices, workers: u32) -> Self {
        let (limits, clients) = (Limits::default(), ClientLimits::default());
        Self { name: String::new(), origin, choices, limits, workers, state: None, clients }
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
