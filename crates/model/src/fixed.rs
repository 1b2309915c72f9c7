// SPDX-License-Identifier: MIT OR Apache-2.0
//! RAM or flash as simulators of caches have them: a fixed time for each block of 4 KiB.
//!
//! Purpose: Holland's Table 1, whose RAM takes 0.4 us a block and whose flash 88 us to read and 21
//! to write one, with any number of requests at once. A request of several blocks takes one after
//! the other. A trim takes as long as a block written. A completed write is durable, so FUA costs
//! nothing, and a flush no more than a block written: without it a client that flushes in a loop
//! would do so for ever at the same moment.
//! Why not an SSD of the same IOPS: its requests queue, and the paper's do not.

use serde::Deserialize;

use crate::bounds;
use crate::completions::Completions;
use crate::{Kind, Model, Nanos, Op};

const BLOCK_BYTES: u64 = 4 << 10;

/// What to model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub struct FixedSpec {
    /// A block read.
    #[serde(deserialize_with = "bounds::nanos")]
    pub read_ns: Nanos,
    /// A block written.
    #[serde(deserialize_with = "bounds::nanos")]
    pub write_ns: Nanos,
}

/// The device.
pub struct Fixed {
    spec: FixedSpec,
    done: Completions,
}

impl Fixed {
    /// An idle device.
    #[must_use]
    pub fn new(spec: FixedSpec) -> Self {
        Self { spec, done: Completions::default() }
    }
}

impl Model for Fixed {
    fn submit(&mut self, now: Nanos, id: u64, op: Op) {
        let now = self.done.observe(now);
        let order = self.done.admit();
        let blocks = op.len.div_ceil(BLOCK_BYTES);
        let takes_ns = match op.kind {
            Kind::Read => self.spec.read_ns.saturating_mul(blocks),
            Kind::Write => self.spec.write_ns.saturating_mul(blocks),
            Kind::Trim | Kind::Flush => self.spec.write_ns,
        };
        self.done.finish(order, id, now.saturating_add(takes_ns));
    }

    fn next(&self) -> Option<Nanos> {
        self.done.next()
    }

    fn poll(&mut self, now: Nanos) -> Option<(u64, Nanos)> {
        let now = self.done.observe(now);
        self.done.take(now)
    }

    fn in_flight(&self) -> usize {
        self.done.in_flight()
    }
}
