// SPDX-License-Identifier: MIT OR Apache-2.0
//! How large the database is, and on what it was measured.

use std::path::PathBuf;

use serde::Serialize;

use super::memory::CGROUPS;
use crate::demo::window::Window;

/// How large, and how long.
#[derive(Clone, Debug, Serialize)]
pub struct Scale {
    /// The size of the volume.
    pub volume_bytes: u64,
    /// The size of the flash.
    pub flash_bytes: u64,
    /// Rows of the table, four to a page of 4 KiB.
    pub rows: u32,
    /// The memory that the database is allowed, page cache included.
    pub memory_bytes: u64,
    /// Clients.
    pub clients: usize,
    /// How long each row runs.
    #[serde(flatten)]
    pub window: Window,
    /// Where cgroups are.
    #[serde(skip)]
    pub cgroups: PathBuf,
}

impl Default for Scale {
    fn default() -> Self {
        Self {
            volume_bytes: 256 << 20,
            flash_bytes: 288 << 20,
            rows: 192 << 10,
            memory_bytes: 24 << 20,
            clients: 4,
            window: Window { warm_up_seconds: 8, measured_seconds: 8 },
            cgroups: PathBuf::from(CGROUPS),
        }
    }
}

/// What was measured, the same for both rows.
#[derive(Clone, Debug, Serialize)]
pub struct Setup {
    /// Which SQLite.
    pub sqlite: String,
    /// The size of its file at the start.
    pub database_bytes: u64,
    /// How its memory is bounded.
    pub memory: String,
    /// The model of the slow device.
    pub profile: String,
    /// Its seed, and that of the load.
    pub seed: u64,
    /// How large, and how long.
    #[serde(flatten)]
    pub scale: Scale,
}
