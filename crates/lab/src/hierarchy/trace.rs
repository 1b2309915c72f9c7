// SPDX-License-Identifier: MIT OR Apache-2.0
//! A trace as the load of a hierarchy: its requests in order, each by whichever thread is free.
//!
//! Devices get extents of their own, as large as they have to be, in the order of their numbers; so
//! the trace is read twice.

use std::collections::VecDeque;
use std::path::Path;

use anyhow::{Result, bail};
use larder_sim::hierarchy::{BLOCK_BYTES, Io, Source};
use larder_trace::{Op, Options, Record, Records, Trace, TraceError};

/// The trace, see the module.
pub(super) struct Replay {
    name: String,
    records: Records,
    waiting: VecDeque<Io>,
    /// The first block of each device.
    bases: Vec<u64>,
    failed: Option<TraceError>,
}

fn blocks(record: &Record) -> std::ops::Range<u64> {
    record.offset_bytes / BLOCK_BYTES..record.end_bytes().div_ceil(BLOCK_BYTES)
}

impl Replay {
    pub(super) fn open(path: &Path) -> Result<Self> {
        let trace = Trace::new(path, Options::default());
        let mut ends = vec![0u64; 256];
        let mut first = trace.records()?;
        while let Some(batch) = first.next_batch()? {
            for record in batch {
                let end = &mut ends[usize::from(record.dev)];
                *end = (*end).max(blocks(record).end);
            }
        }
        let mut next = 0;
        let bases: Vec<u64> = ends.iter().map(|end| (next, next += end).0).collect();
        if next > u64::from(u32::MAX) - 1 {
            bail!("{}: reaches over 16 TiB; accepted: less, or one device of it", path.display());
        }
        let (name, records) = (path.display().to_string(), trace.records()?);
        Ok(Self { name, records, waiting: VecDeque::new(), bases, failed: None })
    }

    /// Whether it was read to its end.
    pub(super) fn ended(self) -> Result<()> {
        match self.failed {
            Some(error) => Err(anyhow::Error::from(error).context(self.name)),
            None => Ok(()),
        }
    }
}

impl Source for Replay {
    fn next(&mut self, _: u32, _: u32) -> Option<Io> {
        while self.waiting.is_empty() {
            match self.records.next_batch() {
                Ok(Some(records)) => {
                    let io = |record: &Record| {
                        let (range, base) = (blocks(record), self.bases[usize::from(record.dev)]);
                        Io {
                            write: record.op == Op::Write,
                            block: (base + range.start) as u32,
                            blocks: (range.end - range.start) as u32,
                        }
                    };
                    self.waiting.extend(records.iter().map(io));
                }
                Ok(None) => return None,
                Err(error) => {
                    self.failed = Some(error);
                    return None;
                }
            }
        }
        self.waiting.pop_front()
    }
}
