// SPDX-License-Identifier: MIT OR Apache-2.0
//! What flash has, and how much of it is read: a list from which another cache is warmed.
//!
//! The measure is that by which population compares slots: reads of a slot while as many reads come as the policy's window has
//! (`policy/src/admission/benefit.rs`). All pages of a mixed slot report that of the slot. Policies that exchange units in updates
//! report reference factors. Others have no measure, and give 0, as a page log does.

use super::units::warmth::Warmth;
use super::{Cache, Current, LogState};
use crate::buf::PAGE;

impl Current {
    /// What `most` slots from slot `first` on have, and where to continue. The slots of a log are its positions.
    pub(crate) fn heat(&self, first: u64, most: u32) -> (Vec<Warmth>, Option<u64>) {
        let some = |slots: u32| {
            let start = first.min(u64::from(slots)) as u32;
            start..start.saturating_add(most).min(slots)
        };
        let (parts, end, all) = match self.get() {
            Cache::Clean(clean) => {
                let (units, slots) = (&clean.units, some(clean.units.table.slots()));
                (units.heat(slots.clone()), slots.end.into(), units.table.slots().into())
            }
            Cache::WriteBack(cache) => {
                let (units, slots) = (&cache.units, some(cache.units.table.slots()));
                (units.heat(slots.clone()), slots.end.into(), units.table.slots().into())
            }
            Cache::Log(LogState::Open(open)) => {
                let all = open.log.all_positions();
                let start = first.clamp(all.start, all.end);
                let end = all.end.min(start.saturating_add(u64::from(most)));
                let page = PAGE as u64;
                let warmth =
                    |(at, ..): (u64, u64, bool)| Warmth { offset: at * page, len: page, reads: 0 };
                (open.log.valid_in(start..end).map(warmth).collect(), end, all.end)
            }
            Cache::Log(_) | Cache::PassThrough => (Vec::new(), 0, 0),
        };
        (parts, (end < all).then_some(end))
    }
}
