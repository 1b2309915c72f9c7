// SPDX-License-Identifier: MIT OR Apache-2.0
//! Caches whose units a periodic update exchanges (PRWC 2.6): what the update asks of one, whatever its kind.
//!
//! In a clean cache a unit is evicted and another one populated, and no client waits for either. A write-back cache
//! exchanges them while its gate keeps clients out.

use std::future::Future;
use std::pin::Pin;

use larder_policy::admission::Swap;

use super::clean::Clean;
use super::table::Table;
use super::write_back::WriteBack;
use crate::flash::Flash;
use crate::population::step::{Haste, populate};

/// See the module.
pub(crate) trait Exchanges {
    fn table(&self) -> &Table;
    fn flash(&self) -> &Flash;
    /// One exchange, at the pace of population. What does not work out is tried at the next update.
    fn exchange(&self, swap: Swap) -> Pin<Box<dyn Future<Output = ()> + '_>>;
    /// Asks that the whole state be written anew.
    fn save(&self);
}

impl Exchanges for Clean {
    fn table(&self) -> &Table {
        &self.units.table
    }

    fn flash(&self) -> &Flash {
        &self.units.flash
    }

    fn exchange(&self, swap: Swap) -> Pin<Box<dyn Future<Output = ()> + '_>> {
        Box::pin(async move {
            if let Some(slot) = swap.outgoing {
                if !self.units.evict(slot) {
                    return; // in use at the moment
                }
                self.units.cx.stats.add(|c| c.evictions += 1);
            }
            populate(&self.units, swap.incoming, Haste::Yields).await;
        })
    }

    fn save(&self) {
        self.units.save();
    }
}

impl Exchanges for WriteBack {
    fn table(&self) -> &Table {
        &self.units.table
    }

    fn flash(&self) -> &Flash {
        &self.units.flash
    }

    fn exchange(&self, swap: Swap) -> Pin<Box<dyn Future<Output = ()> + '_>> {
        Box::pin(async move {
            let cx = &self.units.cx;
            cx.pace.begin_step(&cx.exec).await;
            let began = cx.exec.now();
            self.swap(swap).await;
            cx.pace.end_step(&cx.exec, began);
        })
    }

    fn save(&self) {
        self.units.save();
    }
}
