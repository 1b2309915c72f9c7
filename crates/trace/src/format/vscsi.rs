// SPDX-License-Identifier: MIT OR Apache-2.0
//! `vscsi`: binary records of VMware's vscsi traces, little-endian, in two versions.
//!
//! Version 1, 32 bytes: `u32 sn | u32 length | u32 nsg | u16 cmd | u16 ver | u64 sector | u64 ts_us`.
//!
//! Version 2, 40 bytes: `u16 cmd | u16 ver | u32 sn | u32 length | u32 nsg | u64 sector | u64 ts_us | u64 response_us`.
//!
//! The upper byte of `ver` is the version. A file has one version, which its first records state. `cmd` is the SCSI
//! operation code; commands that neither read nor write and empty requests are skipped. A sector has 512 bytes.

use super::btr::take;
use crate::error::Place;
use crate::record::{Op, Record};
use crate::source::{Chunks, Decode, Failure, Stream};

const SECTOR_BYTES: u64 = 512;
const V1_BYTES: usize = 32;
const V2_BYTES: usize = 40;

/// The version, according to the first two records (or one, if there is only one).
pub(crate) fn version(head: &[u8]) -> Option<u8> {
    let all = |record_bytes: usize, at: usize, version: u8| {
        let mut records = head.chunks_exact(record_bytes).take(2).peekable();
        let found = records.peek().is_some();
        found && records.all(|record| record[at] == version)
    };
    if all(V2_BYTES, 3, 2) {
        Some(2)
    } else if all(V1_BYTES, 15, 1) {
        Some(1)
    } else {
        None
    }
}

/// A record's fields, of either version.
struct Fields {
    cmd: u16,
    ver: u16,
    len_bytes: u32,
    sector: u64,
    ts_us: u64,
}

/// Version 1.
pub(crate) struct V1(Chunks<V1_BYTES>);

impl V1 {
    pub(crate) fn new(stream: Stream) -> Self {
        Self(Chunks::new(stream))
    }
}

impl Decode for V1 {
    fn next(&mut self) -> Result<Option<Record>, Failure> {
        while let Some((at_bytes, bytes)) = self.0.next()? {
            let mut rest = &bytes[4..];
            let len_bytes = u32::from_le_bytes(take(&mut rest));
            let _nsg = u32::from_le_bytes(take(&mut rest));
            let cmd = u16::from_le_bytes(take(&mut rest));
            let ver = u16::from_le_bytes(take(&mut rest));
            let sector = u64::from_le_bytes(take(&mut rest));
            let ts_us = u64::from_le_bytes(take(&mut rest));
            let fields = Fields { cmd, ver, len_bytes, sector, ts_us };
            let record = fields.record(1).map_err(|what| (Place::Byte(at_bytes), what))?;
            if record.is_some() {
                return Ok(record);
            }
        }
        Ok(None)
    }
}

/// Version 2.
pub(crate) struct V2(Chunks<V2_BYTES>);

impl V2 {
    pub(crate) fn new(stream: Stream) -> Self {
        Self(Chunks::new(stream))
    }
}

impl Decode for V2 {
    fn next(&mut self) -> Result<Option<Record>, Failure> {
        while let Some((at_bytes, bytes)) = self.0.next()? {
            let mut rest = &bytes[..];
            let cmd = u16::from_le_bytes(take(&mut rest));
            let ver = u16::from_le_bytes(take(&mut rest));
            let _sn = u32::from_le_bytes(take(&mut rest));
            let len_bytes = u32::from_le_bytes(take(&mut rest));
            let _nsg = u32::from_le_bytes(take(&mut rest));
            let sector = u64::from_le_bytes(take(&mut rest));
            let ts_us = u64::from_le_bytes(take(&mut rest));
            let fields = Fields { cmd, ver, len_bytes, sector, ts_us };
            let record = fields.record(2).map_err(|what| (Place::Byte(at_bytes), what))?;
            if record.is_some() {
                return Ok(record);
            }
        }
        Ok(None)
    }
}

impl Fields {
    fn record(&self, version: u16) -> Result<Option<Record>, String> {
        if self.ver >> 8 != version {
            return Err(format!("ver {:#06x}; accepted: {version} in the upper byte", self.ver));
        }
        // READ and WRITE of 6, 10, 12 and 16 bytes.
        let op = match self.cmd {
            0x08 | 0x28 | 0xa8 | 0x88 => Op::Read,
            0x0a | 0x2a | 0xaa | 0x8a => Op::Write,
            0..=0xff => return Ok(None),
            cmd => return Err(format!("cmd {cmd:#06x}; accepted: a SCSI code of one byte")),
        };
        if self.len_bytes == 0 {
            return Ok(None);
        }
        let Some(offset_bytes) = self.sector.checked_mul(SECTOR_BYTES) else {
            return Err(format!("sector {}; accepted: below 2^35", self.sector));
        };
        Record::new(self.ts_us, 0, op, offset_bytes, u64::from(self.len_bytes)).map(Some)
    }
}
