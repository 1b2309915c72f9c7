// SPDX-License-Identifier: MIT OR Apache-2.0
//! The part of flash that is in use changes, while clients use the volume and between lives.
//!
//! When a resize has ended, what lies beyond belongs to another user, who writes there at once: nothing is read from there any more,
//! nor after a crash, nor when flash has grown again.

use std::cell::Cell;
use std::rc::Rc;

use larder_core::buf::SECTOR;
use larder_core::format::{Plan, UnitsPlan};
use larder_core::journal::cut::cut;
use rand::RngExt;

use super::life::Life;
use super::on_flash::Found;
use super::wanted::Resizing;
use crate::device::SimDevice;

impl Life<'_> {
    /// The plan of a flash that is about to be attached: any part of the device that has the dirty data. Metadata has nothing of
    /// the rest from then on.
    pub(super) fn plan_of_life(&mut self, flash: &mut SimDevice, found: &mut Found) -> Plan {
        self.resizing = None;
        let Plan::Units(units) = self.setup.plan else { return self.setup.plan };
        if !self.may_resize() {
            return self.setup.plan;
        }
        let (shards, mut slots) = (self.setup.shape.shards, self.rng.random_range(1..=units.slots));
        let layouts = (0..shards).zip(units.layouts(self.volume)).zip(found);
        let kept: Vec<_> = layouts.filter_map(|(of, found)| Some((of, found.as_mut()?))).collect();
        for ((shard, layout), found) in &kept {
            let last = (0..layout.slots).rev().find(|slot| found.dirty(*slot, layout) != 0);
            let needed = |slot| u64::from(slot) * u64::from(shards) + u64::from(*shard) + 1;
            slots = slots.max(last.map_or(0, needed));
        }
        for ((shard, layout), found) in kept {
            let own = self.setup.shape.of_shard(shard).slots_of(slots);
            for (at, bytes) in cut(found, (&layout, self.volume), own) {
                flash.store.iter_mut().for_each(|store| store.write(at, &bytes, true));
            }
        }
        Plan::Units(UnitsPlan { slots, ..units })
    }

    fn may_resize(&self) -> bool {
        self.setup.resizes && self.setup.choices.placement.may_grow()
    }

    /// Asks for another part of flash to be used.
    pub(super) fn resize(&mut self, tenths: u64) {
        if !self.may_resize() || !self.attached {
            return;
        }
        let total = (self.setup.plan.slots() * tenths / 10).max(1);
        let left = Rc::new(Cell::new(self.setup.shape.shards));
        for shard in self.world.shards() {
            let left = Rc::clone(&left);
            shard.resize(total, move |result| {
                if result.is_ok() {
                    left.set(left.get() - 1);
                }
            });
        }
        self.resizing = Some(Resizing { total, left });
    }

    /// When a resize has ended, another user writes behind the part in use.
    pub(super) fn follow_resize(&mut self) {
        let ended = self.resizing.take_if(|resizing| resizing.left.get() == 0);
        let (Some(Resizing { total, .. }), Plan::Units(units)) = (ended, self.setup.plan) else {
            return;
        };
        self.seen.resized += 1;
        let used = UnitsPlan { slots: total, ..units };
        let device = self.world.device(self.flash);
        if let Some(store) = device.store.as_mut().filter(|_| self.attached) {
            for at in (used.end()..units.end()).step_by(SECTOR) {
                store.write(at, &[0xA5; SECTOR], true);
            }
        }
    }
}
