// SPDX-License-Identifier: MIT OR Apache-2.0
//! A trace as the requests of one volume.
//!
//! Purpose: packs each device of a trace into its own extent of the volume, in the order of the
//! devices' numbers, and aligns requests outward to whole pages.
//!
//! Invariants: an extent begins and ends at a multiple of [`EXTENT_BYTES`], spans what its device's
//! requests touch and no more, and no two overlap; every step lies within the volume.
//!
//! Why not pack page by page: neighbours on a device stay neighbours on the volume, and a cache
//! of large units depends on that.

use std::collections::{BTreeMap, HashSet};

use anyhow::{Context, bail, ensure};

use super::content::PAGE_BYTES;
use larder_trace::{Op, Record, TraceError};

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

/// Where a device of the trace lies on the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// The first byte of the device that is part of it.
    pub device_offset_bytes: u64,
    /// Where that byte lies on the volume.
    pub volume_offset_bytes: u64,
    /// Its length.
    pub len_bytes: u64,
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
        let extents = extents(&kept);
        let (Some(last), Some((log, _))) = (extents.values().last(), extents.last_key_value())
        else {
            bail!("there is no request in it; accepted is at least one");
        };
        let volume_bytes = last.volume_offset_bytes + last.len_bytes;
        u32::try_from(volume_bytes / PAGE_BYTES as u64).ok().with_context(|| {
            format!("its devices span {volume_bytes} bytes; accepted are less than 16 TiB")
        })?;
        let steps: Vec<Step> =
            kept.iter().map(|r| step(r, &extents[&r.dev], r.dev == *log)).collect();
        let touched: HashSet<u32> = steps.iter().flat_map(|s| s.page..s.page + s.pages).collect();
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

/// The extent of each device.
#[must_use]
pub fn extents(records: &[Record]) -> BTreeMap<u8, Extent> {
    let mut spans: BTreeMap<u8, (u64, u64)> = BTreeMap::new();
    for record in records {
        let span = spans.entry(record.dev).or_insert((u64::MAX, 0));
        *span = (span.0.min(record.offset_bytes), span.1.max(record.end_bytes()));
    }
    let mut volume_offset_bytes = 0;
    let mut place = |(dev, (first, end)): (u8, (u64, u64))| {
        let device_offset_bytes = first / EXTENT_BYTES * EXTENT_BYTES;
        let len_bytes = end.next_multiple_of(EXTENT_BYTES) - device_offset_bytes;
        let extent = Extent { device_offset_bytes, volume_offset_bytes, len_bytes };
        volume_offset_bytes += len_bytes;
        (dev, extent)
    };
    spans.into_iter().map(&mut place).collect()
}

fn step(record: &Record, extent: &Extent, log: bool) -> Step {
    let page_bytes = PAGE_BYTES as u64;
    let on_volume = |at: u64| at - extent.device_offset_bytes + extent.volume_offset_bytes;
    let page = on_volume(record.offset_bytes) / page_bytes;
    let end = on_volume(record.end_bytes()).div_ceil(page_bytes);
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
