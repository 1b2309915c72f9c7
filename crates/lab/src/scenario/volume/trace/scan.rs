// SPDX-License-Identifier: MIT OR Apache-2.0
//! The first pass over a trace: what the second has to know, and the second pass's requests.

use larder_core::buf::SECTOR;
use larder_core::config::UNIT_BYTES_MOST;
use larder_core::exec::Nanos;
use larder_trace::{Extents, Op, Packed, Record, TraceError};

use crate::hits::units::Units;
use crate::load::desktop::Ask;
use crate::load::replay::Due;
use crate::load::trace::named::Requests;

use super::source::Source;

/// What the second pass has to know.
pub(super) struct Scan {
    pub(super) packed: Packed,
    pub(super) requests: u64,
    /// Different pages and different units, where they were to be counted.
    pub(super) pages: u64,
    pub(super) units: u64,
    first_us: u64,
    last_us: u64,
}

impl Scan {
    /// Reads the first `most` requests; counts pages, and units of so many bytes if asked for.
    pub(super) fn of(
        source: &Source,
        most: u64,
        unit_bytes: Option<u64>,
    ) -> Result<Self, TraceError> {
        // Whatever the unit is, devices share none and lie where they lay with another.
        let mut extents = Extents::new(UNIT_BYTES_MOST);
        let (mut seen_pages, mut seen_units) = (Units::default(), Units::default());
        let (mut requests, mut pages, mut units) = (0, 0, 0);
        let (mut first_us, mut last_us) = (u64::MAX, 0);
        for record in source.records()?.take(usize::try_from(most).unwrap_or(usize::MAX)) {
            let record = record?;
            extents.add(&record);
            (first_us, last_us) = (first_us.min(record.ts_us), last_us.max(record.ts_us));
            if let Some(bytes) = unit_bytes {
                pages += record.pages().filter(|page| seen_pages.first(*page)).count() as u64;
                units += record.units(bytes).filter(|unit| seen_units.first(*unit)).count() as u64;
            }
            requests += 1;
        }
        Ok(Self { packed: extents.pack(), requests, pages, units, first_us, last_us })
    }

    /// Whether the trace has times.
    pub(super) fn is_timed(&self) -> bool {
        self.last_us > self.first_us
    }
}

/// The second pass: requests on the volume.
pub(super) struct Feed<'a> {
    scan: &'a Scan,
    records: Requests,
    left: u64,
    speed: f64,
    last: Nanos,
    pub(super) failed: Option<TraceError>,
}

impl<'a> Feed<'a> {
    pub(super) fn new(source: &Source, scan: &'a Scan, speed: f64) -> Result<Self, TraceError> {
        let (records, left) = (source.records()?, scan.requests);
        Ok(Self { scan, records, left, speed, last: 0, failed: None })
    }

    /// The next request, grown to whole sectors, which is all that a volume takes. Times that go back
    /// are those of the request before.
    pub(super) fn next(&mut self) -> Option<Due> {
        self.left = self.left.checked_sub(1)?;
        let record = match self.records.next()? {
            Ok(record) => record,
            Err(error) => {
                self.failed = Some(error);
                return None;
            }
        };
        let at =
            (record.ts_us.saturating_sub(self.scan.first_us) as f64 * 1e3 / self.speed) as Nanos;
        self.last = self.last.max(at);
        Some(Due { at: self.last, ask: self.ask(&record) })
    }

    fn ask(&self, record: &Record) -> Ask {
        let (place, sector) = (self.scan.packed.place(record), SECTOR as u64);
        let offset = place.start / sector * sector;
        let len = place.end.next_multiple_of(sector) - offset;
        Ask { writes: record.op == Op::Write, offset, len }
    }
}
