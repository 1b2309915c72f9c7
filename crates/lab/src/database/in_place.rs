// SPDX-License-Identifier: MIT OR Apache-2.0
//! Extensions that keep one copy of a page, in a slot that is overwritten: LC, TAC, Exadata.
//!
//! They are rows of the same choices (FaCE, Table 3): when a page is admitted, which one is evicted, what a write
//! does, whether a directory on flash is kept up to date.
//!
//! # Where the papers are silent
//! - LC cleans above four fifths of dirty slots, the least recently used (by LRU-2) first, a page at
//!   a time, and stops there again. The eviction of an unchanged page that is on flash
//!   is no use of it: its fetch was the use. A checkpoint of the database makes changed pages safe on flash,
//!   as recoverable LC does (FaCE, 3.2).
//! - TAC's cost is in `temperature.rs`. An admission is written twice to the slot directory,
//!   before the page and after it (FaCE, 5.1); entries lie there by slot, 128 in a page. Pages read
//!   from disk are admitted in the background.
//! - Exadata's write-around leaves no old copy: it empties the slot.
//!
//! Invariants: a page is in one slot at most; a busy slot is neither read nor taken, a slot that is
//! being read is not taken; a dirty page was not written to disk since it was written here.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use hashbrown::HashSet;
use larder_policy::replacement::{Lru, Lru2, Replacement};

use super::extension::{Extension, Found, Frames, Leaving, Tail};
use super::machine::{FLASH, Io, done};
use super::temperature::Temperature;
use super::waits::Waits;
use super::{Caches, Entry, InPlace, Sync, Victims};
use crate::load::trace::tpcc::page_map::PageMap;

/// Entries of TAC's slot directory in a page.
const ENTRIES: u64 = 128;

#[derive(Clone, Copy, Default)]
struct Slot {
    page: u64,
    version: u32,
    dirty: bool,
    busy: bool,
    readers: u32,
}

enum Policy {
    Lru(Lru),
    Lru2(Lru2),
    Temperature(Temperature),
}

impl Policy {
    fn get(&mut self) -> &mut dyn Replacement {
        match self {
            Self::Lru(lru) => lru,
            Self::Lru2(lru2) => lru2,
            Self::Temperature(temperature) => temperature,
        }
    }
}

struct State {
    policy: Policy,
    slots: Vec<Slot>,
    of: PageMap,
    free: Vec<u32>,
    dirty: u64,
}

impl State {
    fn victim(&mut self, incoming: u64) -> Option<u32> {
        let slots = &self.slots;
        let idle = |slot: u32| !slots[slot as usize].busy && slots[slot as usize].readers == 0;
        self.policy.get().victim(incoming, 0, &idle)
    }

    fn set_dirty(&mut self, slot: u32, dirty: bool) {
        let was = std::mem::replace(&mut self.slots[slot as usize].dirty, dirty);
        self.dirty = self.dirty + u64::from(dirty) - u64::from(was);
    }

    /// What to clean next, busy from now on, if more than a share is dirty. The coldest are looked up some
    /// at a time, as a search passes those that are clean already.
    fn next_dirty(&mut self, share: f64, coldest: &mut VecDeque<u32>) -> Option<(u32, Slot)> {
        if self.dirty as f64 <= share * self.slots.len() as f64 {
            return None;
        }
        let slots = &self.slots;
        let cleans = |slot: u32| {
            let slot = &slots[slot as usize];
            slot.dirty && !slot.busy && slot.readers == 0
        };
        coldest.retain(|slot| cleans(*slot));
        if coldest.is_empty() {
            let (most, found) = (slots.len() / 100 + 1, RefCell::new(Vec::new()));
            let enough = |slot: u32| {
                let mut found = found.borrow_mut();
                found.extend(cleans(slot).then_some(slot));
                found.len() == most
            };
            self.policy.get().victim(0, 0, &enough);
            coldest.extend(found.into_inner());
        }
        let slot = coldest.pop_front()?;
        self.slots[slot as usize].busy = true;
        Some((slot, self.slots[slot as usize]))
    }

    /// Empties a slot.
    fn clear(&mut self, slot: u32) {
        self.set_dirty(slot, false);
        self.of.remove(self.slots[slot as usize].page);
        self.policy.get().removed(slot);
    }
}

/// The extension, see the module.
pub(super) struct Slots {
    how: InPlace,
    caches: Caches,
    sync: Sync,
    io: Rc<Io>,
    state: RefCell<State>,
    /// A slot is not busy any more.
    idle: Waits,
    /// Wakes the cleaner.
    work: Waits,
    entered: Cell<u64>,
    /// Pages that are admitted in the background and were not changed since.
    entering: RefCell<HashSet<u64>>,
}

