// SPDX-License-Identifier: MIT OR Apache-2.0
//! `blkparse`: the default output of blkparse.
//!
//! One line an event: `major,minor cpu sequence seconds.nanoseconds pid action RWBS sector + sectors [process]`. A
//! request causes several events; the reader takes one kind, Q (queued) unless the user names another. RWBS gives the
//! operation: R reads, W writes; discards, flushes without data and events without sectors are skipped. Devices are
//! numbered in the order of their first appearance. The summary that blkparse prints after the events ends the trace.

use crate::dev::Devices;
use crate::fields::{self, shown};
use crate::record::{Op, Record};
use crate::source::{Decode, Failure, Lines, Stream};

const SECTOR_BYTES: u64 = 512;

/// Whether a first line belongs to this format.
pub(crate) fn looks_like(line: &str) -> bool {
    let mut fields = line.split_ascii_whitespace();
    fields.next().is_some_and(is_device)
        && fields.nth(2).is_some_and(|time| fields::time("", time, 1.0).is_ok())
}

fn is_device(field: &str) -> bool {
    let number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    field.split_once(',').is_some_and(|(major, minor)| number(major) && number(minor))
}

pub(crate) struct Reader {
    lines: Lines,
    devices: Devices,
    event: char,
    ended: bool,
}

impl Reader {
    pub(crate) fn new(stream: Stream, event: char) -> Self {
        Self { lines: Lines::new(stream), devices: Devices::default(), event, ended: false }
    }
}

impl Decode for Reader {
    fn next(&mut self) -> Result<Option<Record>, Failure> {
        while !self.ended
            && let Some(line) = self.lines.next()?
        {
            let start = line.trim_start();
            if start.is_empty() || start.starts_with("Input file ") {
                continue;
            }
            if start.starts_with("CPU") || start.starts_with("Total ") {
                self.ended = true;
                break;
            }
            match event(start, self.event, &mut self.devices) {
                Ok(None) => {}
                Ok(found) => return Ok(found),
                Err(what) => return Err((self.lines.place(), what)),
            }
        }
        Ok(None)
    }
}

fn event(line: &str, wanted: char, devices: &mut Devices) -> Result<Option<Record>, String> {
    let mut fields = line.split_ascii_whitespace();
    let mut next = |name: &str| {
        let missing = || format!("has no {name}; accepted: a line of blkparse's default output");
        fields.next().ok_or_else(missing)
    };
    let device = next("device")?;
    if !is_device(device) {
        let device = shown(device);
        return Err(format!(
            "{device} is not a device; accepted: MAJOR,MINOR or the final summary"
        ));
    }
    fields::number("cpu", next("cpu")?, 1)?;
    fields::number("sequence", next("sequence number")?, 1)?;
    let ts_us = fields::time("time", next("time")?, 1e6)?;
    next("process id")?;
    let action = next("action")?;
    if action.chars().ne([wanted]) {
        return Ok(None);
    }
    let rwbs = next("RWBS")?;
    // A leading F is a flush before the data.
    let op = match rwbs.trim_start_matches('F').chars().next() {
        Some('R') => Op::Read,
        Some('W') => Op::Write,
        Some('D' | 'N' | 'S' | 'Z') | None => return Ok(None),
        Some(_) => {
            return Err(format!("RWBS {}; accepted: R, W, D, F, N and more letters", shown(rwbs)));
        }
    };
    let Some(sector) = fields.next().filter(|field| !field.starts_with('[')) else {
        return Ok(None);
    };
    let offset = fields::number("sector", sector, SECTOR_BYTES)?;
    let (plus, sectors) = (fields.next(), fields.next());
    let (Some("+"), Some(sectors)) = (plus, sectors) else {
        return Err("has no '+ SECTORS' after the sector; accepted: SECTOR + SECTORS".to_owned());
    };
    let len = fields::number("sectors", sectors, SECTOR_BYTES)?;
    let dev = devices.number(device)?;
    if len == 0 {
        return Ok(None);
    }
    Record::new(ts_us, dev, op, offset, len).map(Some)
}
