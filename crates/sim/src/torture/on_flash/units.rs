// SPDX-License-Identifier: MIT OR Apache-2.0
//! Units in slots, with or without a journal.

use std::ops::Range;

use larder_core::buf::{PAGE, SECTOR};
use larder_core::format::UnitsPlan;
use larder_core::journal::entry::Entry;
use larder_core::journal::layout::{HEADER_BYTES, Layout};
use larder_core::journal::recover::{Recovered, Unusable, ValidPage, recover};
use larder_core::shape::Shape;

use super::{Found, OnFlash, as_written};
use crate::device::SimDevice;
use crate::store::{Image, Store};
use crate::torture::history::{Judged, Violation, wrong};
use crate::torture::moment::Moment;
use crate::torture::owners::{Owner, Owners};
use crate::torture::promise::Promise;
use crate::world::World;

impl OnFlash for UnitsPlan {
    fn attach(
        &self,
        world: &mut World,
        flash: SimDevice,
        (volume, _): (u64, &[Vec<Range<u64>>]),
        found: &Found,
    ) -> usize {
        world.attach_journaled(flash, self, volume, found)
    }

    fn judge(
        &self,
        moment: &mut Moment<'_>,
        left: (&Image, &Image),
        owners: &mut Owners,
    ) -> Judged<()> {
        for shard in 0..self.shards() {
            let Some(store) = moment.world.store(moment.flash) else { continue };
            match recover_shard(self, moment.volume, shard, store, left.1) {
                Ok(found) => {
                    let shape = moment.space.0.of_shard(shard);
                    judge_departed(self, moment, &shape, &found)?;
                    judge_pages(self, moment, &shape, &found, left, owners)?;
                    judge_warmth(self, moment, &shape, &found)?;
                }
                Err(_) if moment.setup.trouble.rots() => moment.seen.cold += 1,
                Err(why) => {
                    return wrong("8: metadata is lost", format!("of shard {shard}: {why:?}"));
                }
            }
        }
        Ok(())
    }

    /// Payloads too: the second copy of one is the older half with its log.
    fn one_copy(&self, copy: u8) -> Vec<Range<u64>> {
        self.layouts(0).flat_map(|layout| metadata(&layout, copy)).collect()
    }

    fn data(&self) -> Vec<Range<u64>> {
        std::iter::once(self.slots_at..self.end()).collect()
    }

    fn sums(&self, copy: u8) -> Vec<Range<u64>> {
        self.sums_areas(0).flat_map(|area| area.copy(u32::from(copy) % area.copies)).collect()
    }
}

/// What is recovered of a shard from an image of flash.
fn recover_shard(
    plan: &UnitsPlan,
    volume: u64,
    shard: u32,
    store: &Store,
    flash: &Image,
) -> Result<Recovered, Unusable> {
    let layout = plan.layout(volume, shard).ok_or(Unusable::Nothing)?;
    let read = &mut |at: u64, len: u64| {
        let mut bytes = vec![0; len as usize];
        store.read_image(flash, at, &mut bytes);
        Ok(bytes)
    };
    recover(&layout, volume, read)
}

/// What is settled survives: a shard without a change in progress is recovered with all its units.
fn judge_warmth(
    plan: &UnitsPlan,
    moment: &mut Moment<'_>,
    shape: &Shape,
    found: &Recovered,
) -> Judged<()> {
    let shard = &moment.world.shards()[shape.shard as usize];
    let layout = plan.layout(moment.volume, shape.shard);
    let (Some(status), Some(layout)) = (shard.cache_status(), layout) else {
        return Ok(());
    };
    if !moment.setup.trouble.spares_flash() || !shard.journal_settled() {
        return Ok(());
    }
    moment.seen.settled += 1;
    let units = (0..layout.slots).filter(|slot| found.is_used(*slot, &layout)).count();
    if units as u64 == status.units_logged {
        return Ok(());
    }
    let what = format!("{units} of {} units of shard {}", status.units_logged, shape.shard);
    wrong("9: recovery forgets what was durable", what)
}

/// Recovery finds nothing of a volume that left: its origin may be changed without the cache.
fn judge_departed(
    plan: &UnitsPlan,
    moment: &Moment<'_>,
    shape: &Shape,
    found: &Recovered,
) -> Judged<()> {
    let Some(layout) = plan.layout(moment.volume, shape.shard) else { return Ok(()) };
    if moment.outside.is_empty() {
        return Ok(());
    }
    let volume = |unit: u32| moment.setup.volumes.at(shape.unit_offset(unit));
    for slot in 0..layout.slots {
        let pages = found.pages(slot, &layout).into_iter().map(|page| page.unit);
        let mut units = pages.chain(found.unit(slot, &layout));
        if let Some(unit) = units.find(|unit| moment.outside.contains(&volume(*unit))) {
            let what = format!("unit {unit} of volume {} in slot {slot}", volume(unit));
            return wrong("14: flash has data of a volume that left", what);
        }
    }
    Ok(())
}

