// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a row of the swarm decides: from it a seed draws its volume, its load and its troubles.

use std::ops::Range;

use super::caches::{CACHES, Cache};
use super::kinds::Kind;
use super::mix::{Mix, by_weight};
use super::promise::Trouble;

/// A row of the swarm, see the module.
#[derive(Debug)]
pub struct Profile {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it is about.
    pub what: &'static str,
    /// How many seeds of the sum of all rows take it.
    pub weight: u32,
    /// How many of 100 seeds take it before the weights are asked: a row of weight 0 changes no history of the others.
    pub percent: u32,
    /// The kinds of the caches that it takes.
    pub takes: &'static [&'static Kind],
    /// Bytes of a unit, where the preset lets that be chosen.
    pub units: &'static [u64],
    /// Shards.
    pub shards: &'static [u32],
    /// Adjoining units that a shard owns in a row.
    pub stripes: &'static [u32],
    /// Volumes that share the cache.
    pub volumes: &'static [u32],
    /// Slots, as a share of the volume's units in tenths.
    pub slots: Range<u64>,
    /// Client requests in flight.
    pub in_flight: &'static [usize],
    /// The load.
    pub mix: Mix,
    /// The share of requests in percent that go to a few pages.
    pub hot: u32,
    /// The share of requests in percent that follow the one before.
    pub scan: u32,
    /// Whether choices and limits are any that go together, instead of the preset's.
    pub any: bool,
    /// How probable it is, before a request, that flash is detached or attached.
    pub plugs: f64,
    /// How probable it is, before a request, that a volume leaves the cache or joins it again.
    pub departs: f64,
    /// How probable it is, before a request, that a range is warmed or evicted.
    pub arranges: f64,
    /// How probable it is, before a request, that a range is scrubbed.
    pub scrubs: f64,
    /// How probable it is, before a request, that another part of flash is used. Then a start uses any part, too.
    pub resizes: f64,
    /// Whether the origin grows between lives.
    pub grows: bool,
    /// How probable it is, before a request, that a range is pinned or excluded, or no longer so.
    pub rules: f64,
    /// How probable it is, before a request, that settings change.
    pub settings: f64,
    /// Crashes.
    pub crashes: Range<u32>,
    /// Whether most crashes follow another at once.
    pub bursts: bool,
    /// Rest after a request: one in so many, for up to so many milliseconds.
    pub rest: (u32, u64),
    /// Whether a start may find another flash or another state file than the last one.
    pub strays: bool,
    /// Bytes of the tier of RAM.
    pub ram: &'static [u64],
    /// Bytes of memory for checksums of cached pages; empty: they have none.
    pub sums: &'static [u64],
    /// What else goes wrong.
    pub troubles: &'static [Trouble],
}

impl Profile {
    /// Whether it takes caches of this kind.
    #[must_use]
    pub fn takes(&self, kind: &Kind) -> bool {
        self.takes.iter().any(|own| own.name == kind.name)
    }

    /// Draws one of its caches.
    pub(super) fn cache(&self, draw: impl FnOnce(Range<u32>) -> u32) -> Cache {
        let taken: Vec<Cache> = CACHES.iter().filter(|c| self.takes(c.kind)).copied().collect();
        let sum = taken.iter().map(|c| c.weight).sum();
        *by_weight(&taken, |c| c.weight, draw(0..sum))
    }
}
