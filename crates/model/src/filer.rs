// SPDX-License-Identifier: MIT OR Apache-2.0
//! A file server as Holland has it: each read is a fast or a slow one, by chance.
//!
//! A read is fast with a given probability (what the server had prefetched or cached) and else
//! slow (what its disks had to read); a write takes a time of its own, as the server has memory that
//! survives, and so do trims and flushes. A request takes that once, whatever its length: bytes are
//! a matter of the network before it. A completed write is durable, so FUA costs nothing.
//!
//! As many requests as there are `servers` are served at once, in order of arrival; 0 is any
//! number, as in the paper.
//!
//! Invariant: which reads are fast follows from the seed and the order of submission alone.
//! Why not a cache in the server: its hits would follow from what reaches it, and the paper varies
//! them as a figure.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use serde::Deserialize;

use crate::bounds;
use crate::foreseen::{EndsAt, Foreseen};
use crate::{Kind, Nanos, Op, SplitMix64};

/// What to model.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub struct FilerSpec {
    /// A fast read.
    #[serde(deserialize_with = "bounds::nanos")]
    pub fast_read_ns: Nanos,
    /// A slow read.
    #[serde(deserialize_with = "bounds::nanos")]
    pub slow_read_ns: Nanos,
    /// A write.
    #[serde(deserialize_with = "bounds::nanos")]
    pub write_ns: Nanos,
    /// Share of reads that are fast ones, 0 to 1.
    #[serde(deserialize_with = "bounds::ratio")]
    pub fast_read_ratio: f64,
    /// How many requests are served at once; 0 is no limit.
    #[serde(deserialize_with = "bounds::count")]
    pub servers: u64,
}

/// The server.
pub type Filer = Foreseen<Service>;

/// What it is doing, and by which chances.
pub struct Service {
    spec: FilerSpec,
    random: SplitMix64,
    /// Draws below this, of 2^32, are fast reads.
    fast_below: u64,
    /// When those that serve are free; none without a limit.
    free_at: BinaryHeap<Reverse<Nanos>>,
}

impl Filer {
    /// An idle server. The seed decides which reads are fast.
    #[must_use]
    pub fn new(spec: FilerSpec, seed: u64) -> Self {
        Self::by(Service {
            spec,
            random: SplitMix64::new(seed),
            fast_below: (spec.fast_read_ratio * (1_u64 << 32) as f64) as u64,
            free_at: (0..spec.servers).map(|_| Reverse(0)).collect(),
        })
    }
}

impl Service {
    fn takes_ns(&mut self, kind: Kind) -> Nanos {
        match kind {
            Kind::Read if self.random.below(1 << 32) < self.fast_below => self.spec.fast_read_ns,
            Kind::Read => self.spec.slow_read_ns,
            Kind::Write | Kind::Trim | Kind::Flush => self.spec.write_ns,
        }
    }
}

impl EndsAt for Service {
    fn ends_at(&mut self, now: Nanos, op: Op) -> Nanos {
        let takes_ns = self.takes_ns(op.kind);
        match self.free_at.pop() {
            None => now.saturating_add(takes_ns),
            Some(Reverse(free_at)) => {
                let end = free_at.max(now).saturating_add(takes_ns);
                self.free_at.push(Reverse(end));
                end
            }
        }
    }
}
