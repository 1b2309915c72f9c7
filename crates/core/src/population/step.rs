// SPDX-License-Identifier: MIT OR Apache-2.0
//! Population of one unit (SCE 3.2, 3.6).
//!
//! The unit gets a slot, for which the coldest unit may be evicted. For each part with invalid pages: wait for the pace,
//! claim the part, read it from the origin, write the runs that were invalid to flash, and make the pages valid that no
//! other claim conflicts with (design rule 4).
//!
//! Reads hit a part once it is valid. A resident unit with invalid pages is completed in the same way.

use crate::buf::PAGE;
use crate::cache::units::table::SlotPin;
use crate::cache::units::unit_cache::UnitCache;
use crate::fill::Fill;
use crate::journal::Journal;
use crate::mutant;
use crate::origin::Use;
use crate::pages::{MOST_PAGES, Pages};

/// Whether a population keeps the pace.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pacing {
    /// It yields to clients.
    Paced,
    /// A client waits for it.
    Inline,
}

/// Populates one unit, unless that is in progress or all resident units are hotter.
pub(crate) async fn populate<J: Journal>(units: &UnitCache<J>, unit: u32, pacing: Pacing) {
    let Some(_turn) = units.begin_population(unit).filter(|_| units.flash.usable()) else { return };
    let Some(pin) = units.slot_for(unit) else { return };
    let cx = &units.cx;
    let pace = &cx.origins.of_unit(unit).pace;
    let all = 0..cx.shape.pages_of(unit);
    let mut start = 0;
    while start < all.end && !units.flash.closed() && units.flash.usable() {
        if pacing == Pacing::Paced {
            pace.begin_step(&cx.exec).await;
        }
        let began = cx.exec.now();
        let bytes = match pacing {
            Pacing::Paced => pace.step_bytes(began),
            Pacing::Inline => cx.limits.get().population_io_bytes,
        };
        let part = part(start, all.end, bytes);
        start = part.end;
        let copied = pin.all_valid(&part) || populate_part(units, &pin, unit, part).await.is_some();
        if pacing == Pacing::Paced {
            let cost = pace.visits_of(cx.shape.unit_bytes);
            pace.end_step(&cx.exec, began, cx.population.share(cost, cx.exec.now()));
        }
        if !copied {
            break;
        }
    }
    if start >= all.end {
        cx.stats.add(|c| c.populations += 1);
        cx.population.populated(unit, cx.exec.now());
    }
}

/// Copies a whole unit to its slot, while the caller keeps clients out of it. Returns whether all of it is valid.
pub(crate) async fn populate_whole<J: Journal>(
    units: &UnitCache<J>,
    pin: &SlotPin,
    unit: u32,
) -> bool {
    let shape = &units.cx.shape;
    let pages = shape.pages_of(unit);
    let mut start = 0;
    while start < pages {
        let part = part(start, pages, units.cx.limits.get().population_io_bytes);
        start = part.end;
        if populate_part(units, pin, unit, part).await.is_none() {
            return false;
        }
    }
    pin.all_valid(&(0..shape.pages_per_unit()))
}

/// The next part to copy: at most `bytes` bytes, its end aligned to that size.
fn part(start: u32, end: u32, bytes: u64) -> Pages {
    let most = ((bytes / PAGE as u64) as u32).clamp(1, MOST_PAGES);
    start..end.min(start / most * most + most)
}

/// Copies the invalid pages of a part; `None` if a device fails or all its pages are valid.
async fn populate_part<J: Journal>(
    units: &UnitCache<J>,
    pin: &SlotPin,
    unit: u32,
    part: Pages,
) -> Option<()> {
    // Two reads of the origin for the same pages would disqualify each other from validation.
    units.extended.ended(unit, &part, &units.cx.exec).await;
    fill_part(units, pin, unit, part).await
}

/// The same for pages of a unit that may have no slot: they get places among single pages then.
///
/// The pin is taken after the wait, during which the pages may have left their place, or moved to a slot of the unit.
pub(crate) async fn populate_pages<J: Journal>(
    units: &UnitCache<J>,
    unit: u32,
    pages: Pages,
) -> Option<()> {
    units.extended.ended(unit, &pages, &units.cx.exec).await;
    let resident = units.table.resident(unit);
    let pin = resident.or_else(|| units.places_for(unit, &pages))?;
    fill_part(units, &pin, unit, pages).await
}

async fn fill_part<J: Journal>(
    units: &UnitCache<J>,
    pin: &SlotPin,
    unit: u32,
    part: Pages,
) -> Option<()> {
    let late = mutant::is_active("population-late-claim");
    let fill = Fill::open(units, pin.clone(), (unit, &part), late);
    let skip = pin.valid_pages(&part);
    let first = part.clone().find(|p| !skip.has(*p))?;
    let last = part.clone().rev().find(|p| !skip.has(*p))?;
    let pages = first..last + 1;
    units.cx.stats.add(|c| c.population_bytes += fill.range(&pages).1);
    let buf = fill.fetch(Use::Population, &pages).await.ok()?;
    fill.write_runs(pages, &skip, buf, |_| ()).await.ok()
}
