// SPDX-License-Identifier: MIT OR Apache-2.0
//! `btr`: little-endian records of 24 bytes, usually compressed with zstd.
//!
//! A record is `u64 ts_us | u64 offset | u32 length | u8 op | u8 dev | u16 0`. `op` is 0 for a read, 1 for a write and
//! 2 for unknown, which is replayed as a read.

use std::io::{self, Write};

use crate::error::Place;
use crate::record::{Op, Record};
use crate::source::{Chunks, Decode, Failure, Stream};

/// Bytes of a record.
pub const RECORD_BYTES: usize = 24;

pub(crate) struct Reader(Chunks<RECORD_BYTES>);

impl Reader {
    pub(crate) fn new(stream: Stream) -> Self {
        Self(Chunks::new(stream))
    }
}

impl Decode for Reader {
    fn next(&mut self) -> Result<Option<Record>, Failure> {
        let Some((at_bytes, bytes)) = self.0.next()? else { return Ok(None) };
        decode(&bytes).map(Some).map_err(|what| (Place::Byte(at_bytes), what))
    }
}

pub(crate) fn decode(bytes: &[u8; RECORD_BYTES]) -> Result<Record, String> {
    let mut rest = &bytes[..];
    let ts_us = u64::from_le_bytes(take(&mut rest));
    let offset_bytes = u64::from_le_bytes(take(&mut rest));
    let len_bytes = u32::from_le_bytes(take(&mut rest));
    let [op, dev] = take(&mut rest);
    let reserved = u16::from_le_bytes(take(&mut rest));
    let op = match op {
        0 => Op::Read,
        1 => Op::Write,
        2 => Op::Unknown,
        _ => return Err(format!("op {op}; accepted: 0 (read), 1 (write), 2 (unknown)")),
    };
    if reserved != 0 {
        return Err(format!("the record's last two bytes are {reserved:#06x}; accepted: 0"));
    }
    Record::new(ts_us, dev, op, offset_bytes, u64::from(len_bytes))
}

/// The next `N` bytes; the caller guarantees that they exist.
pub(super) fn take<const N: usize>(rest: &mut &[u8]) -> [u8; N] {
    let (head, tail) = rest.split_at(N);
    *rest = tail;
    let mut bytes = [0; N];
    bytes.copy_from_slice(head);
    bytes
}

pub(crate) fn write(record: &Record, out: &mut dyn Write) -> io::Result<()> {
    out.write_all(&encode(record))
}

pub(crate) fn encode(record: &Record) -> [u8; RECORD_BYTES] {
    let mut bytes = [0; RECORD_BYTES];
    bytes[0..8].copy_from_slice(&record.ts_us.to_le_bytes());
    bytes[8..16].copy_from_slice(&record.offset_bytes.to_le_bytes());
    bytes[16..20].copy_from_slice(&record.len_bytes.to_le_bytes());
    bytes[20] = match record.op {
        Op::Read => 0,
        Op::Write => 1,
        Op::Unknown => 2,
    };
    bytes[21] = record.dev;
    bytes
}
