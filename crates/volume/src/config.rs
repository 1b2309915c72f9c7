// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a volume is made of.

use larder_core::config::{Choices, Limits};
use larder_io::Device;

use super::state_file::StateFile;

/// See the module.
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
    /// Where it is kept whether the flash may be used: needed for a journal, and by a volume
    /// without one for what an earlier run may have left.
    pub state: Option<StateFile>,
}
