// SPDX-License-Identifier: MIT OR Apache-2.0
//! Keys of volumes that share a flash; what they mean: `settings.rs`.

use serde::Deserialize;
use toml::Value;

/// How volumes share: the table `sharing`.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Sharing {
    pub(super) least: Option<f64>,
    pub(super) most: Option<f64>,
    pub(super) apart: bool,
}

/// A volume: an entry of `volumes`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct VolumeSettings {
    pub(in super::super) load: Option<String>,
    pub(in super::super) data_gib: Option<u64>,
    pub(in super::super) active_gib: Option<u64>,
    pub(in super::super) page_kib: Option<u64>,
    pub(in super::super) origin: Option<Value>,
    pub(super) least: Option<f64>,
    pub(super) most: Option<f64>,
}