impl Slots {
    /// Over so many slots.
    pub(super) fn new(slots: u32, how: InPlace, caches: Caches, sync: Sync, io: Rc<Io>) -> Self {
        let slots = slots.max(1);
        let policy = match how.victims {
            Victims::Lru => Policy::Lru(Lru::new(slots, slots)),
            Victims::Lru2 => Policy::Lru2(Lru2::new(slots)),
            Victims::Temperature => Policy::Temperature(Temperature::new(slots)),
        };
        let state = State {
            policy,
            slots: vec![Slot::default(); slots as usize],
            of: PageMap::default(),
            free: (0..slots).rev().collect(),
            dirty: 0,
        };
        Self {
            how,
            caches,
            sync,
            io,
            state: RefCell::new(state),
            idle: Waits::default(),
            work: Waits::default(),
            entered: Cell::new(0),
            entering: RefCell::default(),
        }
    }

    /// The slot of a page, busy from now on.
    async fn take(&self, page: u64) -> Option<u32> {
        loop {
            {
                let state = &mut *self.state.borrow_mut();
                let slot = state.of.get(page)?;
                let there = &mut state.slots[slot as usize];
                if !there.busy && there.readers == 0 {
                    there.busy = true;
                    return Some(slot);
                }
            }
            self.idle.wait(&self.io.exec).await;
        }
    }

    fn leave_idle(&self, slot: u32) {
        self.state.borrow_mut().slots[slot as usize].busy = false;
        self.idle.wake(&self.io.exec);
    }

    /// An empty slot, busy; none if no page may be evicted for this one.
    async fn room(&self, page: u64) -> Option<u32> {
        let (slot, victim) = {
            let state = &mut *self.state.borrow_mut();
            let free = state.free.pop();
            let slot = match free {
                Some(slot) => slot,
                None => state.victim(page)?,
            };
            state.slots[slot as usize].busy = true;
            (slot, free.is_none().then(|| state.slots[slot as usize]))
        };
        if let Some(victim) = victim {
            if victim.dirty {
                self.copy_down(slot, victim).await;
            }
            self.state.borrow_mut().clear(slot);
            // A task that waits for the old page looks it up again.
            self.idle.wake(&self.io.exec);
        }
        Some(slot)
    }

    /// Copies a dirty page from its slot to disk.
    async fn copy_down(&self, slot: u32, victim: Slot) {
        done(self.io.read(FLASH, slot.into())).await;
        self.io.write_disk(victim.page, victim.version).await;
    }

    /// Writes a page into a slot that is busy, and to disk if it must be there too.
    async fn fill(&self, slot: u32, leaving: Leaving, new: bool) {
        let through = leaving.dirty && self.sync == Sync::Through;
        if new {
            let state = &mut *self.state.borrow_mut();
            state.slots[slot as usize].page = leaving.page;
            state.of.insert(leaving.page, slot);
            state.policy.get().inserted(slot, leaving.page);
            self.entered.set(self.entered.get() + 1);
        }
        self.directory(slot, new).await;
        let flash = self.io.write(FLASH, slot.into());
        if through {
            self.io.write_disk(leaving.page, leaving.version).await;
        }
        done(flash).await;
        self.directory(slot, new).await;
        let state = &mut *self.state.borrow_mut();
        state.slots[slot as usize].version = leaving.version;
        state.set_dirty(slot, leaving.dirty && !through);
        if self
            .how
            .cleans_above
            .is_some_and(|share| state.dirty as f64 > share * state.slots.len() as f64)
        {
            self.work.wake(&self.io.exec);
        }
    }

    /// Writes the page of the slot directory that has this slot.
    async fn directory(&self, slot: u32, new: bool) {
        if self.how.directory && new {
            let page = self.state.borrow().slots.len() as u64 + u64::from(slot) / ENTRIES;
            done(self.io.write(FLASH, page)).await;
        }
    }

    /// Writes to disk, and drops the page from flash.
    async fn around(&self, leaving: Leaving) -> bool {
        if let Some(slot) = self.take(leaving.page).await {
            let state = &mut *self.state.borrow_mut();
            state.clear(slot);
            state.slots[slot as usize].busy = false;
            state.free.push(slot);
            self.idle.wake(&self.io.exec);
        }
        if leaving.dirty {
            self.io.write_disk(leaving.page, leaving.version).await;
        }
        false
    }

