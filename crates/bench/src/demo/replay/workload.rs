// SPDX-License-Identifier: MIT OR Apache-2.0
//! A trace as the requests of one volume.
//!
//! Purpose: packs the devices of a trace into one volume ([`Extents`]) and aligns requests outward to
//! whole pages.
//!
//! Invariants: extents begin and end at multiples of [`EXTENT_BYTES`]; every step lies within the
//! volume.

use std::collections::HashSet;

use anyhow::{Context, bail, ensure};

use larder_trace::{Extents, Op, Packed, Record, TraceError};

use crate::demo::device_file::PAGE_BYTES;

/// Alignment of extents: the cache's unit, so that devices share none.
pub const EXTENT_BYTES: u64 = 1 << 20;
/// The most requests of a trace that is kept in memory.
pub const MAX_STEPS: usize = 16 << 20;
/// The longest request that every NBD server takes.
pub const MAX_LEN_BYTES: u32 = 32 << 20;

/// What a step does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// Reads.
    Read,
    /// Writes.
    Write,
    /// Writes to the last device of the trace, which holds the log if there are several; every so
    /// many of these a FLUSH follows.
    LogWrite,
}

/// A request of the replay, in pages of the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// What it does.
    pub verb: Verb,
    /// Its first page.
    pub page: u32,
    /// So many pages, at least one.
    pub pages: u32,
}

impl Step {
    /// Its pages.
    #[must_use]
    pub fn range(&self) -> std::ops::Range<u32> {
        self.page..self.page + self.pages
    }

    /// Its first byte on the volume.
    #[must_use]
    pub fn offset_bytes(&self) -> u64 {
        u64::from(self.page) * PAGE_BYTES as u64
    }

    /// Its length.
    #[must_use]
    pub fn len_bytes(&self) -> u64 {
        u64::from(self.pages) * PAGE_BYTES as u64
    }
}

/// What is replayed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workload {
    /// The requests in the trace's order.
    pub steps: Vec<Step>,
    /// The size of the volume.
    pub volume_bytes: u64,
    /// Bytes of all pages that some request touches.
    pub touched_bytes: u64,
    /// So many of the requests write.
    pub writes: usize,
}

impl Workload {
    /// Takes a trace in.
    ///
    /// # Errors
    /// The trace is malformed, empty or too large for a demo.
    pub fn from_trace(
        records: impl Iterator<Item = Result<Record, TraceError>>,
    ) -> anyhow::Result<Self> {
        let mut kept = Vec::new();
        for record in records {
            let record = record?;
            ensure!(kept.len() < MAX_STEPS, "more than {MAX_STEPS} requests, the most accepted");
            ensure!(
                record.len_bytes <= MAX_LEN_BYTES,
                "request {} has {} bytes; accepted are at most {MAX_LEN_BYTES}",
                kept.len(),
                record.len_bytes
            );
            kept.push(record);
        }
        let mut extents = Extents::new(EXTENT_BYTES);
        kept.iter().for_each(|record| extents.add(record));
        let Some(log) = kept.iter().map(|record| record.dev).max() else {
            bail!("there is no request in it; accepted is at least one");
        };
        let packed = extents.pack();
        let volume_bytes = packed.bytes();
        u32::try_from(volume_bytes / PAGE_BYTES as u64).ok().with_context(|| {
            format!("its devices span {volume_bytes} bytes; accepted are less than 16 TiB")
        })?;
        let steps: Vec<Step> = kept.iter().map(|r| step(r, &packed, r.dev == log)).collect();
        let touched: HashSet<u32> = steps.iter().flat_map(Step::range).collect();
        let writes = steps.iter().filter(|s| s.verb != Verb::Read).count();
        let touched_bytes = (touched.len() * PAGE_BYTES) as u64;
        Ok(Self { steps, volume_bytes, touched_bytes, writes })
    }

    /// Pages of the volume.
    #[must_use]
    pub fn pages(&self) -> usize {
        (self.volume_bytes / PAGE_BYTES as u64) as usize
    }
}

fn step(record: &Record, packed: &Packed, log: bool) -> Step {
    let (page_bytes, place) = (PAGE_BYTES as u64, packed.place(record));
    let (page, end) = (place.start / page_bytes, place.end.div_ceil(page_bytes));
    let verb = match record.op {
        Op::Read | Op::Unknown => Verb::Read,
        Op::Write if log => Verb::LogWrite,
        Op::Write => Verb::Write,
    };
    Step { verb, page: page as u32, pages: (end - page) as u32 }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn record(dev: u8, offset_bytes: u64, len_bytes: u32, op: Op) -> Record {
        Record { ts_us: 0, offset_bytes, len_bytes, op, dev }
    }

    fn pack(records: &[Record]) -> anyhow::Result<Workload> {
        Workload::from_trace(records.iter().copied().map(Ok))
    }

    #[test]
    fn devices_lie_behind_one_another_and_only_what_is_used() {
        let records = [
            record(4, 100 * MIB + 4096, 8192, Op::Write),
            record(1, 5 * MIB, 4096, Op::Read),
            record(1, 7 * MIB + 4096, 4096, Op::Write),
        ];
        let workload = pack(&records).unwrap();
        assert_eq!(workload.volume_bytes, 4 * MIB);
        let step = |verb, at: u64, pages| Step { verb, page: (at / 4096) as u32, pages };
        assert_eq!(
            workload.steps,
            [
                step(Verb::LogWrite, 3 * MIB + 4096, 2),
                step(Verb::Read, 0, 1),
                step(Verb::Write, 2 * MIB + 4096, 1)
            ]
        );
        assert_eq!((workload.touched_bytes, workload.writes), (4 * 4096, 2));
    }

    #[test]
    fn requests_grow_to_whole_pages() {
        let steps =
            pack(&[record(0, 4095, 2, Op::Read), record(0, 8192, 1, Op::Unknown)]).unwrap().steps;
        assert_eq!(steps[0], Step { verb: Verb::Read, page: 0, pages: 2 });
        assert_eq!(steps[1], Step { verb: Verb::Read, page: 2, pages: 1 });
    }

    #[test]
    fn what_cannot_be_replayed_is_refused() {
        let refused = |records: &[Record]| pack(records).unwrap_err().to_string();
        assert!(refused(&[]).contains("no request"));
        assert!(refused(&[record(0, 0, MAX_LEN_BYTES + 1, Op::Read)]).contains("at most 33554432"));
        let far = larder_trace::DEVICE_BYTES - 4096;
        let wide = [record(0, 0, 1, Op::Read), record(0, far, 4096, Op::Read)];
        assert!(refused(&wide).contains("less than 16 TiB"));
    }
}
