// SPDX-License-Identifier: MIT OR Apache-2.0
//! The part of flash that a cache of units uses becomes larger or smaller while it serves.
//!
//! Metadata has room for a number of slots, of which those from 0 on are in use. More slots are in use at once. Fewer are, when the
//! slots beyond hold nothing, and recovery finds nothing in them (`units/shrink.rs`); only then may the device be cut. Nothing on flash
//! states how many slots are in use: that is a matter of the device's size and of the configuration, at each start.
//!
//! Invariant: a resize that fails keeps its number of slots as the limit. The caller sets the earlier one again; more slots are in
//! use at once, so it need not wait for the end of that.

use std::rc::Rc;

use super::units::table::Table;
use super::{Cache, Current};
use crate::exec::MILLISECOND;
use crate::request::Errno;

/// How long a shrink rests before it tries again to empty slots that are in use.
const REST: u64 = 20 * MILLISECOND;

/// A resize whose number of slots is in force.
pub(crate) struct Begun {
    table: Rc<Table>,
    slots: u32,
}

impl Current {
    /// From now on `total` slots of the device may hold units, over all shards.
    ///
    /// # Errors
    /// No flash is attached (`ENODEV`), or this kind of cache has a fixed number of slots (`EOPNOTSUPP`).
    pub(crate) fn begin_resize(&self, total: u64) -> Result<Begun, Errno> {
        let slots = self.cx.shape.slots_of(total);
        let resized = match self.get() {
            Cache::PassThrough => return Err(Errno::ENODEV),
            Cache::Log(_) => None,
            Cache::Clean(clean) => clean.units.resize(slots),
            Cache::WriteBack(cache) => cache.units.resize(slots),
        };
        Ok(Begun { table: resized.ok_or(Errno::EOPNOTSUPP)?, slots })
    }

    /// Waits until the slots beyond are empty.
    ///
    /// # Errors
    /// A detach or a stop has begun, or another resize follows (`ECANCELED`), an origin is overdue (`ETIMEDOUT`), or a device fails.
    pub(crate) async fn end_resize(self: Rc<Self>, begun: Begun) -> Result<(), Errno> {
        let Begun { table, slots } = begun;
        let mut next = (0, slots);
        loop {
            let turn = self.turn().await?;
            let is_current = self.table().is_some_and(|current| Rc::ptr_eq(&current, &table));
            if !is_current || table.limit() != slots {
                return Err(Errno::ECANCELED);
            }
            let emptied = match self.get() {
                Cache::Clean(clean) => clean.empty_next(next).await?,
                Cache::WriteBack(cache) => cache.empty_next(next).await?,
                Cache::PassThrough | Cache::Log(_) => return Err(Errno::ENODEV),
            };
            drop(turn);
            match emptied {
                // Not earlier: what left for an earlier resize may not be recorded durably.
                None if table.beyond() == 0 && table.limit() == slots => break,
                Some(continues) => {
                    next = continues;
                    self.cx.exec.sleep(1).await; // yields to clients
                }
                None => {
                    // Clients use those that are left.
                    next = (0, slots);
                    self.cx.exec.sleep(REST).await;
                }
            }
        }
        table.resized();
        Ok(())
    }

    /// Slots that a shrink has not emptied.
    pub(crate) fn slots_beyond(&self) -> u32 {
        self.table().map_or(0, |table| table.beyond())
    }
}
