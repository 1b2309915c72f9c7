// SPDX-License-Identifier: MIT OR Apache-2.0
//! `oracleGeneral` of libCacheSim: little-endian records of 24 bytes, `u32 ts_seconds | u64 object | u32 size | i64
//! next`.
//!
//! An object is a page: `object` is the page's number over all devices, `dev << 32 | page`, the numbers of
//! [`Record::pages`]. The reader ignores `size` and `next` (the number of the next request for the object). The writer
//! writes one record for every page of a request, with `next` as -1 ("never"), because computing it takes memory as
//! large as the trace.
//!
//! Why not accept other numbers, such as hashes of names: they are no offsets on a device.

use std::io::{self, Write};

use super::btr::take;
use crate::error::Place;
use crate::record::{Op, PAGE_BYTES, Record};
use crate::source::{Chunks, Decode, Failure, Stream};

const RECORD_BYTES: usize = 24;

pub(crate) struct Reader(Chunks<RECORD_BYTES>);

impl Reader {
    pub(crate) fn new(stream: Stream) -> Self {
        Self(Chunks::new(stream))
    }
}

impl Decode for Reader {
    #[inline]
    fn next(&mut self) -> Result<Option<Record>, Failure> {
        let Some((at_bytes, bytes)) = self.0.next()? else { return Ok(None) };
        let mut rest = &bytes[..];
        let seconds = u32::from_le_bytes(take(&mut rest));
        let object = u64::from_le_bytes(take(&mut rest));
        let Ok(dev) = u8::try_from(object >> 32) else {
            let what = format!("object {object}; accepted: numbers of pages, below 2^40");
            return Err((Place::Byte(at_bytes), what));
        };
        let ts_us = u64::from(seconds) * 1_000_000;
        let offset_bytes = (object & u64::from(u32::MAX)) * PAGE_BYTES;
        let len_bytes = PAGE_BYTES as u32;
        Ok(Some(Record { ts_us, offset_bytes, len_bytes, op: Op::Unknown, dev }))
    }
}

pub(crate) fn write(record: &Record, out: &mut dyn Write) -> io::Result<()> {
    let seconds = u32::try_from(record.ts_us / 1_000_000).map_err(|_| {
        io::Error::other(
            "a time exceeds what oracleGeneral can store; accepted: less than 2^32 seconds",
        )
    })?;
    for page in record.pages() {
        let mut bytes = [0; RECORD_BYTES];
        bytes[0..4].copy_from_slice(&seconds.to_le_bytes());
        bytes[4..12].copy_from_slice(&page.to_le_bytes());
        bytes[12..16].copy_from_slice(&(PAGE_BYTES as u32).to_le_bytes());
        bytes[16..24].copy_from_slice(&(-1_i64).to_le_bytes());
        out.write_all(&bytes)?;
    }
    Ok(())
}
