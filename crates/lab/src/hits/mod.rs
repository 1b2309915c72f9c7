// SPDX-License-Identifier: MIT OR Apache-2.0
//! Hit/miss replay: a replacement policy alone, without devices, time or writes.
//!
//! Every access to a unit that is not resident is a miss, and admits it (admission on miss). The
//! engine's own policies run, so what is found here holds for a served volume's third choice;
//! [Belady's](belady) needs the future and is here alone. [`replay`] runs a trace.
//!
//! Invariants: at most `capacity` units are resident; equal accesses give equal counts.

pub mod belady;
pub mod replay;
pub mod units;

use larder_core::policy::replacement::Replacement;

use units::Units;

/// What a replay counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hits {
    /// Units asked for.
    pub accesses: u64,
    /// Different ones among them.
    pub unique: u64,
    /// Accesses to units that were not resident.
    pub misses: u64,
}

impl Hits {
    /// Misses per access.
    #[must_use]
    pub fn miss_ratio(&self) -> f64 {
        self.misses as f64 / self.accesses.max(1) as f64
    }
}

/// What stands in a unit's cell while it is not resident.
const ABSENT: u32 = u32::MAX - 1;
/// The most units that a cache can have.
pub const MOST_UNITS: u32 = ABSENT - 1;

/// A cache of unit numbers under a policy.
///
/// The policy's type is known, since a virtual call per access costs as much as the access.
pub struct HitCache<P> {
    policy: P,
    /// The slot of each unit.
    units: Units,
    /// The cell of the unit in each slot.
    owner: Vec<u64>,
    capacity: u32,
    hits: Hits,
    /// Room for look-ups.
    cells: Vec<usize>,
}

impl<P: Replacement> HitCache<P> {
    /// An empty cache of `capacity` units, at most [`MOST_UNITS`], which the policy was made for.
    #[must_use]
    pub fn new(policy: P, capacity: u32) -> Self {
        let owner = Vec::with_capacity(capacity as usize);
        let (units, hits, cells) = (Units::default(), Hits::default(), Vec::new());
        Self { policy, units, owner, capacity, hits, cells }
    }

    /// What was counted.
    #[must_use]
    pub fn hits(&self) -> Hits {
        self.hits
    }

    /// An access; whether it hit.
    pub fn access(&mut self, unit: u64) -> bool {
        let cell = self.units.cell(unit);
        self.access_cell(unit, cell)
    }

    /// Accesses in a row. All are looked up before the first is made: look-ups do not wait for each
    /// other, while an access waits for the one before.
    pub fn access_all(&mut self, units: &[u64]) {
        if self.units.is_large() {
            let owner = &mut self.owner;
            self.units.shrink(ABSENT, |slot, cell| owner[slot as usize] = cell as u64);
        }
        let mut cells = std::mem::take(&mut self.cells);
        cells.clear();
        cells.extend(units.iter().map(|unit| self.units.cell(*unit)));
        for (unit, cell) in units.iter().zip(&cells) {
            self.access_cell(*unit, *cell);
        }
        self.cells = cells;
    }

    #[inline]
    fn access_cell(&mut self, unit: u64, cell: usize) -> bool {
        self.hits.accesses += 1;
        self.policy.requested();
        let slot = self.units.cells[cell];
        if slot < ABSENT {
            self.policy.accessed(slot);
            return true;
        }
        self.hits.unique += u64::from(self.units.is_new(unit, cell));
        self.hits.misses += 1;
        // A policy that finds every resident unit worth keeping admits none.
        let slot = self.slot_for(unit, cell);
        self.units.cells[cell] = slot.unwrap_or(ABSENT);
        if let Some(slot) = slot {
            self.policy.inserted(slot, unit);
        }
        false
    }

    fn slot_for(&mut self, unit: u64, cell: usize) -> Option<u32> {
        let used = self.owner.len() as u32;
        if used < self.capacity {
            self.owner.push(cell as u64);
            return Some(used);
        }
        let slot = self.policy.victim(unit, 0, &|_| true)?;
        self.policy.removed(slot);
        let before = std::mem::replace(&mut self.owner[slot as usize], cell as u64);
        self.units.cells[before as usize] = ABSENT;
        Some(slot)
    }
}

#[cfg(test)]
mod tests {
    use larder_core::config::{ReplacementChoice, WithPolicy};

    use super::*;

    /// Counts of accesses that come again near and far, with memory for so many bytes of cells.
    struct Counted(Option<usize>);

    impl WithPolicy for Counted {
        type Out = Hits;

        fn with<P: Replacement + 'static>(self, policy: P) -> Hits {
            let mut cache = HitCache::new(policy, 100);
            if let Some(bytes) = self.0 {
                cache.units = Units::of_most(bytes);
            }
            let units: Vec<u64> = (0..20_000u64).map(|n| n * n % 4001 * 31 % 997 * 40).collect();
            units.chunks(64).for_each(|some| cache.access_all(some));
            cache.hits()
        }
    }

    #[test]
    fn giving_up_cells_changes_no_count() {
        for (name, choice) in ReplacementChoice::NAMED {
            let all = choice.with(100, 100, 4096, Counted(None));
            assert_eq!(choice.with(100, 100, 4096, Counted(Some(1))), all, "{name}");
            assert!(all.unique > 300 && all.misses > all.unique, "{all:?}");
        }
    }
}
