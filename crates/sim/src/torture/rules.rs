// SPDX-License-Identifier: MIT OR Apache-2.0
//! Design rule 16: whether the cache keeps what is pinned, and keeps out what is excluded.
//!
//! Judged are units that were wholly on flash while they were pinned, from then on, and excluded ranges once flash has nothing of them.
//! Both begin again after what takes units from a cache as a whole: an attach, a detach, a volume that leaves, an eviction by command.
//! A flash that fails, and an origin whose flush failed, end it.

use std::ops::Range;

use larder_core::shard::Shard;

use super::history::{Judged, wrong};
use super::life::Life;
use super::step::Rule;

impl Life<'_> {
    /// The administrator asks for something.
    pub(super) fn rule(&mut self, rule: Rule, range: Range<u64>) {
        self.wanted.change(self.setup, rule, range);
        self.follow_rules();
    }

    /// The engine learns of the rules.
    pub(super) fn follow_rules(&mut self) {
        let rules = &self.wanted.rules;
        self.world.shards().iter().for_each(|shard| shard.follow(rules));
    }

    /// Whether the cache keeps to the rules.
    pub(super) fn judge_rules(&mut self) -> Judged<()> {
        let (setup, wanted) = (self.setup, &mut self.wanted);
        if wanted.pinned.is_empty() && wanted.excluded.is_empty() {
            return Ok(());
        }
        let shards = self.world.shards();
        let leaves = self.clearing.is_some_and(|(_, leaves)| leaves)
            || !self.departing.is_empty()
            || wanted.evicting.get() > 0;
        let unused = leaves || !self.attached || !shards.iter().all(|shard| shard.uses(self.flash));
        let closes = |shard: &Shard| {
            (0..setup.volumes.count()).any(|volume| shard.flush_failed(volume).is_some())
        };
        if unused || !setup.trouble.spares_flash() || shards.iter().any(closes) {
            wanted.begin();
            return Ok(());
        }
        let has = |range: &Range<u64>| shards.iter().map(|shard| shard.cached(range)).sum::<u64>();
        let unit_bytes = setup.shape.unit_bytes;
        for range in &wanted.pinned {
            for unit in range.start / unit_bytes..range.end.div_ceil(unit_bytes) {
                let at = unit * unit_bytes;
                let shard = &shards[setup.shape.shard_at(at) as usize];
                let keeps = shard.holds(at);
                if wanted.held.contains(&at) && !keeps {
                    return wrong("16: a pinned unit was evicted", format!("the unit at {at}"));
                }
                let volume = setup.volumes.range(setup.volumes.at(at));
                let whole = at..(at + unit_bytes).min(volume.end);
                let is_pinned = !wanted
                    .once_excluded
                    .iter()
                    .any(|e| e.start < whole.end && whole.start < e.end);
                if keeps && is_pinned && has(&whole) >= whole.end - whole.start {
                    wanted.held.insert(at);
                }
            }
        }
        let left: u64 = wanted.excluded.iter().map(has).sum();
        if wanted.emptied && left > 0 {
            let what = format!("{left} bytes of excluded ranges");
            return wrong("16: an excluded range was admitted", what);
        }
        let holds = |range: &Range<u64>| {
            let units = range.start / unit_bytes..range.end.div_ceil(unit_bytes);
            units
                .map(|unit| unit * unit_bytes)
                .any(|at| shards[setup.shape.shard_at(at) as usize].holds(at))
        };
        let idle = shards.iter().all(|shard| shard.is_idle());
        wanted.emptied |= left == 0 && idle && !wanted.excluded.iter().any(holds);
        Ok(())
    }
}
