// SPDX-License-Identifier: MIT OR Apache-2.0
//! The parts of a volume.

use larder_core::config::{Choices, Limits};
use larder_io::Device;

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
}
