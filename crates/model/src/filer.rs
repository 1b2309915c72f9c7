// SPDX-License-Identifier: MIT OR Apache-2.0
//! A file server as in Holland's paper: each read is fast or slow at random.
//!
//! A read is fast with a given probability (data that the server had prefetched or cached) and otherwise slow (data
//! read from its disks). A write has its own time, because the server has non-volatile memory; so do trims and flushes.
//! A request takes its time once, whatever its length: the network in front accounts for bytes. A completed write is
//! durable, so FUA costs nothing.
//!
//! `servers` requests are served at once, in order of arrival; 0 is unlimited, as in the paper.
//!
//! Invariant: the seed and the order of submission alone determine which reads are fast.
//!
//! Why not a cache in the server: its hits would depend on the requests that reach it, and the paper treats the hit
//! ratio as a parameter.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use serde::Deserialize;

use crate::bounds;
use crate::foreseen::{EndsAt, Foreseen};
use crate::{Kind, Nanos, Op, SplitMix64};

/// The parameters of a file server.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub struct FilerSpec {
    /// Time of a fast read.
    #[serde(deserialize_with = "bounds::nanos")]
    pub fast_read_ns: Nanos,
    /// Time of a slow read.
    #[serde(deserialize_with = "bounds::nanos")]
    pub slow_read_ns: Nanos,
    /// Time of a write.
    #[serde(deserialize_with = "bounds::nanos")]
    pub write_ns: Nanos,
    /// Share of fast reads, 0 to 1.
    #[serde(deserialize_with = "bounds::ratio")]
    pub fast_read_ratio: f64,
    /// Requests served at once; 0 is unlimited.
    #[serde(deserialize_with = "bounds::count")]
    pub servers: u64,
}

/// A file server.
pub type Filer = Foreseen<Service>;

/// Its service times and random numbers.
pub struct Service {
    spec: FilerSpec,
    random: SplitMix64,
    /// Draws below this, of 2^32, are fast reads.
    fast_below: u64,
    /// When each server is free; empty without a limit.
    free_at: BinaryHeap<Reverse<Nanos>>,
}

impl Filer {
    /// An idle server. The seed determines which reads are fast.
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
