// SPDX-License-Identifier: MIT OR Apache-2.0
//! A trace as the load of a hierarchy: its requests in order, each by whichever thread is free.
//!
//! Devices get extents of their own ([`Extents`]), so the trace is read twice.

use std::collections::VecDeque;
use std::path::Path;

use anyhow::{Result, bail};
use larder_trace::{Extents, Op, Options, Packed, Record, Records, Trace, TraceError};

use crate::hierarchy::{BLOCK_BYTES, Io, Source};

/// The trace, see the module.
pub(super) struct Replay {
    name: String,
    records: Records,
    waiting: VecDeque<Io>,
    packed: Packed,
    failed: Option<TraceError>,
}

impl Replay {
    pub(super) fn open(path: &Path) -> Result<Self> {
        let trace = Trace::new(path, Options::default());
        let (mut extents, mut first) = (Extents::new(BLOCK_BYTES), trace.records()?);
        while let Some(batch) = first.next_batch()? {
            batch.iter().for_each(|record| extents.add(record));
        }
        let packed = extents.pack();
        if packed.bytes() / BLOCK_BYTES > u64::from(u32::MAX) - 1 {
            bail!("{}: reaches over 16 TiB; accepted: less, or one device of it", path.display());
        }
        let (name, records) = (path.display().to_string(), trace.records()?);
        Ok(Self { name, records, waiting: VecDeque::new(), packed, failed: None })
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
                        let place = self.packed.place(record);
                        let first = place.start / BLOCK_BYTES;
                        Io {
                            write: record.op == Op::Write,
                            block: first as u32,
                            blocks: (place.end.div_ceil(BLOCK_BYTES) - first) as u32,
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
