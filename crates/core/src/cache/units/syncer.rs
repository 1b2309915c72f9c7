// SPDX-License-Identifier: MIT OR Apache-2.0
//! The syncer of a write-back cache: copies dirty units to the origin while they stay cached (Holland et al. 3.5; flashcache
//! and bcache in SCE 4.4). Each volume has its own.
//!
//! Which units, and when, is a policy (`larder_policy::syncer`). A round enters the units in which no client is, copies their
//! dirty regions, flushes both devices, and makes those units clean that no client changed since. Clients do not wait for it;
//! a change marks its regions before it writes flash, so that it is noticed. A crash at any moment leaves them dirty.
//!
//! The pins of a round keep its slots from eviction, and being inside keeps exchanges, clears and evictions out, so that no
//! older copy arrives on the origin after a newer one.

use std::rc::{Rc, Weak};

use larder_policy::syncer::SyncNow;

use super::copy_back::TOGETHER;
use super::gate::Pass;
use super::sync_task::SyncTask;
use super::table::{Hold, SlotPin};
use super::write_back::{PATIENCE, WriteBack};
use crate::exec::{MILLISECOND, Nanos, SECOND};
use crate::mutant;

/// Pause after a round whose units were all in use.
const BUSY: Nanos = MILLISECOND;
/// Pause after a round in which a device failed.
const FAILED: Nanos = SECOND / 10;

/// When the next round begins.
enum Next {
    AtOnce,
    /// After a pause, whatever clients do meanwhile.
    After(Nanos),
    /// After this time, or when a client makes a unit due.
    WhenDue(Nanos),
}

/// A unit that is being copied.
struct Copying {
    pin: SlotPin,
    unit: u32,
    /// The number of its last change.
    change: u64,
    _pass: Pass,
}

/// The task of a volume.
pub(crate) async fn run(cache: Weak<WriteBack>, volume: u32) {
    while let Some(cache) = cache.upgrade() {
        if cache.units.flash.closed() {
            return;
        }
        let syncer = &cache.syncers[volume as usize];
        let next = cache.round(syncer, volume).await;
        let (wake, exec) = (Rc::clone(&syncer.wake), cache.units.cx.exec.clone());
        drop(cache);
        match next {
            Next::AtOnce => {}
            Next::After(pause) => exec.sleep(pause).await,
            Next::WhenDue(rest) => wake.wait_for(rest, &exec).await,
        }
    }
}

impl WriteBack {
    /// One round.
    async fn round(&self, syncer: &SyncTask, volume: u32) -> Next {
        // A failed flush of an origin is final: nothing of its volume becomes clean any more.
        let unflushable = self.units.cx.origins.of(volume).flush_failed().is_some();
        if unflushable {
            self.units.table.hold(volume, Hold::Refused, true);
        }
        if syncer.stopped.get() || unflushable || !self.units.flash.usable() {
            return Next::WhenDue(SECOND);
        }
        let due = self.due(syncer);
        if due.is_empty() {
            return Next::WhenDue(self.rest(syncer));
        }
        syncer.copying.set(true);
        let next = self.sync(syncer, due).await;
        syncer.copying.set(false);
        next
    }

    fn due(&self, syncer: &SyncTask) -> Vec<u32> {
        let (cx, mut policy) = (&self.units.cx, syncer.policy.borrow_mut());
        let idle = policy.settings().idle_ns.is_some_and(|idle| cx.busy_for(idle).is_none());
        policy.next(SyncNow { now: cx.exec.now(), slots: syncer.slots(&self.units.table), idle })
    }

    /// How long nothing is due.
    fn rest(&self, syncer: &SyncTask) -> Nanos {
        let (cx, policy) = (&self.units.cx, syncer.policy.borrow());
        let due = policy.due_at().map(|at| at.saturating_sub(cx.exec.now()));
        let idle = policy.settings().idle_ns.filter(|_| policy.dirty() > 0);
        let idle = idle.and_then(|idle| cx.busy_for(idle));
        due.into_iter().chain(idle).chain([SECOND]).min().unwrap_or(SECOND).max(1)
    }

    /// Copies units to the origin, and makes those clean that were not changed meanwhile.
    async fn sync(&self, syncer: &SyncTask, units: Vec<u32>) -> Next {
        let mut copying: Vec<Copying> =
            units.into_iter().filter_map(|unit| self.begin_copy(syncer, unit)).collect();
        if copying.is_empty() {
            return Next::After(BUSY);
        }
        let pins: Vec<(SlotPin, u32)> =
            copying.iter().map(|one| (one.pin.clone(), one.unit)).collect();
        let failed = self.copy(&pins, TOGETHER).await;
        drop(pins);
        let volumes = self.units.cx.origins.volumes_of(copying.iter().map(|one| one.unit));
        let early = mutant::is_active("synced-before-durable");
        if !early && self.flush_copy(volumes).await.is_err() {
            return Next::After(SECOND);
        }
        let now = self.units.cx.exec.now();
        let mut lost = Vec::new();
        for (at, one) in copying.drain(..).enumerate() {
            let slot = one.pin.slot();
            let unchanged = self.dirty.change(slot) == Some(one.change);
            let failed = failed.iter().any(|(of, _)| *of == at);
            if failed || !unchanged && !mutant::is_active("synced-over-newer") {
                syncer.policy.borrow_mut().again(one.unit, now);
            } else if self.slots.writes.has_lost(slot) {
                lost.push((slot, one.unit, one.change));
            } else {
                self.made_clean(slot, one.unit);
            }
        }
        for one in lost {
            self.drop_lost_copy(one).await;
        }
        if failed.is_empty() { Next::AtOnce } else { Next::After(FAILED) }
    }

    /// Enters a dirty unit, if no client is in it.
    fn begin_copy(&self, syncer: &SyncTask, unit: u32) -> Option<Copying> {
        let Some(slot) = self.units.table.slot_of(unit) else {
            syncer.policy.borrow_mut().cleaned(unit);
            return None;
        };
        let Some(_pass) = self.gate.enter_alone(unit) else {
            syncer.policy.borrow_mut().passed(unit);
            return None;
        };
        let change = self.dirty.change(slot)?;
        let (pin, _) = self.units.table.pin_used(slot)?;
        Some(Copying { pin, unit, change, _pass })
    }

    /// A flush that failed lost on flash what the origin has by now: the unit is evicted.
    async fn drop_lost_copy(&self, (slot, unit, change): (u32, u32, u64)) {
        let shut = self.gate.shut(vec![unit], PATIENCE, &self.units.cx.exec).await;
        let is_copied = self.dirty.change(slot) == Some(change);
        if shut.is_some() && is_copied && self.units.table.unit_of(slot) == Some(unit) {
            // An eviction that fails is tried again: the unit is dirty.
            let _ = self.evict_durably(slot).await;
        }
    }

    /// Evicts units that are clean, and lost on flash. Returns whether there were any.
    pub(super) async fn drop_clean_losses(&self) -> bool {
        let mut any = false;
        for slot in self.slots.writes.lost_slots() {
            let Some(unit) = self.units.table.unit_of(slot) else { continue };
            let shut = self.gate.shut(vec![unit], PATIENCE, &self.units.cx.exec).await;
            let is_same = self.units.table.unit_of(slot) == Some(unit);
            if shut.is_some() && is_same && self.dirty.mask(slot) == 0 {
                any |= self.evict_durably(slot).await.is_ok();
            }
        }
        any
    }
}