    /// Evicts a changed page.
    async fn leave_changed(&self, leaving: Leaving) -> bool {
        // The page that is being admitted is old.
        self.entering.borrow_mut().remove(&leaving.page);
        if self.sync == Sync::Around || self.caches == Caches::Clean {
            return self.around(leaving).await;
        }
        let (slot, new) = match self.take(leaving.page).await {
            Some(slot) => (Some(slot), false),
            // Admission on a read, write-through: a page that is not on flash is not admitted by its eviction.
            None if self.how.entry == Entry::OnEntry && self.sync == Sync::Through => (None, true),
            None => (self.room(leaving.page).await, true),
        };
        let Some(slot) = slot else {
            self.io.write_disk(leaving.page, leaving.version).await;
            return false;
        };
        self.fill(slot, leaving, new).await;
        self.leave_idle(slot);
        self.sync == Sync::Back
    }

    /// Evicts or admits a page that is equal to its version on disk or flash.
    async fn keep_clean(&self, leaving: Leaving) {
        if self.caches == Caches::Dirty || self.state.borrow().of.has(leaving.page) {
            return;
        }
        let Some(slot) = self.room(leaving.page).await else { return };
        let entering = self.entering.borrow_mut().remove(&leaving.page);
        if self.how.entry == Entry::OnEntry && !entering {
            self.state.borrow_mut().free.push(slot);
        } else {
            self.fill(slot, leaving, true).await;
        }
        self.leave_idle(slot);
    }

    /// Cleans whenever too much is dirty.
    async fn clean(self: Rc<Self>, share: f64) {
        let mut coldest = VecDeque::new();
        loop {
            let next = self.state.borrow_mut().next_dirty(share, &mut coldest);
            match next {
                Some((slot, dirty)) => {
                    self.copy_down(slot, dirty).await;
                    self.state.borrow_mut().set_dirty(slot, false);
                    self.leave_idle(slot);
                }
                None => self.work.wait(&self.io.exec).await,
            }
        }
    }
}

impl Extension for Slots {
    fn start(self: &Rc<Self>) {
        if let Some(share) = self.how.cleans_above {
            self.io.exec.spawn(Rc::clone(self).clean(share));
        }
    }

    async fn fetch(&self, page: u64) -> Option<Found> {
        if let Policy::Temperature(temperature) = &mut self.state.borrow_mut().policy {
            temperature.missed(page);
        }
        let slot = loop {
            {
                let state = &mut *self.state.borrow_mut();
                let slot = state.of.get(page)?;
                let there = &mut state.slots[slot as usize];
                if !there.busy {
                    there.readers += 1;
                    state.policy.get().accessed(slot);
                    break slot;
                }
            }
            self.idle.wait(&self.io.exec).await;
        };
        done(self.io.read(FLASH, slot.into())).await;
        let state = &mut *self.state.borrow_mut();
        let there = &mut state.slots[slot as usize];
        there.readers -= 1;
        self.idle.wake(&self.io.exec);
        Some(Found { version: there.version, dirty: there.dirty })
    }

    async fn leave(&self, leaving: Leaving, _tail: &dyn Tail) -> bool {
        if leaving.fdirty {
            return self.leave_changed(leaving).await;
        }
        // If it was fetched from flash and has left it since, it was copied to disk.
        if self.how.entry == Entry::OnExit {
            self.keep_clean(Leaving { dirty: false, ..leaving }).await;
        }
        let state = self.state.borrow();
        state.of.get(leaving.page).is_some_and(|slot| state.slots[slot as usize].dirty)
    }

    fn enter(self: &Rc<Self>, page: u64, version: u32) {
        if self.how.entry == Entry::OnEntry && self.caches != Caches::Dirty {
            self.entering.borrow_mut().insert(page);
            let this = Rc::clone(self);
            self.io.exec.spawn(async move {
                let clean = Leaving { page, version, dirty: false, fdirty: false };
                this.keep_clean(clean).await;
            });
        }
    }

    async fn checkpoint(&self, leaving: Leaving) -> bool {
        self.leave_changed(leaving).await
    }

    async fn reopen(&self, _io: Rc<Io>) -> Option<(Rc<Self>, u64)> {
        None
    }

    fn frames(&self) -> Frames {
        let state = self.state.borrow();
        let all = state.slots.len() as u64;
        Frames { all, used: all - state.free.len() as u64, stale: 0, dirty: state.dirty }
    }

    fn entered(&self) -> u64 {
        self.entered.get()
    }
}
