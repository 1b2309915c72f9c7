// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the journals of both kinds of unit caches have in common.

use std::cell::Cell;
use std::rc::Rc;

use super::log::Log;
use super::mapping::Mapping;
use crate::cache::units::table::{Evicted, Table};
use crate::context::Context;

/// What the paths of every kind of unit cache tell its journal.
pub(crate) trait Journal {
    /// What both kinds have.
    fn base(&self) -> &Base;
    /// Whether everything is logged, or nothing more can be.
    fn is_settled(&self) -> bool;
    /// The slot has pages valid that are not logged.
    fn changed(&self, slot: u32);
    /// A unit was evicted.
    fn removed(&self, evicted: Evicted);
}

/// What was asked of the checkpointer, and what it is doing.
#[derive(Default)]
pub(crate) struct Progress {
    /// Everything is to be logged soon: the volume stops.
    pub hurry: Cell<bool>,
    /// The whole state is to be written anew: an update has ended.
    pub save: Cell<bool>,
    /// A snapshot was taken whose records are not enqueued yet.
    pub logging: Cell<bool>,
}

/// See the module.
pub(crate) struct Base {
    pub cx: Rc<Context>,
    pub table: Rc<Table>,
    pub mapping: Mapping,
    pub progress: Progress,
}

impl Base {
    /// `restored`: slots that a restart found in the log.
    pub(super) fn new(
        cx: &Rc<Context>,
        table: &Rc<Table>,
        log: Rc<Log>,
        restored: impl Iterator<Item = u32>,
    ) -> Self {
        let mapping = Mapping::new(log);
        restored.for_each(|slot| mapping.set_logged(slot, true));
        let progress = Progress::default();
        Self { cx: Rc::clone(cx), table: Rc::clone(table), mapping, progress }
    }

    pub(crate) fn log(&self) -> &Log {
        self.mapping.log()
    }

    /// Asks that everything be logged soon.
    pub(crate) fn hurry(&self) {
        if !self.progress.hurry.replace(true) && self.log().layout.factors > 0 {
            self.progress.save.set(true);
        }
    }

    /// Asks that the whole state be written anew.
    pub(crate) fn save(&self) {
        self.progress.save.set(true);
    }

    /// Whether all that was enqueued is durable and nothing is asked for or going on, or nothing more can be logged.
    pub(super) fn is_settled(&self) -> bool {
        let idle = !self.progress.save.get() && !self.progress.logging.get();
        self.log().has_failed() || self.log().is_settled() && idle
    }

    /// Appends the reference factors of the origin's units, where they are kept.
    pub(super) fn factors(&self, out: &mut Vec<u8>) {
        self.cx.population.factors(self.log().layout.factors, out);
    }
}
