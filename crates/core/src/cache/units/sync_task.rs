// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the paths of a write-back cache report to its syncer (`syncer.rs`).

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use larder_policy::syncer::{Syncer, SyncerSettings};

use super::dirty_map::DirtyMap;
use super::table::Table;
use crate::context::Context;
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
    /// The volume whose units it copies; `None` if there is one only.
    volume: Option<u32>,
}

impl SyncTask {
    /// One for each volume, so that the syncer of a healthy origin does not wait for another.
    pub(super) fn each(
        settings: &SyncerSettings,
        cx: &Context,
        table: &Table,
        dirty: &DirtyMap,
    ) -> Vec<Self> {
        let volumes = cx.origins.volumes.count();
        let syncer = |volume| Self {
            policy: RefCell::new(Syncer::new(settings)),
            wake: Rc::default(),
            stopped: Cell::new(false),
            copying: Cell::new(false),
            volume: (volumes > 1).then_some(volume),
        };
        let syncers: Vec<Self> = (0..volumes).map(syncer).collect();
        for unit in dirty.slots_from(0, usize::MAX).into_iter().filter_map(|s| table.unit_of(s)) {
            let syncer = &syncers[cx.origins.of_unit(unit).volume() as usize];
            syncer.policy.borrow_mut().dirtied(unit, syncer.slots(table), 0);
        }
        syncers
    }

    /// The slots of which a share may be dirty: those of the volume.
    pub(super) fn slots(&self, table: &Table) -> u32 {
        self.volume.map_or_else(|| table.limit(), |volume| table.used_by(volume))
    }

    /// Whether a write may make one more unit dirty.
    pub(super) fn admits(&self, table: &Table) -> bool {
        self.policy.borrow().admits(self.slots(table))
    }

    /// A change of a unit begins.
    pub(super) fn dirtied(&self, unit: u32, table: &Table, exec: &Exec<InFlight>) {
        if self.policy.borrow_mut().dirtied(unit, self.slots(table), exec.now()) {
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
