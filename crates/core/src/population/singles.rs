// SPDX-License-Identifier: MIT OR Apache-2.0
//! Single pages of units: what the paths of a cache ask the policy (`larder_policy::admission::Singles`).

use larder_policy::admission::Singles;

use super::demand::{Population, Workers};
use crate::buf::PAGE;
use crate::cache::units::mixed::MixedSlot;
use crate::shape::Place;

/// How a slot becomes mixed when the open one is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Growth {
    /// A free slot does.
    Free,
    /// The slot of a unit does, if a unit is read little enough; else the mixed slot that is due is recycled.
    Displaces,
    /// The mixed slot that is due is recycled.
    None,
}

impl Population {
    fn with_singles<R>(&self, ask: impl FnOnce(&Workers, &mut Singles) -> R) -> Option<R> {
        let workers = self.workers()?;
        let singles = workers.singles.as_ref()?;
        let singles = &mut singles.borrow_mut();
        singles.set_scatter(workers.scatter());
        Some(ask(workers, singles))
    }

    /// Whether the pages of a read that missed are admitted without the rest of their unit. `free`: the share of slots
    /// that are free.
    pub(crate) fn admits_single(&self, place: &Place, free: f64) -> bool {
        let page = PAGE as u64;
        let whole = place.within.is_multiple_of(page) && place.len.is_multiple_of(page);
        let admits = |workers: &Workers, singles: &mut Singles| {
            // Where extended reads pay, they admit.
            let extends = workers.completes(free) && workers.extensions_pay();
            workers.is_scarce() && !extends && singles.admits(place.offset / page, place.len)
        };
        whole && self.with_singles(admits).unwrap_or(false)
    }

    /// How another slot becomes mixed. `free`: whether a slot is free; `sample`: one of the mixed slots.
    pub(crate) fn mixes(
        &self,
        due: Option<MixedSlot>,
        sample: Option<MixedSlot>,
        free: bool,
    ) -> Growth {
        let growth = |_: &Workers, singles: &mut Singles| {
            if let Some(sample) = sample {
                singles.judge(sample.opened_at, sample.hits);
            }
            match due {
                Some(MixedSlot { is_live: false, .. }) => Growth::None,
                _ if !singles.may_grow() => Growth::None,
                _ if free => Growth::Free,
                _ => Growth::Displaces,
            }
        };
        self.with_singles(growth).unwrap_or(Growth::None)
    }

    /// Whether another mixed slot may displace a unit that is read so often.
    pub(crate) fn single_displaces(&self, frequency: f64) -> bool {
        self.with_singles(|_, singles| singles.displaces(frequency)).unwrap_or(false)
    }

    /// Whether a unit displaces the mixed slot that is due.
    pub(crate) fn displaces_singles(&self, unit: u32) -> bool {
        let yields = |workers: &Workers, singles: &mut Singles| {
            !workers.is_scarce() || singles.yields(workers.frequency(unit))
        };
        self.with_singles(yields).unwrap_or(false)
    }

    /// Whether a slot is better spent on single pages than on this unit, while more units are read than the cache has slots.
    pub(crate) fn prefers_singles(&self, unit: u32) -> bool {
        let outbids = |workers: &Workers, singles: &mut Singles| {
            workers.is_scarce() && singles.outbids(workers.frequency(unit))
        };
        self.with_singles(outbids).unwrap_or(false)
    }

    /// Whether single pages are admitted at all.
    pub(crate) fn has_singles(&self) -> bool {
        self.with_singles(|_, _| ()).is_some()
    }

    /// One more slot is mixed, or one less.
    pub(crate) fn mixed(&self, more: bool) {
        self.with_singles(|_, singles| if more { singles.opened() } else { singles.closed() });
    }

    /// How often a mixed slot is read, by the policy's measure.
    pub(crate) fn frequency_of_mixed(&self, slot: MixedSlot) -> f64 {
        let measure =
            |_: &Workers, singles: &mut Singles| singles.frequency(slot.opened_at, slot.hits);
        self.with_singles(measure).unwrap_or(0.0)
    }

    /// Reads of clients up to now.
    pub(crate) fn reads(&self) -> u64 {
        self.with_singles(|_, singles| singles.reads()).unwrap_or(0)
    }
}
