// SPDX-License-Identifier: MIT OR Apache-2.0
//! Properties of the running server: version, sizes, shared buffers, data directory.

use std::path::Path;

use crate::control::Control;
use crate::server;

/// See the module.
pub struct Instance {
    /// Its major version.
    pub version: u64,
    /// Bytes of a page.
    pub page_bytes: u64,
    /// Blocks of a segment.
    pub segment_blocks: u64,
    /// Bytes of a segment of its log.
    pub wal_segment_bytes: u64,
    /// First byte of shared buffers.
    pub buffers: usize,
    /// Frames of shared buffers.
    pub frames: usize,
    /// The data directory.
    pub data: String,
    /// Its `pg_control`.
    pub control: Control,
}

impl Instance {
    /// The running server; none if its version is not known.
    #[must_use]
    pub fn look() -> Option<Self> {
        let (buffers, frames) = server::buffers()?;
        let data = server::data()?;
        let control = Control::read(Path::new(&data)).ok()?;
        Some(Self {
            version: server::version()?,
            page_bytes: server::number("block_size")?,
            segment_blocks: server::number("segment_size")?,
            wal_segment_bytes: server::number("wal_segment_size")?,
            buffers,
            frames,
            data,
            control,
        })
    }

    /// The server's directory in a tablespace.
    #[must_use]
    pub fn tablespace_version(&self) -> String {
        format!("PG_{}_{}", self.version, self.control.catalogs)
    }
}
