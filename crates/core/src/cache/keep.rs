// SPDX-License-Identifier: MIT OR Apache-2.0
//! What rules for ranges ask for, carried out in the background (`range_rules.rs`): units that are pinned are copied to flash, and
//! excluded ones leave it.
//!
//! A pass follows each change of the rules, and each attach. While ranges are pinned, further passes complete what trims, errors
//! of flash and writes of parts of pages made invalid. Excluded ranges need no further pass once all of it has left, because nothing is
//! admitted there.
//!
//! A unit that was excluded until now may still be evicted shortly after it was pinned; the next pass copies it again.
//!
//! Invariants: population that is off copies nothing; a pass waits for clears, as a command does (`arrange.rs`), and ends with the
//! rules that it began with.

use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use super::Current;
use super::units::table::Table;
use crate::context::Context;
use crate::exec::{Nanos, SECOND};
use crate::range_rules::RangeRules;
use crate::ranges::{windows, within};

/// The time between passes.
const PERIOD: Nanos = 10 * SECOND;
/// Bytes of an excluded range that are evicted at a time.
const WINDOW: u64 = 32 << 20;
/// Units that a pass looks at before other tasks run.
const LOOKED: usize = 1024;

/// The task that carries rules out.
pub(crate) async fn run(cx: Rc<Context>, current: Rc<Current>) {
    loop {
        cx.rules_changed.wait(&cx.exec).await;
        while !current.pass().await {
            cx.rules_changed.wait_for(PERIOD, &cx.exec).await;
        }
    }
}

impl Current {
    /// From now on these rules are in force.
    pub(crate) fn follow(&self, rules: &Arc<RangeRules>) {
        self.table().iter().for_each(|table| table.follow(rules));
    }

    /// One pass; returns whether none has to follow.
    async fn pass(&self) -> bool {
        if self.device().is_none() {
            return true;
        }
        let rules = Arc::clone(&self.cx.rules.borrow());
        let emptied = self.empty_excluded(&rules).await;
        self.complete_pinned(&rules).await;
        emptied && rules.pinned().is_empty()
    }

    fn has_changed(&self, rules: &Arc<RangeRules>) -> bool {
        !Arc::ptr_eq(rules, &self.cx.rules.borrow())
    }

    /// Evicts what flash has of excluded ranges; returns whether all of it has left.
    async fn empty_excluded(&self, rules: &Arc<RangeRules>) -> bool {
        let mut emptied = true;
        // An eviction concerns one volume.
        let of_volumes = self.cx.origins.volumes.ranges();
        let excluded: Vec<Range<u64>> =
            of_volumes.flat_map(|volume| within(rules.excluded(), &volume)).collect();
        for window in windows(&excluded, WINDOW) {
            if self.has_changed(rules) {
                return false;
            }
            emptied &= self.evict(&window).await.is_ok();
            self.cx.exec.sleep(1).await;
        }
        emptied
    }

    /// Copies to flash what it lacks of pinned ranges.
    async fn complete_pinned(&self, rules: &Arc<RangeRules>) {
        let shape = self.cx.shape;
        let units = rules.pinned().iter().flat_map(|range| shape.units_touching(range));
        for (n, unit) in units.enumerate() {
            if n % LOOKED == 0 {
                self.cx.exec.sleep(1).await;
            }
            if self.has_changed(rules) || !self.cx.limits.get().populates {
                return;
            }
            if !self.has_whole(unit) {
                while !self.cx.budget_allows().await && !self.has_changed(rules) {}
                let Ok(_turn) = self.turn().await else { return };
                let _ = self.warm_unit(unit, 0..shape.pages_of(unit)).await;
            }
        }
    }

    /// Whether flash has all of a unit.
    fn has_whole(&self, unit: u32) -> bool {
        let pages = 0..self.cx.shape.pages_of(unit);
        let valid = |table: Rc<Table>| table.valid_in(unit, &pages) == pages.len() as u64;
        self.table().is_none_or(valid)
    }

    /// Whether the unit at this place has a slot.
    pub(crate) fn holds(&self, at: u64) -> bool {
        let unit = self.cx.shape.own_unit(at);
        self.table().is_some_and(|table| table.slot_of(unit).is_some())
    }
}
