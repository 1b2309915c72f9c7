// SPDX-License-Identifier: MIT OR Apache-2.0
//! `global/pg_control`, in which the server records the state of its data directory.
//!
//! Every start, stop and checkpoint writes it, and so do `pg_resetwal`, `pg_rewind` and `pg_checksums`. A restored data
//! directory has an older one. So if the file is the one that a process with the cache wrote last, no program changed the
//! directory without the cache. Otherwise the cache is dropped.

use std::io;
use std::path::Path;

use crate::area::Mark;
use crate::{commit, content, here};

/// Its path in a data directory.
pub const PATH: &str = "global/pg_control";
/// The states of a server after a clean stop, and of a standby after a clean stop.
const SHUT_DOWN: [u32; 2] = [1, 2];

/// Hash of some bytes, never 0.
#[must_use]
pub fn hash(bytes: &[u8]) -> u64 {
    content::crc(bytes) | 1
}

/// These bytes are about to be written there.
pub fn about_to_be(bytes: &[u8]) {
    here::with(|_, pool| pool.area().set(Mark::ControlNext, hash(bytes)));
    commit::control(hash(bytes));
}

/// The bytes were written, or the write failed.
pub fn is(written: bool) {
    if written {
        here::with(|_, pool| pool.area().set(Mark::Control, pool.area().get(Mark::ControlNext)));
    }
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
    /// Whether the server was stopped cleanly.
    pub shut_down: bool,
    /// The position in the server's log at which recovery begins; earlier segments may be removed.
    pub redo: u64,
}

impl Control {
    /// Parses its bytes; the first 48 bytes are the same from 11 to 18.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Option<Self> {
        let system = u64::from_le_bytes(bytes.get(..8)?.try_into().ok()?);
        let number = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
        let (catalogs, state) = (number(12)?, number(16)?);
        let redo = u64::from_le_bytes(bytes.get(40..48)?.try_into().ok()?);
        let shut_down = SHUT_DOWN.contains(&state);
        Some(Self { hash: hash(bytes), system, catalogs, shut_down, redo })
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
