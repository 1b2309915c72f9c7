// SPDX-License-Identifier: MIT OR Apache-2.0
//! Settings change while clients use the volume: when writes are copied to flash, what is evicted, and limits.

use larder_core::config::{Choices, Eviction, Limits, Placement, ReplacementChoice, WritePolicy};
use larder_core::shard::Shard;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::life::Life;
use crate::world::lawful;

impl Life<'_> {
    /// Changes settings.
    pub(super) fn set(&mut self, salt: u64) {
        let mut rng = Pcg64Mcg::seed_from_u64(salt);
        let limits = other_limits(&self.setup.limits, &mut rng);
        let spec = lawful(&other_choices(self.setup.choices_of(self.life()), &mut rng));
        self.world.shards().iter().for_each(|shard| shard.adjust(&limits));
        let chosen = self.world.shards().iter().all(|shard: &Shard| shard.choose(&spec));
        assert!(chosen, "only memory has what differs");
    }
}

fn other_limits(limits: &Limits, rng: &mut Pcg64Mcg) -> Limits {
    let times = rng.random_range(1..4);
    Limits {
        populates: rng.random_bool(0.8),
        write_through_bytes: rng.random_range(0..64) * (64 << 10),
        population_share: [0.25, 1.0][rng.random_range(0..2)],
        flash_timeout: times * limits.flash_timeout,
        flash_dead_after: times * limits.flash_dead_after,
        flash_errors: rng.random_range(1..40),
        ordered_lag: rng.random_range(1..=2) * limits.ordered_lag,
        ..*limits
    }
}

fn other_choices(mut choices: Choices, rng: &mut Pcg64Mcg) -> Choices {
    let copies = WritePolicy::COPIES;
    if copies.iter().any(|(_, policy)| *policy == choices.write) {
        choices.write = copies[rng.random_range(0..copies.len())].1;
    }
    if let Eviction::Replacement(_) = choices.eviction {
        let any =
            |of: &&ReplacementChoice| choices.placement == Placement::Anywhere || of.knows_sets();
        let named = ReplacementChoice::NAMED.iter().map(|(_, policy)| policy);
        let named: Vec<&ReplacementChoice> = named.filter(any).collect();
        choices.eviction = Eviction::Replacement(*named[rng.random_range(0..named.len())]);
    }
    choices
}
