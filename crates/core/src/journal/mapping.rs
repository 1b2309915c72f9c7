// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which slots' units are logged, and for which evicted units the drop of the mapping is pending.
//!
//! Invariant: a slot is logged only for the unit that it holds. The drop of its old mapping is durable before new content
//! is written to the slot, and before the old unit is written on the origin (design rule 9).

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use super::log::{Log, LogFailed, Ticket};
use super::record::Record;
use crate::cache::units::table::Evicted;
use crate::mutant;

/// The mappings of one journal.
pub(crate) struct Mapping {
    pub(super) log: Rc<Log>,
    /// A bit per slot whose unit is logged, or will be by a record that is enqueued or a checkpoint in progress.
    logged: RefCell<Vec<u64>>,
    /// Slots with a pending drop record.
    slots_dropping: RefCell<BTreeMap<u32, Ticket>>,
    /// Evicted units with a pending drop record, and units of which pages left a mixed slot.
    units_dropping: RefCell<BTreeMap<u32, Ticket>>,
}

impl Mapping {
    pub(super) fn new(log: Rc<Log>) -> Self {
        let words = log.layout.slots.div_ceil(64) as usize;
        let logged = RefCell::new(vec![0; words]);
        let (slots_dropping, units_dropping) = (RefCell::default(), RefCell::default());
        Self { log, logged, slots_dropping, units_dropping }
    }

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

    /// What a slot held was evicted.
    pub(super) fn removed(&self, evicted: Evicted) {
        let Evicted { slot, units } = evicted;
        if !self.is_logged(slot) {
            return;
        }
        self.set_logged(slot, false);
        if mutant::is_active("drop-not-logged") {
            return;
        }
        let ticket = self.log.enqueue(Record::Drop { slot });
        let pending = |_: &u32, ticket: &mut Ticket| !self.log.is_durable(*ticket);
        self.slots_dropping.borrow_mut().retain(pending);
        self.slots_dropping.borrow_mut().insert(slot, ticket);
        units.into_iter().for_each(|unit| self.unit_drops(unit, ticket));
    }

    /// A record is enqueued after which recovery finds no page of the unit where it was.
    pub(super) fn unit_drops(&self, unit: u32, ticket: Ticket) {
        let mut dropping = self.units_dropping.borrow_mut();
        dropping.retain(|_, ticket| !self.log.is_durable(*ticket));
        let last = dropping.entry(unit).or_insert(ticket);
        *last = ticket.max(*last);
    }

    /// Whether the drop of the slot's old mapping is pending.
    pub(super) fn is_dropping(&self, slot: u32) -> bool {
        self.slots_dropping.borrow().get(&slot).is_some_and(|ticket| !self.log.is_durable(*ticket))
    }

    /// Waits until the drop of a slot's old mapping is durable.
    pub(crate) async fn slot_dropped(&self, slot: u32) -> Result<(), LogFailed> {
        self.dropped(&self.slots_dropping, slot, "fill-before-drop").await
    }

    /// Waits until the drop of an evicted unit's mapping is durable.
    pub(crate) async fn unit_dropped(&self, unit: u32) -> Result<(), LogFailed> {
        self.dropped(&self.units_dropping, unit, "write-before-drop").await
    }

    /// Waits until the drops of all slots and units so far are durable.
    pub(crate) async fn all_dropped(&self) -> Result<(), LogFailed> {
        let last =
            |pending: &RefCell<BTreeMap<u32, Ticket>>| pending.borrow().values().max().copied();
        match last(&self.slots_dropping).max(last(&self.units_dropping)) {
            Some(ticket) => self.log.durable(ticket).await,
            None => Ok(()),
        }
    }

    async fn dropped(
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
