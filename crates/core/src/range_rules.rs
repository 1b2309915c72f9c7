// SPDX-License-Identifier: MIT OR Apache-2.0
//! What an administrator asks for ranges: *pinned* ones are cached and not evicted, *excluded* ones are never admitted.
//!
//! Ranges are places in the space of all volumes. They are extended to whole units, and a unit with bytes of both is
//! excluded. The units that a rule pins are called *kept* in the engine, since a pin there belongs to an operation.
//!
//! Invariants: in each shard at most three quarters of the slots are kept, so replacement has slots to decide about; a rule
//! concerns what is admitted and evicted, and never which device has the current data.

use std::ops::Range;

use crate::config::Placement;
use crate::mutant;
use crate::ranges::{has, merged, without};
use crate::shape::Shape;

/// The rules of all volumes of a cache.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RangeRules {
    pinned: Vec<Range<u64>>,
    excluded: Vec<Range<u64>>,
}

/// The most units of so many slots that are kept.
pub(crate) fn most_kept(slots: u32) -> u32 {
    slots - slots.div_ceil(4)
}

impl RangeRules {
    /// Rules for these ranges, in units of so many bytes.
    #[must_use]
    pub fn new(pinned: &[Range<u64>], excluded: &[Range<u64>], unit_bytes: u64) -> Self {
        let whole = |range: &Range<u64>| {
            range.start / unit_bytes * unit_bytes..range.end.next_multiple_of(unit_bytes)
        };
        let units = |ranges: &[Range<u64>]| merged(ranges.iter().map(whole).collect());
        let excluded = units(excluded);
        Self { pinned: without(&units(pinned), &excluded), excluded }
    }

    /// Whether the unit at this place is kept.
    pub(crate) fn keeps(&self, at: u64) -> bool {
        !self.pinned.is_empty() && has(&self.pinned, at) && !mutant::is_active("kept-evicted")
    }

    /// Whether the unit at this place is never admitted.
    pub(crate) fn excludes(&self, at: u64) -> bool {
        let excludes = !self.excluded.is_empty() && has(&self.excluded, at);
        excludes && !mutant::is_active("excluded-admitted")
    }

    pub(crate) fn pinned(&self) -> &[Range<u64>] {
        &self.pinned
    }

    pub(crate) fn excluded(&self) -> &[Range<u64>] {
        &self.excluded
    }

    /// Whether a shard of this shape that has its part of `slots` slots can keep all of its units that are pinned. Where slots form
    /// sets, a set may still have too few.
    #[must_use]
    pub fn fit(&self, shape: &Shape, slots: u64, placement: Placement) -> bool {
        let most = most_kept(placement.usable(shape.slots_of(slots))) as usize;
        let mut units = self.pinned.iter().flat_map(|range| shape.units_touching(range));
        units.nth(most).is_none()
    }
}

#[cfg(test)]
mod tests {
    use std::slice::from_ref;

    use super::*;

    #[test]
    fn ranges_are_extended_to_whole_units_and_a_unit_of_both_is_excluded() {
        let rules = RangeRules::new(&[5..15, 40..50], from_ref(&(29..41)), 10);
        let kept: Vec<u64> = (0..6).map(|unit| 10 * unit).filter(|at| rules.keeps(*at)).collect();
        let excluded: Vec<u64> =
            (0..6).map(|unit| 10 * unit).filter(|at| rules.excludes(*at)).collect();
        assert_eq!((kept, excluded), (vec![0, 10], vec![20, 30, 40]));
    }

    #[test]
    fn a_quarter_of_the_slots_of_each_shard_is_not_pinned() {
        let fits = |units: u64, slots| {
            let rules = RangeRules::new(from_ref(&(0..units * 4096)), &[], 4096);
            (0..2).all(|shard| {
                let shape = Shape::new(1 << 20, 4096, 2).of_shard(shard);
                rules.fit(&shape, slots, Placement::Anywhere)
            })
        };
        assert!(fits(12, 16) && !fits(13, 16) && fits(0, 0) && !fits(1, 2));
    }
}
