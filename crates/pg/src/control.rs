// SPDX-License-Identifier: MIT OR Apache-2.0
//! `global/pg_control`, in which the server records the state of its data directory.
//!
//! Every start, stop and checkpoint writes it, and so do `pg_resetwal`, `pg_rewind` and `pg_checksums`. A restored data
//! directory has an older one. So if the file is the one that a process with the cache wrote last, no program changed the
//! directory without the cache. Otherwise the cache is dropped.

use std::io;
use std::path::Path;

use crate::area::Mark;
use crate::{commit, content, here, policy};

/// Its path in a data directory.
pub const PATH: &str = "global/pg_control";

/// The states of a server that matter here (`DBState`; the same from 15 to 18).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It made a checkpoint as its last change: it was stopped, or its recovery has ended.
    Stopped,
    /// It was stopped while it recovered, or as a standby.
    StoppedInRecovery,
    /// It makes such a checkpoint.
    Stops,
    /// It recovers from its last checkpoint.
    RecoversFromCrash,
    /// It accepts changes, or did so when it died.
    Runs,
    /// Any other.
    Other,
}

impl State {
    fn of(number: u32) -> Self {
        match number {
            1 => Self::Stopped,
            2 => Self::StoppedInRecovery,
            3 => Self::Stops,
            4 => Self::RecoversFromCrash,
            6 => Self::Runs,
            _ => Self::Other,
        }
    }
}

/// Hash of some bytes, never 0.
#[must_use]
pub fn hash(bytes: &[u8]) -> u64 {
    content::crc(bytes) | 1
}

/// These bytes are about to be written there.
pub fn about_to_be(bytes: &[u8]) -> Control {
    let control = Control::of(bytes).unwrap_or_else(|| Control::unknown(hash(bytes)));
    here::with(|_, pool| pool.area().set(Mark::ControlNext, control.hash));
    commit::control(&control);
    control
}

/// It was written.
pub fn is(control: &Control) {
    here::with(|_, pool| {
        pool.area().set(Mark::Control, control.hash);
        policy::control_is(pool.area(), control);
    });
}

/// The content of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Control {
    /// Hash of all of it.
    pub hash: u64,
    /// Identifies the cluster.
    pub system: u64,
    /// Of the server's catalogs, a part of its directories' names in tablespaces.
    pub catalogs: u32,
    /// The state of the server.
    pub state: State,
    /// The timeline of its last checkpoint.
    pub timeline: u64,
    /// The position in the server's log at which recovery begins; earlier segments may be removed.
    pub redo: u64,
}

impl Control {
    /// Parses its bytes; the first 52 bytes are the same from 11 to 18.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Option<Self> {
        let system = u64::from_le_bytes(bytes.get(..8)?.try_into().ok()?);
        let number = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
        let (catalogs, state, timeline) = (number(12)?, number(16)?, u64::from(number(48)?));
        let redo = u64::from_le_bytes(bytes.get(40..48)?.try_into().ok()?);
        let state = State::of(state);
        Some(Self { hash: hash(bytes), system, catalogs, state, timeline, redo })
    }

    /// One that is too short to be understood: as if it ended all recovery.
    fn unknown(hash: u64) -> Self {
        let state = State::Other;
        Self { hash, system: 0, catalogs: 0, state, timeline: 0, redo: u64::MAX }
    }

    /// Whether the server was stopped cleanly.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        matches!(self.state, State::Stopped | State::StoppedInRecovery)
    }

    /// Reads it.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn read(data: &Path) -> io::Result<Self> {
        let bytes = std::fs::read(data.join(PATH))?;
        Self::of(&bytes)
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "pg_control is too short"))
    }
}
