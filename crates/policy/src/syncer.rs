// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which dirty units a write-back cache copies to the origin next, and when.
//!
//! Holland et al. (section 3.5) compare write-back that is synchronous, asynchronous, periodic, or left to eviction.
//! flashcache and bcache also bound the share of the cache that is dirty. Here a unit is due if
//! - eviction met it: its slot is wanted;
//! - it has been dirty for [`SyncerSettings::period_ns`]; with 0 that is at once;
//! - more than [`SyncerSettings::most_dirty`] of the slots are dirty;
//! - no client has sent a request for [`SyncerSettings::idle_ns`].
//!
//! Of the last two the order decides which come first. What is copied together is in the order of its place, so that a disk
//! seeks little and neighbours make one write.
//!
//! Synchronous write-back is another write policy (write-through).

use alloc::collections::btree_map::Entry;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

/// Which unit goes first, where neither age nor eviction decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncOrder {
    /// The one that has been dirty for longest.
    Age,
    /// The next one on the origin, from the last on and around its end.
    Place,
}

/// Settings of write-back.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SyncerSettings {
    /// The age at which a unit is written back; `None`: age is no reason.
    pub period_ns: Option<u64>,
    /// The share of the slots that may be dirty; 1: no bound.
    pub most_dirty: f64,
    /// After this time without a request everything is written back; `None`: idleness is no reason.
    pub idle_ns: Option<u64>,
    /// See [`SyncOrder`].
    pub order: SyncOrder,
    /// Units that are copied at a time.
    pub together: u32,
}

impl SyncerSettings {
    /// Dirty data stays until its unit is evicted.
    pub const NONE: Self = Self {
        period_ns: None,
        most_dirty: 1.0,
        idle_ns: None,
        order: SyncOrder::Age,
        together: 64,
    };
}

impl Default for SyncerSettings {
    /// The bound of flashcache (20 %) and the delay of bcache (30 s).
    fn default() -> Self {
        Self {
            period_ns: Some(30_000_000_000),
            most_dirty: 0.2,
            idle_ns: None,
            order: SyncOrder::Age,
            together: 64,
        }
    }
}

/// What the choice depends on.
#[derive(Clone, Copy, Debug)]
pub struct SyncNow {
    /// The time.
    pub now: u64,
    /// Slots of the cache; of several volumes that share it, those that the volume has.
    pub slots: u32,
    /// Whether no client has sent a request for [`SyncerSettings::idle_ns`].
    pub idle: bool,
}

/// The dirty units of one shard.
#[derive(Debug)]
pub struct Syncer {
    settings: SyncerSettings,
    /// Since when each dirty unit is dirty.
    since: BTreeMap<u32, u64>,
    /// The dirty units by age.
    by_age: BTreeSet<(u64, u32)>,
    /// Dirty units whose slots eviction wants.
    wanted: BTreeSet<u32>,
    /// Units that the next round leaves out, since a client was in them.
    passed: BTreeSet<u32>,
    /// Where the search by place continues.
    hand: u32,
}

impl Syncer {
    /// Without dirty units.
    #[must_use]
    pub fn new(settings: &SyncerSettings) -> Self {
        Self {
            settings: *settings,
            since: BTreeMap::new(),
            by_age: BTreeSet::new(),
            wanted: BTreeSet::new(),
            passed: BTreeSet::new(),
            hand: 0,
        }
    }

    /// The settings.
    #[must_use]
    pub fn settings(&self) -> &SyncerSettings {
        &self.settings
    }

    /// The unit is dirty; it may have been before. Returns whether the task must look: with this unit more are dirty than the
    /// bound allows, or it is the only one.
    pub fn dirtied(&mut self, unit: u32, slots: u32, now: u64) -> bool {
        let dirty = self.since.len() + 1;
        self.insert(unit, now) && (dirty == 1 || dirty > self.allowed(slots))
    }

    /// Returns whether it was clean.
    fn insert(&mut self, unit: u32, now: u64) -> bool {
        let Entry::Vacant(entry) = self.since.entry(unit) else { return false };
        entry.insert(now);
        self.by_age.insert((now, unit))
    }

    /// The unit is clean, or no longer cached.
    pub fn cleaned(&mut self, unit: u32) {
        if let Some(since) = self.since.remove(&unit) {
            self.by_age.remove(&(since, unit));
        }
        self.wanted.remove(&unit);
    }

    /// The unit was copied and is dirty again, or it could not be copied: it counts as dirty from now on, behind all others.
    pub fn again(&mut self, unit: u32, now: u64) {
        if self.since.contains_key(&unit) {
            self.cleaned(unit);
            self.insert(unit, now);
        }
    }

    /// A client is in the unit: the next round takes others.
    pub fn passed(&mut self, unit: u32) {
        self.passed.insert(unit);
    }

    /// Whether a write may make one more unit dirty: one round more than the bound is in the syncer's hands.
    #[must_use]
    pub fn admits(&self, slots: u32) -> bool {
        self.since.len() < self.allowed(slots).saturating_add(self.settings.together as usize)
    }

    /// Eviction wants the slot of a dirty unit.
    pub fn wants(&mut self, unit: u32) {
        if self.since.contains_key(&unit) {
            self.wanted.insert(unit);
        }
    }

    /// How many units are dirty.
    #[must_use]
    pub fn dirty(&self) -> u32 {
        self.since.len() as u32
    }

