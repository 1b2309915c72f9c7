// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sequential streams: what the paths of a cache ask the policy (`larder_policy::admission::Sequential`).

use larder_policy::admission::Sequence;

use super::demand::{Population, Workers};
use crate::shape::Place;

impl Population {
    /// A client reads: what the read belongs to. Called before the lookup, because hits continue a stream too. `free`: the
    /// share of slots that are free, `None` without slots. While many are, a new stream is cached as one that returns: it
    /// displaces nothing.
    #[inline]
    pub(crate) fn sequence(&self, place: &Place, free: impl Fn() -> Option<f64>) -> Sequence {
        let Some(workers) = self.workers() else { return Sequence::None };
        let Some(sequential) = &workers.sequential else { return Sequence::None };
        let has_room = || free().is_some_and(|free| workers.completes(free));
        let remembers = || workers.remembers(place.unit) || has_room();
        let at = (u64::from(place.unit), place.within);
        sequential.borrow_mut().requested(at, place.len, remembers)
    }
}

impl Workers {
    /// Whether a unit was read in the recent past.
    fn remembers(&self, unit: u32) -> bool {
        self.benefit.as_ref().is_some_and(|benefit| benefit.borrow().remembers(unit))
    }

    /// A client read a unit past the cache.
    pub(super) fn passed(&self, unit: u32) {
        if let Some(benefit) = &self.benefit {
            benefit.borrow_mut().passed(Some(unit));
        }
        if let Some(singles) = &self.singles {
            singles.borrow_mut().requested();
        }
    }
}
