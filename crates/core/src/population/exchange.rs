// SPDX-License-Identifier: MIT OR Apache-2.0
//! The update procedure (PRWC 2.6): now and then, hot units enter in exchange for cold ones.
//!
//! One exchange at a time, each at the pace that population keeps (`pace.rs`): while clients use the origin, a rest follows
//! each exchange that is in proportion to the time it took. When the update is over, the whole state is written anew,
//! with the reference factors. What an exchange is depends on the kind of cache (`cache/units/exchanges.rs`).

use std::cell::RefCell;
use std::rc::Rc;

use larder_policy::admission::{Periodic, Slots, Step};

use super::demand::Population;
use super::workers::mend;
use crate::cache::Current;
use crate::cache::units::exchanges::Exchanges;
use crate::cache::units::table::Table;
use crate::context::Context;

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
        if let Some(cache) = current.exchanges() {
            parting.updating.set(true);
            update(&cx, policy, &*cache, &current).await;
            cache.save();
        }
        parting.updating.set(false);
    }
}

/// One update.
async fn update(
    cx: &Context,
    policy: &RefCell<Periodic>,
    cache: &dyn Exchanges,
    current: &Current,
) {
    let (table, flash) = (cache.table(), cache.flash());
    policy.borrow_mut().begin(table.slots());
    while !flash.closed() && flash.usable() && !current.parting.has_begun() {
        let free = table.used() < table.slots();
        let step = policy.borrow_mut().step(&View(table), free);
        match step {
            Step::Done => break,
            // Clients' turn: the hands pass many units in one step.
            Step::More => cx.exec.sleep(1).await,
            Step::Swap(found) => cache.exchange(found).await,
        }
    }
    cx.stats.add(|c| c.updates += 1);
}