    /// The units to copy next, in the order of their place.
    pub fn next(&mut self, at: SyncNow) -> Vec<u32> {
        let most = self.settings.together.max(1) as usize;
        let passed = core::mem::take(&mut self.passed);
        let free = |unit: &u32| !passed.contains(unit);
        let mut chosen: BTreeSet<u32> =
            self.wanted.iter().copied().filter(free).take(most).collect();
        let old = self.by_age.iter().take_while(|(since, _)| self.is_old(*since, at.now));
        for (_, unit) in old.filter(|(_, unit)| free(unit)) {
            if chosen.len() >= most {
                break;
            }
            chosen.insert(*unit);
        }
        let beyond = self.since.len().saturating_sub(self.allowed(at.slots));
        let wanted = if at.idle { self.since.len() } else { beyond };
        let until = most.min(wanted.max(chosen.len()));
        match self.settings.order {
            SyncOrder::Age => {
                let by_age = self.by_age.iter().map(|(_, unit)| *unit);
                add(&mut chosen, until, by_age.filter(free));
            }
            SyncOrder::Place => {
                let around = self.since.range(self.hand..).chain(self.since.range(..self.hand));
                let around = around.map(|(unit, _)| *unit);
                let last = add(&mut chosen, until, around.filter(free));
                self.hand = last.map_or(self.hand, |last| last.wrapping_add(1));
            }
        }
        chosen.into_iter().collect()
    }

    /// When a unit becomes due by its age, if no other becomes due before.
    #[must_use]
    pub fn due_at(&self) -> Option<u64> {
        let (since, _) = self.by_age.first()?;
        Some(since.saturating_add(self.settings.period_ns?))
    }

    /// Dirty units that the bound allows.
    fn allowed(&self, slots: u32) -> usize {
        if self.settings.most_dirty >= 1.0 {
            return usize::MAX;
        }
        (f64::from(slots) * self.settings.most_dirty) as usize
    }

    fn is_old(&self, since: u64, now: u64) -> bool {
        self.settings.period_ns.is_some_and(|period| now.saturating_sub(since) >= period)
    }
}

/// Adds units until so many are chosen; returns the last one.
fn add(chosen: &mut BTreeSet<u32>, until: usize, units: impl Iterator<Item = u32>) -> Option<u32> {
    let mut last = None;
    for unit in units {
        if chosen.len() >= until {
            break;
        }
        chosen.insert(unit);
        last = Some(unit);
    }
    last
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> SyncerSettings {
        SyncerSettings { together: 4, ..SyncerSettings::NONE }
    }

    fn dirty(settings: &SyncerSettings, units: &[u32]) -> Syncer {
        let mut syncer = Syncer::new(settings);
        units.iter().zip(0..).for_each(|(unit, now)| {
            syncer.dirtied(*unit, 10, now);
        });
        syncer
    }

    fn at(now: u64) -> SyncNow {
        SyncNow { now, slots: 10, idle: false }
    }

    #[test]
    fn nothing_is_due_without_a_reason() {
        let mut syncer = dirty(&settings(), &[5, 3, 9]);
        assert!(syncer.next(at(u64::MAX)).is_empty());
        assert_eq!(syncer.due_at(), None);
    }

    #[test]
    fn a_unit_is_due_after_the_period_and_again_after_it_was_rewritten() {
        let mut syncer = dirty(&SyncerSettings { period_ns: Some(10), ..settings() }, &[5, 3, 9]);
        assert_eq!(syncer.due_at(), Some(10));
        assert_eq!(syncer.next(at(11)), [3, 5], "by place");
        syncer.cleaned(5);
        syncer.again(3, 11);
        assert_eq!(syncer.next(at(12)), [9]);
        syncer.cleaned(9);
        assert_eq!(syncer.due_at(), Some(21));
        assert_eq!(syncer.next(at(21)), [3]);
    }

    #[test]
    fn what_exceeds_the_share_is_due_by_age_or_by_place() {
        let half = SyncerSettings { most_dirty: 0.2, ..settings() };
        assert_eq!(dirty(&half, &[5, 9, 3, 7]).next(at(0)), [5, 9]);
        let mut by_place =
            dirty(&SyncerSettings { order: SyncOrder::Place, ..half }, &[5, 9, 3, 7]);
        assert_eq!(by_place.next(at(0)), [3, 5]);
        assert_eq!(by_place.next(at(0)), [7, 9], "from there on");
        assert_eq!(by_place.next(at(0)), [3, 5], "around the end");
    }

    #[test]
    fn eviction_and_idleness_come_whatever_the_age() {
        let mut syncer = dirty(&settings(), &[5, 3, 9, 7, 8]);
        syncer.wants(9);
        syncer.wants(1);
        assert_eq!(syncer.next(at(0)), [9], "1 is not dirty");
        let idle = SyncNow { idle: true, ..at(0) };
        assert_eq!(syncer.next(idle), [3, 5, 7, 9], "no more than together");
        for unit in [3, 5, 7, 9] {
            syncer.cleaned(unit);
        }
        assert_eq!(syncer.next(idle), [8]);
    }

    #[test]
    fn units_that_cannot_be_copied_do_not_keep_others_back() {
        let mut syncer =
            dirty(&SyncerSettings { period_ns: Some(0), ..settings() }, &[1, 2, 3, 4, 5, 6]);
        (1..5).for_each(|unit| syncer.wants(unit));
        assert_eq!(syncer.next(at(9)), [1, 2, 3, 4]);
        (1..3).for_each(|unit| syncer.again(unit, 9));
        (3..5).for_each(|unit| syncer.passed(unit));
        assert_eq!(syncer.next(at(9)), [1, 2, 5, 6]);
        assert_eq!(syncer.next(at(9)), [3, 4, 5, 6], "those that were passed come again");
    }

    #[test]
    fn beyond_the_bound_and_a_round_no_write_is_admitted() {
        let half = SyncerSettings { most_dirty: 0.2, ..settings() };
        assert!(dirty(&half, &[1, 2, 3, 4, 5]).admits(10));
        assert!(!dirty(&half, &[1, 2, 3, 4, 5, 6]).admits(10));
    }
}
