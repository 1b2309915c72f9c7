// SPDX-License-Identifier: MIT OR Apache-2.0
//! A volume leaves a clean cache that it shares: its units are evicted, and it gets no slot until it joins again.
//!
//! Invariant: when it has left, recovery finds nothing of it on flash. So writes to its origin need no record, and a program
//! that changes its origin afterwards makes nothing on flash stale.
//!
//! Units leave a few at a time, each as pins permit, and the next ones after the records of these are durable: the records of
//! all of them might not fit into the log. Slots are passed in their order, and again while some were pinned.

use super::unit_cache::UnitCache;
use crate::exec::MILLISECOND;
use crate::journal::Journal;
use crate::mutant;
use crate::request::Errno;

/// Units, or single pages, that leave together.
const TOGETHER: usize = 256;

impl<J: Journal> UnitCache<J> {
    /// A volume leaves.
    ///
    /// # Errors
    /// A record cannot be written; the origin is overdue and an operation on it keeps a unit (`ETIMEDOUT`); or the volume has
    /// joined again (`ECANCELED`).
    pub(crate) async fn leave(
        &self,
        volume: u32,
        has_joined: &dyn Fn() -> bool,
    ) -> Result<(), Errno> {
        let (table, cx) = (&self.table, &self.cx);
        let units = cx.shape.units_in(&cx.origins.volumes.range(volume));
        if !mutant::is_active("left-volume-admitted") {
            table.close(volume, units.clone());
        }
        let (mut next, mut pinned, mut singles) = (0, false, true);
        while !has_joined() {
            singles = singles && table.remove_singles(&units, TOGETHER);
            self.log_left();
            let slots = table.slots_of(&units, next, TOGETHER);
            let evicted =
                slots.iter().filter(|slot| self.evicted(table.evict_slot(**slot))).count();
            pinned |= evicted < slots.len();
            let dropped = self.all_dropped().await;
            if self.flash.closed() {
                return Ok(()); // nothing of any volume is used any more
            }
            dropped?;
            match slots.last() {
                Some(last) => next = last + 1,
                None if pinned => {
                    let waits = mutant::is_active("clear-waits-for-hung");
                    if cx.origins.of(volume).is_overdue() && !waits {
                        return Err(Errno::ETIMEDOUT);
                    }
                    cx.exec.sleep(MILLISECOND).await;
                    (next, pinned) = (0, false);
                }
                None if singles => {}
                None => return Ok(()),
            }
        }
        Err(Errno::ECANCELED)
    }

    /// Waits until recovery finds nothing of what was evicted.
    pub(super) async fn all_dropped(&self) -> Result<(), Errno> {
        match &self.journal {
            Some(journal) if !mutant::is_active("left-before-durable") => {
                journal.base().mapping.all_dropped().await.map_err(|_| Errno::EIO)
            }
            _ => Ok(()),
        }
    }
}
