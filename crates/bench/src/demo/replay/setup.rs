// SPDX-License-Identifier: MIT OR Apache-2.0
//! How the trace is replayed, and on what.

use std::path::PathBuf;

use serde::Serialize;

use crate::demo::window::Window;

/// How the trace is replayed.
#[derive(Clone, Debug, Serialize)]
pub struct Scale {
    /// A trace, see `docs/traces.md`; without, our own.
    #[serde(skip)]
    pub trace: Option<PathBuf>,
    /// Connections.
    pub connections: usize,
    /// Requests that each keeps open. With hundreds of them, a client that sends without reading and
    /// the server could wait for each other.
    pub depth: usize,
    /// A FLUSH follows after so many writes to the log.
    pub flush_every: u64,
    /// How long each row is replayed.
    #[serde(flatten)]
    pub window: Window,
}

impl Default for Scale {
    fn default() -> Self {
        Self {
            trace: None,
            connections: 4,
            depth: 2,
            flush_every: 16,
            window: Window { warm_up_seconds: 12, measured_seconds: 9 },
        }
    }
}

/// What was measured, the same for all rows.
#[derive(Clone, Debug, Serialize)]
pub struct Setup {
    /// The trace.
    pub trace: String,
    /// Its requests.
    pub trace_requests: usize,
    /// Those that write.
    pub trace_writes: usize,
    /// The size of the volume.
    pub volume_bytes: u64,
    /// The part of it that the trace touches.
    pub touched_bytes: u64,
    /// The size of the flash.
    pub flash_bytes: u64,
    /// The model of the slow device.
    pub profile: String,
    /// Its seed.
    pub seed: u64,
    /// Further flags of the row with Larder as it is.
    pub larder_flags: String,
    /// How it was replayed.
    #[serde(flatten)]
    pub scale: Scale,
}
