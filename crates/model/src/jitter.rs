// SPDX-License-Identifier: MIT OR Apache-2.0
//! A device of random latency and unlimited parallelism.
//!
//! Purpose: tests of races. Requests overtake each other as wildly as the seed has it, so an
//! order that code relies on without saying so soon fails to hold.
//! Why not a realistic device there: those reorder little, and seldom twice in the same way.

use crate::completions::Completions;
use crate::{Model, Nanos, Op, SplitMix64};

/// Each request takes a time from `min_ns` to `max_ns`, evenly spread, whatever it does.
pub struct Jitter {
    random: SplitMix64,
    min_ns: Nanos,
    spread_ns: Nanos,
    done: Completions,
}

impl Jitter {
    /// A device for this seed. A `max_ns` below `min_ns` counts as `min_ns`.
    #[must_use]
    pub fn new(seed: u64, min_ns: Nanos, max_ns: Nanos) -> Self {
        Self {
            random: SplitMix64::new(seed),
            min_ns,
            spread_ns: max_ns.saturating_sub(min_ns),
            done: Completions::default(),
        }
    }
}

impl Model for Jitter {
    fn submit(&mut self, now: Nanos, id: u64, _op: Op) {
        let now = self.done.observe(now);
        let order = self.done.admit();
        let takes_ns = self.min_ns + self.random.below(self.spread_ns.saturating_add(1));
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
