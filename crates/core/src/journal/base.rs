// SPDX-License-Identifier: MIT OR Apache-2.0
//! The part that the journals of both kinds of unit caches share.

use std::cell::Cell;
use std::rc::Rc;

use super::log::Log;
use super::mapping::Mapping;
use crate::cache::units::mixed::Left;
use crate::cache::units::table::{Evicted, Table};
use crate::context::Context;
use crate::pages::Pages;

/// The interface of a journal to the paths of a unit cache.
pub(crate) trait Journal {
    /// The common part.
    fn base(&self) -> &Base;
    /// Whether everything is logged, or the log failed.
    fn is_settled(&self) -> bool;
    /// Pages of the slot (places, if it is mixed) become valid that are not logged.
    fn changed(&self, slot: u32, pages: &Pages);
    /// What a slot held was evicted.
    fn removed(&self, evicted: Evicted);
    /// A page left its place in a mixed slot.
    fn left(&self, left: Left);
}

/// Requests to the checkpointer, and its progress.
#[derive(Default)]
pub(crate) struct Progress {
    /// Log everything soon: the volume stops.
    pub hurry: Cell<bool>,
    /// Make a checkpoint: an update has ended.
    pub save: Cell<bool>,
    /// The records of a snapshot are not enqueued yet.
    pub logging: Cell<bool>,
}

/// The common part of a journal.
pub(crate) struct Base {
    pub cx: Rc<Context>,
    pub table: Rc<Table>,
    pub mapping: Mapping,
    pub progress: Progress,
}

impl Base {
    /// `restored`: slots whose units were recovered.
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

    /// Requests that everything be logged soon.
    pub(crate) fn hurry(&self) {
        if self.progress.hurry.replace(true) {
            return;
        }
        if self.log().layout.factors > 0 {
            self.progress.save.set(true);
        }
        self.log().checkpoint_due.set(&self.cx.exec);
    }

    /// Requests a checkpoint.
    pub(crate) fn save(&self) {
        self.progress.save.set(true);
    }

    /// Whether all enqueued records are durable and no checkpoint is requested or in progress, or the log failed.
    pub(super) fn is_settled(&self) -> bool {
        let idle = !self.progress.save.get() && !self.progress.logging.get();
        self.log().has_failed() || self.log().is_settled() && idle
    }

    /// Appends the reference factors of the origin's units, if the layout has them.
    pub(super) fn factors(&self, out: &mut Vec<u8>) {
        self.cx.population.factors(self.log().layout.factors, out);
    }
}