/// Every page that recovery finds valid is what the origin holds, unless only flash holds it, and
/// recovery knows that.
fn judge_pages(
    plan: &UnitsPlan,
    moment: &mut Moment<'_>,
    shape: &Shape,
    found: &Recovered,
    (origin, flash): (&Image, &Image),
    owners: &mut Owners,
) -> Judged<()> {
    let Some(layout) = plan.layout(moment.volume, shape.shard) else { return Ok(()) };
    let undetected = moment.setup.promise() == Promise::Undetected;
    let is_misled =
        |slot: u32| moment.setup.is_detected() && place_is_damaged(&layout, slot, found, flash);
    let misled: Vec<u32> = (0..layout.slots).filter(|slot| is_misled(*slot)).collect();
    judge_owners(&layout, shape, found, &misled)?;
    for slot in 0..layout.slots {
        let number = u64::from(slot) * u64::from(shape.shards) + u64::from(shape.shard);
        let slot_at = plan.slots_at + number * shape.unit_bytes;
        if let Some(unit) = found.unit(slot, &layout).filter(|_| layout.entry == Entry::Dirty) {
            let global = shape.unit_offset(unit) / shape.unit_bytes;
            owners.set(global, Owner::Flash(slot_at / SECTOR as u64));
        }
        let dirty = found.dirty(slot, &layout);
        moment.seen.dirty += u64::from(dirty != 0);
        let is_clean = |page: &ValidPage| dirty >> (page.place / layout.touch_pages()) & 1 == 0;
        for ValidPage { unit, page, place } in
            found.pages(slot, &layout).into_iter().filter(is_clean)
        {
            let at = shape.unit_offset(unit) + u64::from(page) * PAGE as u64;
            let (_, volumes) = &moment.space;
            // No client reads beyond the end of a volume.
            let end = volumes.range(volumes.at(at)).end;
            let len = end.saturating_sub(at).min(PAGE as u64);
            let ours = (slot_at + u64::from(place) * PAGE as u64) / SECTOR as u64;
            let theirs = at / SECTOR as u64;
            for i in 0..len / SECTOR as u64 {
                let (a, b) = (flash.get((ours + i) as usize), origin.get((theirs + i) as usize));
                let (Some(a), Some(b)) = (a, b) else { continue };
                moment.seen.pages += 1;
                if a.content == as_written(theirs + i, b.content) {
                    continue;
                }
                if misled.contains(&slot) || a.damaged && moment.setup.is_detected() {
                    continue; // when it is read
                }
                if undetected && a.damaged {
                    moment.seen.undetected += 1;
                    continue;
                }
                let what = format!(
                    "recovered slot {slot}, place {place}, page {page} of unit {unit}: flash holds {:?}, the origin {:?}",
                    a.content, b.content
                );
                let rule = "9: recovery takes a stale page for valid";
                return Err(Violation::new(rule, Some(theirs + i), what));
            }
        }
    }
    Ok(())
}

/// Whether the directory that names the pages of a mixed slot is not the one that was written: an older one may be in its place.
fn place_is_damaged(layout: &Layout, slot: u32, found: &Recovered, flash: &Image) -> bool {
    let (at, len) = layout.directory(slot);
    let mut sectors = at / SECTOR as u64..(at + len) / SECTOR as u64;
    let is_damaged = |sector: u64| flash.get(sector as usize).is_some_and(|held| held.damaged);
    found.unit(slot, layout).is_none() && sectors.any(is_damaged)
}

/// Every unit has one slot at most, every single page one place, and none has both. `misled`: slots with an older directory.
fn judge_owners(layout: &Layout, shape: &Shape, found: &Recovered, misled: &[u32]) -> Judged<()> {
    let (mut units, mut singles) = (Vec::with_capacity(layout.slots as usize), Vec::new());
    let contradicts = |unit: u32| wrong("8: metadata contradicts itself", format!("unit {unit}"));
    let used = |slot: &u32| found.is_used(*slot, layout) && !misled.contains(slot);
    for slot in (0..layout.slots).filter(used) {
        let Some(unit) = found.unit(slot, layout) else {
            singles.extend(found.pages(slot, layout).iter().map(|page| (page.unit, page.page)));
            continue;
        };
        if units.contains(&unit) || u64::from(unit) >= shape.units() {
            return contradicts(unit);
        }
        units.push(unit);
    }
    singles.sort_unstable();
    let twice = singles.windows(2).find(|pair| pair[0] == pair[1]).map(|pair| pair[0].0);
    let beside = singles.iter().map(|(unit, _)| *unit).find(|unit| units.contains(unit));
    match twice.or(beside) {
        Some(unit) => contradicts(unit),
        None => Ok(()),
    }
}

fn metadata(layout: &Layout, copy: u8) -> Vec<Range<u64>> {
    let log = u64::from(layout.log_blocks) * layout.block_bytes;
    let region = |region| {
        let header = layout.header(region, copy);
        let block = layout.log_block(region, copy, 0);
        let payload = layout.payload(region);
        [header..header + HEADER_BYTES, payload..payload + layout.payload_bytes, block..block + log]
    };
    [0, 1].into_iter().flat_map(region).collect()
}
