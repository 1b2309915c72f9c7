// SPDX-License-Identifier: MIT OR Apache-2.0
//! `msr`: the MSR Cambridge traces. CSV without a header, seven fields:
//! `Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime`.
//!
//! Times are in 100 ns since 1601; the reader converts them to microseconds since the first request. `Type` is `Read`
//! or `Write`; offset and size are in bytes. Disks are identified by host and number, and are numbered in the order of
//! their first appearance. Empty requests are skipped.

use crate::dev::Devices;
use crate::fields;
use crate::record::Record;
use crate::source::{Decode, Failure, Lines, Stream};

/// Whether a first line belongs to this format.
pub(crate) fn looks_like(line: &str) -> bool {
    let fields: Vec<&str> = line.split(',').collect();
    fields.len() == 7
        && fields[0].parse::<u64>().is_ok()
        && fields[2].parse::<u64>().is_ok()
        && fields::op(fields[3]).is_ok()
}

pub(crate) struct Reader {
    lines: Lines,
    disks: Devices,
    first: Option<u64>,
}

impl Reader {
    pub(crate) fn new(stream: Stream) -> Self {
        Self { lines: Lines::new(stream), disks: Devices::default(), first: None }
    }
}

impl Decode for Reader {
    fn next(&mut self) -> Result<Option<Record>, Failure> {
        self.lines.record(|line| match line {
            "" => Ok(None),
            _ => request(line, &mut self.disks, &mut self.first),
        })
    }
}

fn request(
    line: &str,
    disks: &mut Devices,
    first: &mut Option<u64>,
) -> Result<Option<Record>, String> {
    let fields: Vec<&str> = line.split(',').map(str::trim).collect();
    let [time, host, disk, op, offset, size, _response] = fields[..] else {
        return Err(format!("{} fields; accepted: the 7 of an MSR trace", fields.len()));
    };
    let time = fields::number("Timestamp", time, 1)?;
    fields::number("DiskNumber", disk, 1)?;
    let op = fields::op(op)?;
    let offset = fields::number("Offset", offset, 1)?;
    let size = fields::number("Size", size, 1)?;
    let dev = disks.number(&format!("{host},{disk}"))?;
    let ts_us = time.saturating_sub(*first.get_or_insert(time)) / 10;
    if size == 0 {
        return Ok(None);
    }
    Record::new(ts_us, dev, op, offset, size).map(Some)
}
