// SPDX-License-Identifier: MIT OR Apache-2.0
//! What an administrator asked for, and what was seen since: ranges that are pinned and excluded (`rules.rs` judges), and the size of
//! flash.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use larder_core::range_rules::RangeRules;
use larder_core::ranges::{merged, without};

use super::setup::Setup;
use super::step::Rule;

/// A resize in progress.
pub(super) struct Resizing {
    /// Slots in use at its end, over all shards.
    pub total: u64,
    /// Shards that have not ended it.
    pub left: Rc<Cell<u32>>,
}

/// What is asked for, and what was seen since.
#[derive(Default)]
pub(super) struct Wanted {
    pub pinned: Vec<Range<u64>>,
    pub excluded: Vec<Range<u64>>,
    pub rules: Arc<RangeRules>,
    /// What was excluded in this life. An eviction that began then may end later.
    pub once_excluded: Vec<Range<u64>>,
    /// The places of pinned units that flash had wholly.
    pub held: BTreeSet<u64>,
    /// Flash had nothing of what is excluded.
    pub emptied: bool,
    /// Commands that evict, in progress.
    pub evicting: Rc<Cell<u32>>,
}

impl Wanted {
    /// Begins to judge again.
    pub(super) fn begin(&mut self) {
        self.held.clear();
        self.emptied = false;
    }

    /// Begins another life.
    pub(super) fn revive(&mut self) {
        self.begin();
        self.evicting = Rc::default();
        self.once_excluded.clone_from(&self.excluded);
    }

    /// A command begins to evict; the answer is called when it has ended.
    pub(super) fn evicts(&mut self) -> impl Fn() + use<> {
        self.begin();
        let evicting = Rc::clone(&self.evicting);
        evicting.set(evicting.get() + 1);
        move || evicting.set(evicting.get() - 1)
    }

    pub(super) fn change(&mut self, setup: &Setup, rule: Rule, range: Range<u64>) {
        let one = std::slice::from_ref(&range);
        let (pinned, excluded) = (without(&self.pinned, one), without(&self.excluded, one));
        let with = |list: Vec<Range<u64>>, adds: bool| {
            let more = adds.then(|| range.clone());
            merged(list.into_iter().chain(more).collect())
        };
        let pinned = with(pinned, rule == Rule::Pin);
        let excluded = with(excluded, rule == Rule::Exclude);
        let rules = RangeRules::new(&pinned, &excluded, setup.shape.unit_bytes);
        let shards = 0..setup.shape.shards;
        let fits = |shard| {
            let (shape, slots) = (setup.shape.of_shard(shard), setup.plan.slots());
            rules.fit(&shape, slots, setup.choices.placement)
        };
        // Larder refuses to pin more.
        if shards.into_iter().all(fits) {
            let once = self.once_excluded.iter().chain(&excluded);
            self.once_excluded = merged(once.cloned().collect());
            (self.pinned, self.excluded, self.rules) = (pinned, excluded, Arc::new(rules));
            self.begin();
        }
    }
}
