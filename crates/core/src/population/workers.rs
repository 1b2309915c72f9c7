// SPDX-License-Identifier: MIT OR Apache-2.0
//! Background workers: each waits for its turn, takes its hottest candidate and populates it (SCE 3.6).
//!
//! After a restart, the workers first complete units that were recovered in part: those units were worth a slot, and lack
//! the pages that were being written at the crash.
//!
//! Extended reads leave units in part too. A worker without a candidate completes those, while they may admit units.

use std::cell::Cell;
use std::rc::Rc;

use super::demand::Population;
use super::step::{Pacing, populate};
use crate::cache::Current;
use crate::cache::units::clean::Clean;
use crate::context::Context;
use crate::exec::{Nanos, SECOND};
use crate::mutant;

/// The rest between two passes over all slots, whose cost grows with the flash.
const PASS_REST: Nanos = 10 * SECOND;
/// Slots that one search for partly valid units checks before it yields.
const REPAIR_SLOTS: u32 = 1 << 16;

/// The task of one worker.
pub(crate) async fn run(cx: Rc<Context>, current: Rc<Current>, number: u32) {
    let Population::Workers(workers) = &cx.population else { return };
    let wake = &workers.wake[number as usize];
    loop {
        if !cx.limits.get().populates {
            wake.wait(&cx.exec).await;
            continue;
        }
        if !cx.budget_allows().await {
            continue;
        }
        repair(&cx, &current).await;
        let free_ratio = current.clean().map_or(0.0, |c| c.units.table.free_ratio());
        let turn = workers.policy.borrow_mut().turn(number, free_ratio, cx.exec.now());
        let Some(period) = turn else {
            wake.wait(&cx.exec).await;
            continue;
        };
        if period > 0 {
            cx.exec.sleep(period).await;
            if !cx.limits.get().populates {
                continue;
            }
        }
        let room = free_ratio > 0.0 || mutant::is_active("displace-anything");
        if !room && !current.clean().is_some_and(|c| c.units.table.may_displace()) {
            // The next miss wakes the worker.
            wake.wait(&cx.exec).await;
            continue;
        }
        let candidate = workers.policy.borrow_mut().next(number, room);
        let Some(unit) = candidate else {
            let completes = current.clean().filter(|_| workers.completes(free_ratio));
            // Nothing of the cache is held while the worker waits: a detach could not end.
            let Some(clean) = completes else {
                wake.wait(&cx.exec).await;
                continue;
            };
            if !complete_next(&cx, &clean, &clean.complete_next).await {
                clean.complete_next.set(0);
                drop(clean);
                wake.wait_for(PASS_REST, &cx.exec).await;
            }
            continue;
        };
        let Some(clean) = current.clean() else { continue };
        if cx.population.prefers_singles(unit as u32) {
            continue;
        }
        populate_in_time(&cx, clean, unit as u32).await;
    }
}

/// Populates a unit, unless its origin is overdue: then the population ends beside the worker. Returns whether it ended.
async fn populate_in_time(cx: &Context, clean: Rc<Clean>, unit: u32) -> bool {
    let origins = &cx.origins;
    let volumes = origins.volumes_of([unit].into_iter());
    let population = async move { populate(&clean.units, unit, Pacing::Paced).await };
    origins.overdue.in_time("population-waits-for-hung", volumes, population).await.is_some()
}

/// Completes the next unit that is valid in part, from slot `next` on; returns false if there is none up to the last slot.
async fn complete_next(cx: &Context, clean: &Rc<Clean>, next: &Cell<u32>) -> bool {
    let table = &clean.units.table;
    match table.partial_from(next.get(), REPAIR_SLOTS) {
        Ok((slot, unit)) => {
            next.set(slot + 1);
            let singles = cx.population.prefers_singles(unit);
            if singles || !populate_in_time(cx, Rc::clone(clean), unit).await {
                cx.exec.sleep(1).await; // yields to clients
            }
        }
        Err(slot) if slot < table.limit() => {
            next.set(slot);
            cx.exec.sleep(1).await; // yields to clients
        }
        Err(_) => return false,
    }
    true
}

/// Completes all units that were recovered in part.
pub(super) async fn repair(cx: &Context, current: &Current) {
    while cx.limits.get().populates
        && cx.may_admit()
        && let Some(clean) = current.clean()
    {
        if !complete_next(cx, &clean, &clean.repair_next).await {
            return clean.repair_next.set(u32::MAX);
        }
    }
}
