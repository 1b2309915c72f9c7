// SPDX-License-Identifier: MIT OR Apache-2.0
//! Background workers: each waits for its turn, takes its hottest candidate and populates it (SCE 3.6).
//!
//! After a restart, units that were found in part only come first: they were worth a slot, and lack what was being
//! written at the crash, whether or not a client misses them again.

use std::rc::Rc;

use super::demand::Population;
use super::step::{Haste, populate};
use crate::cache::Current;
use crate::context::Context;
use crate::mutant;

/// Slots looked at in one go for units to be completed.
const MEND_LOOK: u32 = 1 << 16;

/// A worker's life.
pub(crate) async fn run(cx: Rc<Context>, current: Rc<Current>, number: u32) {
    let Population::Workers(workers) = &cx.population else { return };
    let wake = &workers.wake[number as usize];
    loop {
        mend(&cx, &current).await;
        let free_ratio = current.clean().map_or(0.0, |c| c.units.table.free_ratio());
        let turn = workers.policy.borrow_mut().turn(number, free_ratio, cx.exec.now());
        let Some(period) = turn else {
            wake.wait(&cx.exec).await;
            continue;
        };
        if period > 0 {
            cx.exec.sleep(period).await;
        }
        let room = free_ratio > 0.0 || mutant::is_active("displace-anything");
        if !room && !current.clean().is_some_and(|c| c.units.table.may_displace()) {
            // The next miss asks again.
            wake.wait(&cx.exec).await;
            continue;
        }
        let candidate = workers.policy.borrow_mut().next(number, room);
        let Some(unit) = candidate else {
            wake.wait(&cx.exec).await;
            continue;
        };
        let Some(clean) = current.clean() else { continue };
        populate(&clean.units, unit as u32, Haste::Yields).await;
    }
}

/// Completes units that a restart found in part only, until there are none.
pub(super) async fn mend(cx: &Context, current: &Current) {
    while let Some(clean) = current.clean() {
        let table = &clean.units.table;
        match table.partial_from(clean.mending.get(), MEND_LOOK) {
            Ok((slot, unit)) => {
                clean.mending.set(slot + 1);
                populate(&clean.units, unit, Haste::Yields).await;
            }
            Err(next) if next < table.slots() => {
                clean.mending.set(next);
                cx.exec.sleep(1).await; // clients' turn
            }
            Err(_) => return clean.mending.set(u32::MAX),
        }
    }
}
