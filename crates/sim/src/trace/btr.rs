// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads block traces in the format `btr.zst`.
//!
//! Purpose: a zstd stream of little-endian records of 24 bytes,
//! `u64 ts_us | u64 offset | u32 length | u8 op | u8 dev | u16 0`, one after the other and
//! checked. `op` is 0 for a read, 1 for a write and 2 for unknown, which is replayed as a read.
//!
//! Invariants: memory does not grow with the trace; a record is either lawful or ends the reading
//! with one line that says what, at which byte of the decompressed stream, and what is accepted.
//! After an error nothing more is yielded. Timestamps may go back: traces from several threads do.
//!
//! Why not all at once: other traces of this format are larger than memory.

use std::fmt;
use std::io::{self, BufRead, BufReader, Read};

/// Bytes of a record.
pub const RECORD_BYTES: usize = 24;
/// A device's last byte lies below this, since page numbers hold the device above it.
pub const DEVICE_BYTES: u64 = 1 << 44;

/// What a request did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// It read.
    Read,
    /// It wrote.
    Write,
    /// The trace does not say.
    Unknown,
}

/// A request of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// When it was issued; 0 in a trace without times.
    pub ts_us: u64,
    /// Its first byte on its device.
    pub offset_bytes: u64,
    /// Its length, never zero.
    pub len_bytes: u32,
    /// What it did.
    pub op: Op,
    /// Its device.
    pub dev: u8,
}

impl Record {
    /// The first byte behind it; cannot overflow, since the reader checks it.
    #[must_use]
    pub fn end_bytes(&self) -> u64 {
        self.offset_bytes + u64::from(self.len_bytes)
    }

    /// Understands the bytes of a record.
    ///
    /// # Errors
    /// What is wrong and what is accepted.
    pub fn decode(bytes: &[u8; RECORD_BYTES]) -> Result<Self, String> {
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
            _ => return Err(format!("op {op}; accepted are 0 (read), 1 (write), 2 (unknown)")),
        };
        if reserved != 0 {
            return Err(format!("the last two bytes are {reserved:#06x}; accepted is 0"));
        }
        let end_bytes = offset_bytes.checked_add(u64::from(len_bytes));
        if len_bytes == 0 || end_bytes.is_none_or(|end| end > DEVICE_BYTES) {
            return Err(format!(
                "{len_bytes} bytes at offset {offset_bytes}; accepted is at least one byte, \
                 ending at 16 TiB or before"
            ));
        }
        Ok(Self { ts_us, offset_bytes, len_bytes, op, dev })
    }
}

/// The next `N` bytes; the caller knows that they are there.
fn take<const N: usize>(rest: &mut &[u8]) -> [u8; N] {
    let (head, tail) = rest.split_at(N);
    *rest = tail;
    let mut bytes = [0; N];
    bytes.copy_from_slice(head);
    bytes
}

/// Why a trace cannot be read on.
#[derive(Debug)]
pub enum TraceError {
    /// The file or its compression.
    Stream {
        /// So many decompressed bytes were read before.
        at_bytes: u64,
        /// What the system or zstd says.
        error: io::Error,
    },
    /// It ends within a record.
    Truncated {
        /// Where the record begins in the decompressed stream.
        at_bytes: u64,
        /// So much of it is there.
        found_bytes: usize,
    },
    /// A record is not lawful.
    Malformed {
        /// Where it begins in the decompressed stream.
        at_bytes: u64,
        /// What is wrong and what is accepted.
        what: String,
    },
}

impl fmt::Display for TraceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stream { at_bytes, error } => {
                write!(f, "cannot be decompressed at byte {at_bytes}: {error}; accepted is zstd")
            }
            Self::Truncated { at_bytes, found_bytes } => write!(
                f,
                "the record at byte {at_bytes} ends after {found_bytes} bytes; accepted are \
                 whole records of {RECORD_BYTES} bytes"
            ),
            Self::Malformed { at_bytes, what } => {
                write!(f, "the record at byte {at_bytes}: {what}")
            }
        }
    }
}

impl std::error::Error for TraceError {}

/// The records of a trace, in order.
pub struct TraceReader<R: BufRead> {
    stream: BufReader<zstd::Decoder<'static, R>>,
    at_bytes: u64,
    ended: bool,
}

