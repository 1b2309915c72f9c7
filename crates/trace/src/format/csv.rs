// SPDX-License-Identifier: MIT OR Apache-2.0
//! `csv`: a header, then one line a request. Fields are separated by commas, semicolons or tabs and contain none
//! themselves.
//!
//! The user names the columns ([`Columns`]), or the reader recognises well-known names, which also imply the unit. Only
//! the offset is required. Without a length a request has one page, without an operation it is unknown, without a
//! device it has device 0. An operation is a word, because numbers for reads and writes differ between programs. Empty
//! requests are skipped.

use std::io::{self, Write};
use std::str::FromStr;

use crate::dev::Devices;
use crate::error::Place;
use crate::fields::{self, shown};
use crate::record::{Op, PAGE_BYTES, Record};
use crate::source::{Decode, Failure, Lines, Stream};

const HEADER: &str = "ts_us,dev,op,offset_bytes,length_bytes";

/// Well-known names with their unit in microseconds.
const TIMES: &[(&str, f64)] = &[
    ("ts_us", 1.0),
    ("time_us", 1.0),
    ("timestamp_us", 1.0),
    ("ts_ns", 1e-3),
    ("time_ns", 1e-3),
    ("timestamp_ns", 1e-3),
    ("ts_ms", 1e3),
    ("time_ms", 1e3),
    ("timestamp_ms", 1e3),
    ("ts_s", 1e6),
    ("time_s", 1e6),
    ("timestamp_s", 1e6),
    ("time_seconds", 1e6),
];
/// Well-known names of offsets with their unit in bytes.
const OFFSETS: &[(&str, u64)] = &[
    ("offset_bytes", 1),
    ("offset", 1),
    ("byte_offset", 1),
    ("sector", 512),
    ("lba", 512),
    ("lbn", 512),
    ("page", PAGE_BYTES),
    ("page_id", PAGE_BYTES),
];
/// Well-known names of lengths with their unit in bytes.
const LENGTHS: &[(&str, u64)] = &[
    ("length_bytes", 1),
    ("len_bytes", 1),
    ("size_bytes", 1),
    ("length", 1),
    ("len", 1),
    ("size", 1),
    ("bytes", 1),
    ("sectors", 512),
    ("pages", PAGE_BYTES),
];
const OPS: &[&str] = &["op", "operation", "type", "rw", "rwbs", "opcode"];
const DEVICES: &[&str] = &["dev", "device", "disk", "volume"];

/// A column by its name, with the unit of its values.
type Named<T> = Option<(String, T)>;

/// Columns named by the user: `time=COLUMN:us,offset=COLUMN:512,length=COLUMN:1,op=COLUMN,dev=COLUMN`. Units of time
/// are s, ms, us and ns; units of offset and length are bytes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Columns {
    time: Named<f64>,
    offset: Named<u64>,
    length: Named<u64>,
    op: Named<()>,
    dev: Named<()>,
    /// The user's text.
    text: String,
}

impl Columns {
    /// The user's text; empty by default.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }
}

impl FromStr for Columns {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut columns = Self { text: text.to_owned(), ..Self::default() };
        for part in text.split(',') {
            let wrong = || {
                format!(
                    "column {} cannot be parsed; accepted: time=NAME:UNIT (s, ms, us, ns), \
                     offset=NAME:BYTES, length=NAME:BYTES, op=NAME, dev=NAME",
                    shown(part)
                )
            };
            let (role, column) = part.split_once('=').ok_or_else(wrong)?;
            let unit = column.rsplit_once(':');
            let in_bytes = || {
                let (name, unit) = unit?;
                let unit = unit.parse::<u64>().ok().filter(|n| (1..=1 << 30).contains(n))?;
                Some((name.to_owned(), unit))
            };
            let in_time = || {
                let (name, unit) = unit?;
                let units = [("s", 1e6), ("ms", 1e3), ("us", 1.0), ("ns", 1e-3)];
                let (_, unit) = units.into_iter().find(|(known, _)| *known == unit)?;
                Some((name.to_owned(), unit))
            };
            match role.trim() {
                "time" => columns.time = Some(in_time().ok_or_else(wrong)?),
                "offset" => columns.offset = Some(in_bytes().ok_or_else(wrong)?),
                "length" => columns.length = Some(in_bytes().ok_or_else(wrong)?),
                "op" => columns.op = Some((column.to_owned(), ())),
                "dev" => columns.dev = Some((column.to_owned(), ())),
                _ => return Err(wrong()),
            }
        }
        Ok(columns)
    }
}

/// Whether a first line is a header of this format.
pub(crate) fn looks_like(line: &str) -> bool {
    Layout::find(line, &Columns::default()).is_ok()
}

/// The index and unit of each field.
struct Layout {
    separator: char,
    time: Option<(usize, f64)>,
    offset: (usize, u64),
    length: Option<(usize, u64)>,
    op: Option<usize>,
    dev: Option<usize>,
    /// The largest index: a line needs more fields than this.
    last: usize,
}

fn bare(field: &str) -> &str {
    field.trim().trim_matches('"')
}

