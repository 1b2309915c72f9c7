// SPDX-License-Identifier: MIT OR Apache-2.0
//! The update procedure (PRWC 2.6): now and then, hot units enter in exchange for cold ones.
//!
//! One exchange at a time, each at the pace that population keeps (`pace.rs`): while clients use
//! the origin, the update rests between exchanges, for as long as they do. When it is over the
//! whole state is written anew, with the reference factors. How two units are exchanged depends on
//! who owns what is cached: where the origin has everything, a unit leaves and another is
//! populated, as ever; where flash alone has it, see `owned.rs`.

use std::rc::Rc;

use larder_policy::admission::{Slots, Step, Swap};

use crate::cache::Cache;
use crate::journal::Journal;
use crate::populate::Haste;
use crate::shard::Core;

/// What the hands see of a cache.
struct View<'a>(&'a Cache);

impl Slots for View<'_> {
    fn count(&self) -> u32 {
        self.0.slots()
    }

    fn unit_in(&self, slot: u32) -> Option<u32> {
        self.0.unit_of(slot)
    }

    fn is_cached(&self, unit: u32) -> bool {
        self.0.slot_of(unit).is_some()
    }
}

impl Core {
    /// The updater's life.
    pub(crate) async fn updater(self: Rc<Self>) {
        loop {
            let period = self.admission.borrow_mut().periodic().map(|p| p.period());
            let Some(period) = period else { return };
            self.mend().await;
            self.exec.sleep(period.max(1)).await;
            if let Some(cache) =
                self.cache().filter(|_| !self.clearing.get() && !self.leaving.get())
            {
                self.updating.set(true);
                self.update(&cache).await;
                self.updating.set(false);
            }
        }
    }

    async fn update(&self, cache: &Rc<Cache>) {
        if let Some(periodic) = self.admission.borrow_mut().periodic() {
            periodic.begin(cache.slots());
        }
        let goes_on = || !self.clearing.get() && !self.leaving.get();
        while !cache.closed() && cache.device.health.usable() && goes_on() {
            let free = cache.used() < cache.slots();
            let step = match self.admission.borrow_mut().periodic() {
                Some(periodic) => periodic.step(&View(cache), free),
                None => Step::Done,
            };
            match step {
                Step::Done => break,
                // Clients' turn: the hands pass many units in one step.
                Step::More => self.exec.sleep(1).await,
                Step::Swap(swap) if self.choices.write.flash_owns() => {
                    self.pace.begin_step(&self.exec).await;
                    let began = self.exec.now();
                    self.exchange(cache, swap).await;
                    self.pace.end_step(&self.exec, began);
                }
                Step::Swap(swap) => self.replace(cache, swap).await,
            }
        }
        self.stats.add(|c| c.updates += 1);
        cache.journal().into_iter().for_each(Journal::save);
    }

    /// One unit leaves, another is populated; nobody waits for either.
    async fn replace(&self, cache: &Rc<Cache>, swap: Swap) {
        if let Some(slot) = swap.outgoing {
            if !cache.evict_slot(slot, &self.exec) {
                return; // in use at the moment: at the next update, then
            }
            self.stats.add(|c| c.evictions += 1);
        }
        self.populate(cache, swap.incoming, Haste::Yields).await;
    }
}