impl<R: Read> TraceReader<BufReader<R>> {
    /// Reads the compressed trace from `source`.
    ///
    /// # Errors
    /// The decompressor cannot be made.
    pub fn new(source: R) -> Result<Self, TraceError> {
        let decoder = zstd::Decoder::new(source)
            .map_err(|error| TraceError::Stream { at_bytes: 0, error })?;
        let stream = BufReader::with_capacity(RECORD_BYTES << 12, decoder);
        Ok(Self { stream, at_bytes: 0, ended: false })
    }
}

impl<R: BufRead> TraceReader<R> {
    fn read(&mut self) -> Result<Option<Record>, TraceError> {
        let at_bytes = self.at_bytes;
        let mut bytes = [0; RECORD_BYTES];
        let mut found_bytes = 0;
        while found_bytes < RECORD_BYTES {
            match self.stream.read(&mut bytes[found_bytes..]) {
                Ok(0) if found_bytes == 0 => return Ok(None),
                Ok(0) => return Err(TraceError::Truncated { at_bytes, found_bytes }),
                Ok(n) => found_bytes += n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(TraceError::Stream { at_bytes, error }),
            }
        }
        self.at_bytes += RECORD_BYTES as u64;
        let malformed = |what| TraceError::Malformed { at_bytes, what };
        Record::decode(&bytes).map(Some).map_err(malformed)
    }
}

impl<R: BufRead> Iterator for TraceReader<R> {
    type Item = Result<Record, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let item = self.read().transpose();
        self.ended = !matches!(item, Some(Ok(_)));
        item
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(offset_bytes: u64, len_bytes: u32, op: u8, dev: u8, reserved: u16) -> Vec<u8> {
        let mut bytes = 7_u64.to_le_bytes().to_vec();
        bytes.extend(offset_bytes.to_le_bytes());
        bytes.extend(len_bytes.to_le_bytes());
        bytes.extend([op, dev]);
        bytes.extend(reserved.to_le_bytes());
        bytes
    }

    fn read(bytes: &[u8]) -> Vec<Result<Record, String>> {
        let packed = zstd::encode_all(bytes, 1).unwrap();
        let reader = TraceReader::new(&packed[..]).unwrap();
        reader.map(|r| r.map_err(|e| e.to_string())).collect()
    }

    #[test]
    fn records_come_out_as_they_went_in() {
        let bytes = [record(8192, 4096, 1, 3, 0), record(512, 1, 0, 0, 0), record(0, 9, 2, 1, 0)];
        let read = read(&bytes.concat());
        let expected = |offset_bytes, len_bytes, op, dev| {
            Ok(Record { ts_us: 7, offset_bytes, len_bytes, op, dev })
        };
        assert_eq!(
            read,
            [
                expected(8192, 4096, Op::Write, 3),
                expected(512, 1, Op::Read, 0),
                expected(0, 9, Op::Unknown, 1)
            ]
        );
    }

    #[test]
    fn what_is_malformed_ends_the_reading_with_its_place() {
        for (bad, why) in [
            (record(0, 0, 0, 0, 0), "at least one byte"),
            (record(u64::MAX, 1, 0, 0, 0), "16 TiB"),
            (record(DEVICE_BYTES, 1, 0, 0, 0), "16 TiB"),
            (record(0, 1, 3, 0, 0), "op 3"),
            (record(0, 1, 0, 0, 5), "0x0005"),
            (record(0, 1, 0, 0, 0)[..23].to_vec(), "after 23 bytes"),
        ] {
            let good = record(0, 1, 0, 0, 0);
            let cut = bad.len() < RECORD_BYTES;
            let tail = if cut { Vec::new() } else { good.clone() };
            let read = read(&[good, bad, tail].concat());
            assert_eq!(read.len(), 2, "{why}");
            let line = read[1].as_ref().unwrap_err();
            let whole = line.contains("byte 24") && line.contains("accepted");
            assert!(whole && line.contains(why) && !line.contains('\n'), "{line}");
        }
    }

    #[test]
    fn what_is_not_zstd_or_cut_short_is_refused() {
        let packed = zstd::encode_all(&record(0, 1, 0, 0, 0).repeat(100)[..], 1).unwrap();
        for bytes in [&b"not a trace at all"[..], &packed[..packed.len() - 3]] {
            let last = TraceReader::new(bytes).unwrap().last().unwrap();
            assert!(last.unwrap_err().to_string().contains("accepted is zstd"));
        }
    }
}
