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
use crate::foreseen::{EndsAt, Foreseen};
use crate::{Kind, Nanos, Op};

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
pub type Fixed = Foreseen<FixedSpec>;

impl Fixed {
    /// An idle device.
    #[must_use]
    pub fn new(spec: FixedSpec) -> Self {
        Self::by(spec)
    }
}

impl EndsAt for FixedSpec {
    fn ends_at(&mut self, now: Nanos, op: Op) -> Nanos {
        let blocks = op.len.div_ceil(BLOCK_BYTES);
        let takes_ns = match op.kind {
            Kind::Read => self.read_ns.saturating_mul(blocks),
            Kind::Write => self.write_ns.saturating_mul(blocks),
            Kind::Trim | Kind::Flush => self.write_ns,
        };
        now.saturating_add(takes_ns)
    }
}
