// SPDX-License-Identifier: MIT OR Apache-2.0
//! TAC's replacement (FaCE, 3.2): pages of hot extents stay.
//!
//! An *extent* is 32 neighbouring pages. Each page of it that the pool has to fetch makes it one
//! degree warmer, wherever the page is fetched from. A page is admitted to a full cache only if its extent is
//! warmer than the coldest that has a page there, from which a page is evicted. After ten fetches a slot all
//! temperatures are halved, so that pages that were hot long ago can be evicted. FaCE does not state how TAC ages them,
//! nor how it weighs reads.
//!
//! Invariant: the order has just those extents that have a page in the cache, at their temperature.

use std::collections::BTreeSet;

use hashbrown::HashMap;
use larder_policy::replacement::Replacement;

/// Pages of an extent.
const EXTENT_PAGES: u64 = 32;
/// Fetches a slot after which temperatures are halved.
const AGES: u64 = 10;

#[derive(Default)]
struct Extent {
    degrees: u32,
    slots: Vec<u32>,
}

/// The policy, see the module.
pub(super) struct Temperature {
    extents: HashMap<u64, Extent>,
    order: BTreeSet<(u32, u64)>,
    pages: Vec<u64>,
    fetches: u64,
}

impl Temperature {
    /// Over so many slots.
    pub(super) fn new(slots: u32) -> Self {
        Self {
            extents: HashMap::new(),
            order: BTreeSet::new(),
            pages: vec![0; slots as usize],
            fetches: 0,
        }
    }

    /// The pool had to fetch a page.
    pub(super) fn missed(&mut self, page: u64) {
        let number = page / EXTENT_PAGES;
        let extent = self.extents.entry(number).or_default();
        extent.degrees += 1;
        if !extent.slots.is_empty() {
            self.order.remove(&(extent.degrees - 1, number));
            self.order.insert((extent.degrees, number));
        }
        self.fetches += 1;
        if self.fetches >= AGES * self.pages.len() as u64 {
            self.age();
        }
    }

    fn age(&mut self) {
        self.fetches = 0;
        self.extents.values_mut().for_each(|extent| extent.degrees /= 2);
        self.extents.retain(|_, extent| extent.degrees > 0 || !extent.slots.is_empty());
        let cached = self.extents.iter().filter(|(_, extent)| !extent.slots.is_empty());
        self.order = cached.map(|(number, extent)| (extent.degrees, *number)).collect();
    }
}

impl Replacement for Temperature {
    fn inserted(&mut self, slot: u32, page: u64) {
        let number = page / EXTENT_PAGES;
        self.pages[slot as usize] = page;
        let extent = self.extents.entry(number).or_default();
        extent.slots.push(slot);
        self.order.insert((extent.degrees, number));
    }

    fn accessed(&mut self, _slot: u32) {}

    fn removed(&mut self, slot: u32) {
        let number = self.pages[slot as usize] / EXTENT_PAGES;
        let Some(extent) = self.extents.get_mut(&number) else { return };
        extent.slots.retain(|other| *other != slot);
        if extent.slots.is_empty() {
            self.order.remove(&(extent.degrees, number));
        }
    }

    fn victim(&mut self, incoming: u64, _set: u32, may_leave: &dyn Fn(u32) -> bool) -> Option<u32> {
        let warm = self.extents.get(&(incoming / EXTENT_PAGES)).map_or(0, |extent| extent.degrees);
        let colder = self.order.iter().take_while(|(degrees, _)| *degrees < warm);
        colder
            .filter_map(|(_, number)| self.extents.get(number))
            .flat_map(|extent| &extent.slots)
            .copied()
            .find(|slot| may_leave(*slot))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_coldest_extent_loses_a_page_to_a_warmer_one_alone() {
        let mut policy = Temperature::new(3);
        for (slot, page) in [(0, 0), (1, 33), (2, 64)] {
            policy.missed(page);
            policy.inserted(slot, page);
        }
        policy.missed(1);
        policy.missed(65);
        assert_eq!(policy.victim(100, 0, &|_| true), None, "never fetched");
        policy.missed(100);
        assert_eq!(policy.victim(100, 0, &|_| true), None, "as warm as the coldest");
        policy.missed(101);
        assert_eq!(policy.victim(100, 0, &|_| true), Some(1));
        assert_eq!(policy.victim(100, 0, &|slot| slot != 1), None, "0 and 2 are as warm");
        policy.removed(1);
        policy.inserted(1, 100);
        assert_eq!(policy.victim(40, 0, &|_| true), None);
    }

    #[test]
    fn what_was_hot_long_ago_is_no_warmer_than_what_is_warm_now() {
        let mut policy = Temperature::new(1);
        (0..9).for_each(|_| policy.missed(0));
        policy.inserted(0, 0);
        policy.missed(32);
        // The tenth fetch has halved 9 and 1.
        (0..4).for_each(|_| policy.missed(32));
        assert_eq!(policy.victim(32, 0, &|_| true), None, "4 and 4");
        policy.missed(32);
        assert_eq!(policy.victim(32, 0, &|_| true), Some(0));
        assert_eq!(policy.order.len(), 1);
    }
}
