// SPDX-License-Identifier: MIT OR Apache-2.0
//! A device with random latency and unlimited parallelism.
//!
//! Purpose: tests of races. Requests overtake each other at random, so code that relies on an order without enforcing
//! it soon fails.
//!
//! Why not a realistic device: it reorders little, and rarely twice in the same way.

use crate::foreseen::{EndsAt, Foreseen};
use crate::{Nanos, Op, SplitMix64};

/// The device.
pub type Jitter = Foreseen<Chance>;

/// Each request takes a uniformly random time from `min_ns` to `max_ns`.
pub struct Chance {
    random: SplitMix64,
    min_ns: Nanos,
    spread_ns: Nanos,
}

impl Jitter {
    /// A device for this seed. A `max_ns` below `min_ns` counts as `min_ns`.
    #[must_use]
    pub fn new(seed: u64, min_ns: Nanos, max_ns: Nanos) -> Self {
        let spread_ns = max_ns.saturating_sub(min_ns);
        Self::by(Chance { random: SplitMix64::new(seed), min_ns, spread_ns })
    }
}

impl EndsAt for Chance {
    fn ends_at(&mut self, now: Nanos, _op: Op) -> Nanos {
        let takes_ns = self.min_ns + self.random.below(self.spread_ns.saturating_add(1));
        now.saturating_add(takes_ns)
    }
}
