// SPDX-License-Identifier: MIT OR Apache-2.0
//! Holland's generator as a trace: threads by turns, each host a device.
//!
//! It has no times: the paper's threads ask for the next thing as soon as they have the last.

use larder_trace::{Op, PAGE_BYTES, Record};

use crate::hierarchy::Source as _;
use crate::load::holland::{Holland, HollandSpec};

/// The trace, see the module.
pub struct HollandTrace {
    source: Holland,
    hosts: u32,
    threads: u32,
    turn: u32,
}

impl HollandTrace {
    /// Of a spec; at most 256 hosts.
    #[must_use]
    pub fn new(spec: HollandSpec) -> Self {
        let (hosts, threads) = (spec.hosts.clamp(1, 256), spec.threads.max(1));
        Self {
            source: Holland::new(HollandSpec { hosts, threads, ..spec }),
            hosts,
            threads,
            turn: 0,
        }
    }
}

impl Iterator for HollandTrace {
    type Item = Record;

    fn next(&mut self) -> Option<Record> {
        let (host, thread) = (self.turn % self.hosts, self.turn / self.hosts % self.threads);
        self.turn = (self.turn + 1) % (self.hosts * self.threads);
        let io = self.source.next(host, thread)?;
        Some(Record {
            ts_us: 0,
            offset_bytes: u64::from(io.block) * PAGE_BYTES,
            len_bytes: io.blocks * PAGE_BYTES as u32,
            op: if io.write { Op::Write } else { Op::Read },
            dev: host as u8,
        })
    }
}
