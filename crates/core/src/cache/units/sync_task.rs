// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the paths of a write-back cache report to its syncer (`syncer.rs`).

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use larder_policy::syncer::{Syncer, SyncerSettings};

use super::dirty_map::DirtyMap;
use super::table::Table;
use crate::exec::{Exec, Signal};
use crate::flash::InFlight;
use crate::mutant;

/// The task's policy, and what wakes it.
pub(crate) struct SyncTask {
    pub(super) policy: RefCell<Syncer>,
    pub(super) wake: Rc<Signal>,
    pub(super) stopped: Cell<bool>,
    /// Whether a round is copying.
    pub(super) copying: Cell<bool>,
}

impl SyncTask {
    pub(super) fn new(settings: &SyncerSettings, table: &Table, dirty: &DirtyMap) -> Self {
        let mut policy = Syncer::new(settings);
        for slot in dirty.slots_from(0, usize::MAX) {
            table.unit_of(slot).into_iter().for_each(|unit| {
                policy.dirtied(unit, table.slots(), 0);
            });
        }
        let policy = RefCell::new(policy);
        Self { policy, wake: Rc::default(), stopped: Cell::new(false), copying: Cell::new(false) }
    }

    /// A change of a unit begins.
    pub(super) fn dirtied(&self, unit: u32, slots: u32, exec: &Exec<InFlight>) {
        if self.policy.borrow_mut().dirtied(unit, slots, exec.now()) {
            self.wake.set(exec);
        }
    }

    /// Eviction wants the slot of a dirty unit.
    pub(super) fn wants(&self, unit: u32, exec: &Exec<InFlight>) {
        if !mutant::is_active("syncer-starves-eviction") {
            self.policy.borrow_mut().wants(unit);
            self.wake.set(exec);
        }
    }

    /// The volume stops: no further round.
    pub(super) fn stop(&self, exec: &Exec<InFlight>) {
        self.stopped.set(true);
        self.wake.set(exec);
    }

    /// Whether it copies nothing.
    pub(super) fn is_at_rest(&self) -> bool {
        !self.copying.get()
    }
}
