// SPDX-License-Identifier: MIT OR Apache-2.0
//! The periodic update (PRWC 2.6): exchanges cold units for hot ones.
//!
//! One exchange at a time, each at the pace of population (`pace.rs`): while clients use the origin, a rest in proportion
//! to its duration follows each exchange. If that is set, each exchange first waits until clients are idle. An update ends with a checkpoint of the whole state, with the reference factors.
//! An exchange whose origin is overdue ends beside the update (`overdue.rs`), which continues with other volumes.
//! The exchange itself depends on the kind of cache (`cache/units/exchanges.rs`).

use std::cell::RefCell;
use std::rc::Rc;

use larder_policy::admission::{Periodic, Slots, Step};

use super::demand::Population;
use super::workers::repair;
use crate::cache::Current;
use crate::cache::units::exchanges::Exchanges;
use crate::cache::units::table::Table;
use crate::context::Context;
use crate::exec::SECOND;

/// The slots of a cache, for the hands of the policy.
struct View<'a>(&'a Table);

impl Slots for View<'_> {
    fn count(&self) -> u32 {
        self.0.slots()
    }

    fn unit_in(&self, slot: u32) -> Option<u32> {
        self.0.unit_of(slot).filter(|_| !self.0.is_kept(slot) && slot < self.0.limit())
    }

    fn is_passed(&self, unit: u32) -> bool {
        self.0.slot_of(unit).is_some() || self.0.is_closed(unit)
    }
}

/// The task that makes an update every period.
pub(crate) async fn run(cx: Rc<Context>, current: Rc<Current>) {
    let Population::Exchange(policy) = &cx.population else { return };
    loop {
        repair(&cx, &current).await;
        let time_of_day = cx.limits.get().time_of_day.wrapping_add(cx.exec.now());
        let wait = policy.borrow().settings().schedule.wait(time_of_day);
        cx.exec.sleep(wait.max(1)).await;
        let detaching = &current.detaching;
        if detaching.has_begun() || !cx.limits.get().populates {
            continue;
        }
        if let Some(cache) = current.exchanges() {
            detaching.updating.set(true);
            update(&cx, policy, &cache, &current).await;
            cache.save();
        }
        detaching.updating.set(false);
    }
}

/// One update.
async fn update(
    cx: &Context,
    policy: &RefCell<Periodic>,
    cache: &Rc<dyn Exchanges>,
    current: &Current,
) {
    let (table, flash) = (cache.table(), cache.flash());
    let idle = policy.borrow().settings().idle;
    policy.borrow_mut().begin();
    let mut refused = false;
    while !flash.closed() && flash.usable() && !current.detaching.has_begun() {
        if let Some(wait) = cx.busy_for(idle) {
            // A detach does not wait for clients that are never idle.
            cx.exec.sleep(wait.min(SECOND)).await;
            continue;
        }
        if !cx.budget_allows().await {
            continue;
        }
        // A free slot that the shares of volumes keep for another unit is none for the next one.
        let free = table.has_free() && !refused;
        let step = policy.borrow_mut().step(&View(table), free);
        match step {
            Step::Done => break,
            // Yields: the hands pass many units in one step.
            Step::More => cx.exec.sleep(1).await,
            Step::Swap(swap) if !cache.may_exchange(swap) => {
                refused = true;
                cx.exec.sleep(1).await;
            }
            Step::Swap(swap) => {
                let (uses, cache) = (cache.uses(swap), Rc::clone(cache));
                let exchange = async move { cache.exchange(swap).await };
                let overdue = &cx.origins.overdue;
                if overdue.in_time("exchange-waits-for-hung", uses, exchange).await.is_none() {
                    refused = true;
                    cx.exec.sleep(1).await;
                }
            }
        }
    }
    cx.stats.add(|c| c.updates += 1);
}
