// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which slots' units the log names, and which old mappings are still to be dropped from flash.
//!
//! Invariant: a slot is logged only for the unit that it holds. A slot's old mapping is durably dropped before new
//! content is written into it, and before its old unit is written elsewhere (design rule 9).

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use super::log::{Log, LogFailed, Ticket};
use super::record::Record;
use crate::cache::units::table::Evicted;
use crate::mutant;

/// The mappings of one journal, see the module.
pub(crate) struct Mapping {
    pub(super) log: Rc<Log>,
    /// A bit per slot whose unit is on flash, or will be with what is being written.
    logged: RefCell<Vec<u64>>,
    /// Slots whose old unit is about to be dropped from flash.
    dropped: RefCell<BTreeMap<u32, Ticket>>,
    /// Units that were evicted, until that is durable.
    left: RefCell<BTreeMap<u32, Ticket>>,
}

impl Mapping {
    pub(super) fn new(log: Rc<Log>) -> Self {
        let words = log.layout.slots.div_ceil(64) as usize;
        let logged = RefCell::new(vec![0; words]);
        Self { log, logged, dropped: RefCell::default(), left: RefCell::default() }
    }

    /// The log.
    pub(crate) fn log(&self) -> &Log {
        &self.log
    }

    pub(super) fn is_logged(&self, slot: u32) -> bool {
        self.logged.borrow()[slot as usize / 64] >> (slot % 64) & 1 == 1
    }

    pub(super) fn set_logged(&self, slot: u32, logged: bool) {
        let word = &mut self.logged.borrow_mut()[slot as usize / 64];
        *word = *word & !(1 << (slot % 64)) | u64::from(logged) << (slot % 64);
    }

    /// How many slots are logged.
    pub(crate) fn logged_count(&self) -> u64 {
        self.logged.borrow().iter().map(|word| u64::from(word.count_ones())).sum()
    }

    /// A unit was evicted.
    pub(super) fn removed(&self, evicted: Evicted) {
        let Evicted { slot, unit } = evicted;
        if !self.is_logged(slot) {
            return;
        }
        self.set_logged(slot, false);
        if mutant::is_active("drop-not-logged") {
            return;
        }
        let ticket = self.log.enqueue(Record::Drop { slot });
        let pending = |_: &u32, ticket: &mut Ticket| !self.log.is_durable(*ticket);
        self.dropped.borrow_mut().retain(pending);
        self.left.borrow_mut().retain(pending);
        self.dropped.borrow_mut().insert(slot, ticket);
        self.left.borrow_mut().insert(unit, ticket);
    }

    /// Whether the slot's old mapping is still to be dropped.
    pub(super) fn is_dropping(&self, slot: u32) -> bool {
        self.dropped.borrow().get(&slot).is_some_and(|ticket| !self.log.is_durable(*ticket))
    }

    /// Waits until the mapping that the slot had before is durably gone.
    pub(crate) async fn slot_settled(&self, slot: u32) -> Result<(), LogFailed> {
        self.until(&self.dropped, slot, "fill-before-drop").await
    }

    /// Waits until the mapping that a unit had, which is not resident, is durably gone.
    pub(crate) async fn unit_gone(&self, unit: u32) -> Result<(), LogFailed> {
        self.until(&self.left, unit, "write-before-drop").await
    }

    async fn until(
        &self,
        pending: &RefCell<BTreeMap<u32, Ticket>>,
        key: u32,
        mutant: &str,
    ) -> Result<(), LogFailed> {
        let ticket = pending.borrow().get(&key).copied();
        match ticket.filter(|_| !mutant::is_active(mutant)) {
            Some(ticket) => self.log.durable(ticket).await,
            None => Ok(()),
        }
    }
}
