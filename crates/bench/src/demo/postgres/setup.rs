// SPDX-License-Identifier: MIT OR Apache-2.0
//! How large the database is, and on what it was measured.

use std::path::PathBuf;

use serde::Serialize;

use super::row::Kind;
use crate::demo::window::Window;

/// How large, and how long.
#[derive(Clone, Debug, Serialize)]
pub struct Scale {
    /// The library; without, the one beside this program.
    #[serde(skip)]
    pub library: Option<PathBuf>,
    /// The model of the slow disk.
    pub device: String,
    /// Warehouses, of 105 MB each.
    pub warehouses: u32,
    /// Shared buffers of the rows but the last.
    pub shared_buffers_bytes: u64,
    /// Flash, of the database.
    #[serde(skip)]
    pub flash_ratio: f64,
    /// Clients.
    pub clients: usize,
    /// Seconds between checkpoints; all rows for each.
    #[serde(skip)]
    pub checkpoint_seconds: Vec<u64>,
    /// More rows: a policy, and seconds between checkpoints.
    #[serde(skip)]
    pub more: Vec<(&'static str, u64)>,
    /// How long each row runs ...
    #[serde(flatten)]
    pub window: Window,
    /// ... and intervals of checkpoints that count, at least. Behind them all of it is killed.
    pub measured_intervals: u64,
}

impl Default for Scale {
    fn default() -> Self {
        Self {
            library: None,
            device: "cloud".to_owned(),
            warehouses: 6,
            shared_buffers_bytes: 32 << 20,
            flash_ratio: 0.2,
            clients: 8,
            checkpoint_seconds: vec![30],
            more: Vec::new(),
            window: Window { warm_up_seconds: 25, measured_seconds: 60 },
            // A checkpoint is spread over almost all of the time until the next begins.
            measured_intervals: 2,
        }
    }
}

impl Scale {
    /// A larger one, for longer, with frequent and with rare checkpoints.
    #[must_use]
    pub fn full() -> Self {
        Self {
            warehouses: 20,
            shared_buffers_bytes: 64 << 20,
            checkpoint_seconds: vec![60, 300],
            window: Window { warm_up_seconds: 240, measured_seconds: 300 },
            ..Self::default()
        }
    }

    /// Killed in the middle of an interval that is as long as it is by default; and of a short one under `full`, whose
    /// checkpoints write nothing to the disk.
    #[must_use]
    pub fn restart() -> Self {
        Self {
            checkpoint_seconds: vec![300],
            more: vec![("full", 60)],
            window: Window { warm_up_seconds: 25, measured_seconds: 150 },
            measured_intervals: 0,
            ..Self::default()
        }
    }

    /// The rows of a table, each with its seconds between checkpoints: the first is without a cache.
    #[must_use]
    pub fn tables(&self) -> Vec<Vec<(Kind, u64)>> {
        let all = |seconds: &u64| Kind::all().into_iter().map(|kind| (kind, *seconds)).collect();
        let mut tables: Vec<Vec<(Kind, u64)>> = self.checkpoint_seconds.iter().map(all).collect();
        if let Some(last) = tables.last_mut() {
            last.extend(self.more.iter().map(|(policy, seconds)| (Kind::On(policy), *seconds)));
        }
        tables
    }

    /// Seconds that count.
    #[must_use]
    pub fn measured_seconds(&self, checkpoint_seconds: u64) -> u64 {
        self.window.measured_seconds.max(self.measured_intervals * checkpoint_seconds)
    }
}

/// What was measured, the same for all rows.
#[derive(Clone, Debug, Serialize)]
pub struct Setup {
    /// Which PostgreSQL.
    pub postgresql: String,
    /// The database's size at the start of each row.
    pub database_bytes: u64,
    /// The flash file.
    pub flash_bytes: u64,
    /// The disk's seed, and that of the load.
    pub seed: u64,
    /// How large, and how long.
    #[serde(flatten)]
    pub scale: Scale,
}