/// Finds a column: the user's, or else the first well-known one.
fn find<T: Copy>(
    header: &[&str],
    named: &Named<T>,
    known: &[(&str, T)],
) -> Result<Option<(usize, T)>, String> {
    let at = |name: &str| header.iter().position(|column| column.eq_ignore_ascii_case(name));
    let Some((name, unit)) = named else {
        return Ok(known.iter().find_map(|(name, unit)| Some((at(name)?, *unit))));
    };
    match at(name) {
        Some(at) => Ok(Some((at, *unit))),
        None => Err(format!(
            "the header has no column {}; accepted: one of {}",
            shown(name),
            header.join(", ")
        )),
    }
}

impl Layout {
    fn find(line: &str, columns: &Columns) -> Result<Self, String> {
        let line = line.trim_start_matches('\u{feff}');
        let separator = [',', ';', '\t'].into_iter().find(|c| line.contains(*c)).unwrap_or(',');
        let header: Vec<&str> = line.split(separator).map(bare).collect();
        let words = |names: &[&'static str]| names.iter().map(|n| (*n, ())).collect::<Vec<_>>();
        let place = |found: Option<(usize, ())>| found.map(|(at, ())| at);
        let time = find(&header, &columns.time, TIMES)?;
        let length = find(&header, &columns.length, LENGTHS)?;
        let op = place(find(&header, &columns.op, &words(OPS))?);
        let dev = place(find(&header, &columns.dev, &words(DEVICES))?);
        let Some(offset) = find(&header, &columns.offset, OFFSETS)? else {
            let names: Vec<&str> = OFFSETS.iter().map(|(name, _)| *name).collect();
            return Err(format!(
                "the header has no column for the offset; accepted: a column {}, or --columns offset=NAME:BYTES",
                names.join(", ")
            ));
        };
        let places = [Some(offset.0), time.map(|t| t.0), length.map(|l| l.0), op, dev];
        let last = places.into_iter().flatten().max().unwrap_or(0);
        Ok(Self { separator, time, offset, length, op, dev, last })
    }
}

pub(crate) struct Reader {
    lines: Lines,
    columns: Columns,
    layout: Option<Layout>,
    devices: DeviceColumn,
}

/// Either all devices are numbers and keep their value, so that a written trace reads back equal, or all are names,
/// numbered in the order of their first appearance. The first device decides.
#[derive(Default)]
enum DeviceColumn {
    #[default]
    New,
    Numbers,
    Names(Devices),
}

impl DeviceColumn {
    fn number(&mut self, field: &str) -> Result<u8, String> {
        if matches!(self, Self::New) {
            *self = match field.parse::<u8>() {
                Ok(_) => Self::Numbers,
                Err(_) => Self::Names(Devices::default()),
            };
        }
        match self {
            Self::Names(names) => names.number(field),
            _ => field.parse().map_err(|_| {
                format!(
                    "device {}; accepted: 0 to 255, because the first device is a number",
                    shown(field)
                )
            }),
        }
    }
}

impl Reader {
    pub(crate) fn new(stream: Stream, columns: Columns) -> Self {
        Self { lines: Lines::new(stream), columns, layout: None, devices: DeviceColumn::default() }
    }
}

impl Decode for Reader {
    fn next(&mut self) -> Result<Option<Record>, Failure> {
        let layout = if let Some(layout) = &self.layout {
            layout
        } else {
            let Some(header) = self.lines.next()? else { return Ok(None) };
            let layout = Layout::find(header, &self.columns);
            self.layout.insert(layout.map_err(|what| (Place::Line(1), what))?)
        };
        self.lines.record(|line| match line.trim() {
            "" => Ok(None),
            _ => request(line, layout, &mut self.devices),
        })
    }
}

fn request(
    line: &str,
    layout: &Layout,
    devices: &mut DeviceColumn,
) -> Result<Option<Record>, String> {
    let fields: Vec<&str> = line.split(layout.separator).map(bare).collect();
    if fields.len() <= layout.last {
        let (has, need) = (fields.len(), layout.last + 1);
        return Err(format!("{has} fields; accepted: at least {need}, by the header"));
    }
    let ts_us = layout.time.map(|(at, unit)| fields::time("time", fields[at], unit)).transpose()?;
    let offset = fields::number("offset", fields[layout.offset.0], layout.offset.1)?;
    let length = layout.length.map(|(at, unit)| fields::number("length", fields[at], unit));
    let length = length.transpose()?.unwrap_or(PAGE_BYTES);
    let op = layout.op.map_or(Ok(Op::Unknown), |at| fields::op(fields[at]))?;
    let dev = layout.dev.map_or(Ok(0), |at| devices.number(fields[at]))?;
    if length == 0 {
        return Ok(None);
    }
    Record::new(ts_us.unwrap_or(0), dev, op, offset, length).map(Some)
}

/// Writes the header.
pub(crate) fn begin(out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "{HEADER}")
}

pub(crate) fn write(record: &Record, out: &mut dyn Write) -> io::Result<()> {
    let Record { ts_us, offset_bytes, len_bytes, op, dev } = record;
    let op = match op {
        Op::Read => "read",
        Op::Write => "write",
        Op::Unknown => "unknown",
    };
    writeln!(out, "{ts_us},{dev},{op},{offset_bytes},{len_bytes}")
}
