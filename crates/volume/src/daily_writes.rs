// SPDX-License-Identifier: MIT OR Apache-2.0
//! A bound on what is written to flash in a day, as its owner states it (`larder_core::policy::write_budget` keeps it).

use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};

/// How much may be written to flash in a day.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DailyWrites {
    /// As much as the load makes.
    #[default]
    Any,
    /// So many bytes.
    Bytes(u64),
    /// So many times the size of the flash device (drive writes per day).
    Drives(f64),
}

impl DailyWrites {
    /// The least budget in bytes.
    const LEAST: u64 = 1_000_000;
    /// The budgets in sizes of the device.
    const DRIVES: RangeInclusive<f64> = 0.001..=1000.0;

    /// Bytes a day, for a device of so many bytes; 0: no bound.
    #[must_use]
    pub fn bytes(self, device_bytes: Option<u64>) -> u64 {
        match self {
            Self::Any => 0,
            Self::Bytes(bytes) => bytes,
            Self::Drives(drives) => device_bytes.map_or(0, |bytes| (bytes as f64 * drives) as u64),
        }
    }

    /// Whether the value is one that Larder keeps.
    #[must_use]
    pub fn is_accepted(self) -> bool {
        match self {
            Self::Any => true,
            Self::Bytes(bytes) => (Self::LEAST..=1 << 60).contains(&bytes),
            Self::Drives(drives) => Self::DRIVES.contains(&drives),
        }
    }
}
