// SPDX-License-Identifier: MIT OR Apache-2.0
//! RAM or flash as in simulators of caches: a fixed time for each block of 4 KiB.
//!
//! Purpose: Holland, Table 1, whose RAM takes 0.4 us a block and whose flash takes 88 us to read and 21 us to write
//! one, with any number of requests at once. A request of several blocks takes them one after the other. A trim takes
//! as long as one written block. A completed write is durable, so FUA costs nothing. A flush takes as long as one
//! written block: if it took no time, a client that flushes in a loop would never advance the time.
//!
//! Why not an SSD of the same IOPS: its requests queue, and the paper's do not.

use serde::Deserialize;

use crate::bounds;
use crate::foreseen::{EndsAt, Foreseen};
use crate::{Kind, Nanos, Op};

const BLOCK_BYTES: u64 = 4 << 10;

/// The parameters of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub struct FixedSpec {
    /// Time to read a block.
    #[serde(deserialize_with = "bounds::nanos")]
    pub read_ns: Nanos,
    /// Time to write a block.
    #[serde(deserialize_with = "bounds::nanos")]
    pub write_ns: Nanos,
}

/// A device with fixed times.
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
