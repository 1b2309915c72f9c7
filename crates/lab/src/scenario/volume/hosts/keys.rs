// SPDX-License-Identifier: MIT OR Apache-2.0
//! Keys of hosts that share an origin; what they mean: `mod.rs`.

use serde::Deserialize;

/// The table `hosts`.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostSettings {
    pub(super) count: u32,
    #[serde(default)]
    pub(super) late: u32,
    pub(super) late_hour: Option<u64>,
}
