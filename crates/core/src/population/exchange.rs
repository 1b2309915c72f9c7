// SPDX-License-Identifier: MIT OR Apache-2.0
//! The update procedure (PRWC 2.6): now and then, hot units enter in exchange for cold ones.
//!
//! One exchange at a time, each at the pace that population keeps (`pace.rs`): while clients use the origin, a rest follows
//! each exchange that is in proportion to the time it took. When the update is over, the whole state is written anew, with the reference
//! factors. In a clean cache a unit is evicted and another populated as ever; a write-back cache exchanges them with
//! clients kept out.

use std::cell::RefCell;
use std::rc::Rc;

use larder_policy::admission::{Periodic, Slots, Step, Swap};

use super::demand::Population;
use super::step::{Haste, populate};
use super::workers::mend;
use crate::cache::units::clean::Clean;
use crate::cache::units::table::Table;
use crate::cache::units::unit_cache::UnitCache;
use crate::cache::units::write_back::WriteBack;
use crate::cache::{Cache, Current};
use crate::context::Context;
use crate::journal::Journal;

/// What the hands see of a cache.
struct View<'a>(&'a Table);

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

/// The updater's life.
pub(crate) async fn run(cx: Rc<Context>, current: Rc<Current>) {
    let Population::Exchange(policy) = &cx.population else { return };
    loop {
        let period = policy.borrow().period();
        mend(&cx, &current).await;
        cx.exec.sleep(period.max(1)).await;
        let parting = &current.parting;
        if parting.has_begun() {
            continue;
        }
        match current.get() {
            Cache::Clean(clean) => {
                parting.updating.set(true);
                let replace = async |swap| replace(&clean, swap).await;
                update(policy, &clean.units, &current, replace).await;
                clean.units.save();
            }
            Cache::WriteBack(cache) => {
                parting.updating.set(true);
                let exchange = async |swap| exchange(&cache, swap).await;
                update(policy, &cache.units, &current, exchange).await;
                cache.units.save();
            }
            Cache::PassThrough | Cache::Log(_) => {}
        }
        parting.updating.set(false);
    }
}

/// One update.
async fn update<J: Journal>(
    policy: &RefCell<Periodic>,
    units: &UnitCache<J>,
    current: &Current,
    swap: impl AsyncFn(Swap),
) {
    policy.borrow_mut().begin(units.table.slots());
    while !units.flash.closed() && units.flash.usable() && !current.parting.has_begun() {
        let free = units.table.used() < units.table.slots();
        let step = policy.borrow_mut().step(&View(&units.table), free);
        match step {
            Step::Done => break,
            // Clients' turn: the hands pass many units in one step.
            Step::More => units.cx.exec.sleep(1).await,
            Step::Swap(found) => swap(found).await,
        }
    }
    units.cx.stats.add(|c| c.updates += 1);
}

/// In a clean cache: one unit is evicted, another is populated; nobody waits for either.
async fn replace(clean: &Clean, swap: Swap) {
    if let Some(slot) = swap.outgoing {
        if !clean.units.evict(slot) {
            return; // in use at the moment: at the next update, then
        }
        clean.units.cx.stats.add(|c| c.evictions += 1);
    }
    populate(&clean.units, swap.incoming, Haste::Yields).await;
}

/// In a write-back cache.
async fn exchange(cache: &WriteBack, swap: Swap) {
    let cx = &cache.units.cx;
    cx.pace.begin_step(&cx.exec).await;
    let began = cx.exec.now();
    cache.exchange(swap).await;
    cx.pace.end_step(&cx.exec, began);
}
