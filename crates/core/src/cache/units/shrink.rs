// SPDX-License-Identifier: MIT OR Apache-2.0
//! Slots beyond a table's limit are emptied (`sizes.rs`): their part of the device is given back.
//!
//! Dirty data is copied to the origin first. Clients continue: a unit that leaves may come back, into a slot up to the limit.
//!
//! Invariant: at the end recovery finds nothing in these slots either. So the device may be cut there, and may grow again later
//! without old content coming back.

use std::rc::Rc;

use super::clean::Clean;
use super::table::Table;
use super::unit_cache::UnitCache;
use super::write_back::WriteBack;
use crate::journal::Journal;
use crate::mutant;
use crate::request::Errno;

/// Slots that are emptied together, before their records are durable.
const TOGETHER: usize = 256;

/// Where a pass over the slots continues: a volume, and a slot. A clean cache passes those of all volumes together.
type Next = (u32, u32);

impl Clean {
    /// Empties the next slots, as pins permit; returns where to continue, or `None` behind the last slot. Then recovery finds nothing of
    /// what left before.
    ///
    /// # Errors
    /// A record cannot be written.
    pub(crate) async fn empty_next(&self, (_, next): Next) -> Result<Option<Next>, Errno> {
        let (units, cx) = (&self.units, &self.units.cx);
        let slots = units.table.used_from(next, TOGETHER);
        for slot in &slots {
            let is_mixed = units.table.mixed_in(*slot).is_some();
            if units.evicted(units.table.evict_slot(*slot)) && is_mixed {
                cx.population.mixed(false);
            }
        }
        units.log_left();
        if !mutant::is_active("shrunk-before-durable") {
            units.all_dropped().await?;
        }
        Ok(slots.last().map(|last| (0, last + 1)))
    }
}

impl WriteBack {
    /// The same, after dirty data was copied to the origin.
    ///
    /// # Errors
    /// A device fails, or dirty data is lost.
    pub(crate) async fn empty_next(&self, (volume, next): Next) -> Result<Option<Next>, Errno> {
        let (table, cx) = (&self.units.table, &self.units.cx);
        if volume == cx.origins.volumes.count() {
            self.evictions_end().await?;
            return Ok(None);
        }
        let units = cx.shape.units_in(&cx.origins.volumes.range(volume));
        let slots = table.slots_of(&units, next, self.batch());
        let Some(last) = slots.last().copied() else {
            return Ok(Some((volume + 1, table.limit())));
        };
        if mutant::is_active("shrink-loses-dirty") {
            for slot in &slots {
                self.evict(*slot);
            }
        } else {
            match self.clear_slots(units.start, slots, true).await {
                Some(done) => done??,
                None => return Ok(Some((volume, next))), // a client is inside one of them for long
            }
        }
        Ok(Some((volume, last + 1)))
    }
}

impl<J: Journal> UnitCache<J> {
    /// The number of slots changes: those below `slots` may receive units. Returns the table, unless its number is fixed.
    pub(crate) fn resize(&self, slots: u32) -> Option<Rc<Table>> {
        if !self.table.may_resize() {
            return None;
        }
        self.table.resize(slots);
        if let Some(sums) = self.flash.sums() {
            sums.has_slots(self.table.slots());
        }
        // More, or fewer, of what is pinned fits.
        self.table.follow(&self.cx.rules.borrow());
        self.cx.population.resized(self.table.limit(), &self.cx.shape);
        Some(Rc::clone(&self.table))
    }
}
