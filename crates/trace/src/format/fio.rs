// SPDX-License-Identifier: MIT OR Apache-2.0
//! `fio`: the iolog of fio, versions 2 and 3.
//!
//! The first line is `fio version N iolog`. Each further line is an action: `FILE ACTION` with `add`, `open` or
//! `close`, or `FILE ACTION OFFSET LENGTH` with `read` or `write`; `trim`, `sync` and `datasync` are skipped. In
//! version 3 a line begins with the microseconds since the start; version 2 has `FILE wait MICROSECONDS` instead. Files
//! are devices, numbered in the order of their `add`. The writer writes version 3.

use std::io::{self, Write};

use crate::dev::Devices;
use crate::fields::{self, shown};
use crate::record::{Op, Record};
use crate::source::{Decode, Failure, Lines, Stream};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Version {
    Two,
    Three,
}

pub(crate) struct Reader {
    lines: Lines,
    version: Option<Version>,
    files: Devices,
    waited_us: u64,
}

impl Reader {
    pub(crate) fn new(stream: Stream) -> Self {
        let (lines, files) = (Lines::new(stream), Devices::default());
        Self { lines, version: None, files, waited_us: 0 }
    }

    fn version(&mut self) -> Result<Option<Version>, Failure> {
        if self.version.is_none() {
            self.version = match self.lines.next()? {
                None => None,
                Some("fio version 2 iolog") => Some(Version::Two),
                Some("fio version 3 iolog") => Some(Version::Three),
                Some(other) => {
                    let what = format!(
                        "begins with {}; accepted: 'fio version 2 iolog' or 3",
                        shown(other)
                    );
                    return Err((self.lines.place(), what));
                }
            };
        }
        Ok(self.version)
    }
}

impl Decode for Reader {
    fn next(&mut self) -> Result<Option<Record>, Failure> {
        let Some(version) = self.version()? else { return Ok(None) };
        self.lines.record(|line| match line.trim() {
            "" => Ok(None),
            _ => action(line, version, &mut self.files, &mut self.waited_us),
        })
    }
}

fn action(
    line: &str,
    version: Version,
    files: &mut Devices,
    waited_us: &mut u64,
) -> Result<Option<Record>, String> {
    let mut fields = line.split_ascii_whitespace();
    let ts_us = match version {
        Version::Two => *waited_us,
        Version::Three => fields::number("time", fields.next().unwrap_or_default(), 1)?,
    };
    let (file, action) = (fields.next().unwrap_or_default(), fields.next().unwrap_or_default());
    let mut number = |name| fields::number(name, fields.next().unwrap_or_default(), 1);
    let op = match action {
        "read" => Op::Read,
        "write" => Op::Write,
        "add" => {
            files.number(file)?;
            return Ok(None);
        }
        "open" | "close" | "sync" | "datasync" | "trim" => return Ok(None),
        "wait" if version == Version::Two => {
            *waited_us = waited_us.saturating_add(number("microseconds")?);
            return Ok(None);
        }
        other => {
            return Err(format!(
                "action {} is unknown; accepted: add, open, close, read, write, trim, sync, \
                 datasync, and wait in version 2",
                shown(other)
            ));
        }
    };
    let (offset, len) = (number("offset")?, number("length")?);
    let Some(dev) = files.known(file) else {
        return Err(format!("file {} was not added; accepted: 'FILE add' before", shown(file)));
    };
    if len == 0 {
        return Ok(None);
    }
    Record::new(ts_us, dev, op, offset, len).map(Some)
}

/// State of the writer.
#[derive(Default)]
pub(crate) struct State {
    begun: bool,
    added: u16,
}

/// Writes the first line; called also for a trace without requests.
pub(crate) fn begin(state: &mut State, out: &mut dyn Write) -> io::Result<()> {
    if !std::mem::replace(&mut state.begun, true) {
        writeln!(out, "fio version 3 iolog")?;
    }
    Ok(())
}

pub(crate) fn write(record: &Record, state: &mut State, out: &mut dyn Write) -> io::Result<()> {
    begin(state, out)?;
    let Record { ts_us, offset_bytes, len_bytes, op, dev } = record;
    // Adds all files up to this one, so that a reader assigns the same numbers.
    while state.added <= u16::from(*dev) {
        writeln!(out, "{ts_us} dev{0} add\n{ts_us} dev{0} open", state.added)?;
        state.added += 1;
    }
    let action = if *op == Op::Write { "write" } else { "read" };
    writeln!(out, "{ts_us} dev{dev} {action} {offset_bytes} {len_bytes}")
}
