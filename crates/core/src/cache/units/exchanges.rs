// SPDX-License-Identifier: MIT OR Apache-2.0
//! Caches whose units a periodic update exchanges (PRWC 2.6): the interface that the update uses.
//!
//! A clean cache evicts a unit and populates another; no client waits. A write-back cache exchanges them while its gate
//! keeps clients out.

use std::future::Future;
use std::pin::Pin;

use larder_policy::admission::Swap;

use super::clean::Clean;
use super::table::Table;
use super::write_back::WriteBack;
use crate::flash::Flash;
use crate::population::step::{Pacing, populate};
use crate::volumes::VolumeSet;

/// A cache whose units can be exchanged.
pub(crate) trait Exchanges {
    fn table(&self) -> &Table;
    fn flash(&self) -> &Flash;
    /// The volumes whose origins an exchange uses.
    fn uses(&self, swap: Swap) -> VolumeSet;
    /// Whether the shares of volumes allow an exchange.
    fn may_exchange(&self, swap: Swap) -> bool;
    /// Makes one exchange at the pace of population. The next update retries one that fails.
    fn exchange(&self, swap: Swap) -> Pin<Box<dyn Future<Output = ()> + '_>>;
    /// Requests a checkpoint of the whole state.
    fn save(&self);
}

impl Exchanges for Clean {
    fn table(&self) -> &Table {
        &self.units.table
    }

    fn flash(&self) -> &Flash {
        &self.units.flash
    }

    fn uses(&self, swap: Swap) -> VolumeSet {
        self.units.cx.origins.volumes_of([swap.incoming].into_iter())
    }

    fn may_exchange(&self, swap: Swap) -> bool {
        self.units.may_swap(swap)
    }

    fn exchange(&self, swap: Swap) -> Pin<Box<dyn Future<Output = ()> + '_>> {
        Box::pin(async move {
            if let Some(slot) = swap.outgoing {
                if !self.units.evict(slot) {
                    return; // pinned
                }
                self.units.cx.stats.add(|c| c.evictions += 1);
            }
            populate(&self.units, swap.incoming, Pacing::Paced).await;
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

    fn uses(&self, swap: Swap) -> VolumeSet {
        let outgoing = swap.outgoing.and_then(|slot| self.units.table.unit_of(slot));
        self.units.cx.origins.volumes_of(outgoing.into_iter().chain([swap.incoming]))
    }

    fn may_exchange(&self, swap: Swap) -> bool {
        self.units.may_swap(swap)
    }

    fn exchange(&self, swap: Swap) -> Pin<Box<dyn Future<Output = ()> + '_>> {
        Box::pin(async move {
            let cx = &self.units.cx;
            let pace = &cx.origins.of_unit(swap.incoming).pace;
            pace.begin_step(&cx.exec).await;
            let began = cx.exec.now();
            self.swap(swap).await;
            pace.end_step(&cx.exec, began, None);
        })
    }

    fn save(&self) {
        self.units.save();
    }
}
