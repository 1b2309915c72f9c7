// SPDX-License-Identifier: MIT OR Apache-2.0
//! Power cuts: what they leave of the devices, and what must hold of it.
//!
//! Of the writes that no flush covered, sector by sector, any part may be there: none, all, all up
//! to a moment, all but one, or each by chance. The origin alone must hold what was promised, and
//! every page that recovery finds valid on flash must be what the origin holds.

use larder_core::buf::{PAGE, SECTOR};
use larder_core::journal::entry::Entry;
use larder_core::journal::recover::{Recovered, Unusable, recover};
use larder_core::pagelog::LogPolicy;
use larder_core::shape::Shape;
use rand::RngExt;
use rand_pcg::Pcg64Mcg;

use super::history::{Judged, Violation, wrong};
use super::logs;
use super::moment::Moment;
use super::owners::{Owner, Owners};
use super::promise::Promise;
use super::setup::{FLASH, Setup};
use crate::device::SimDevice;
use crate::store::{Content, Image, Store};
use crate::world::ORIGIN;

/// What a power cut leaves of a device.
pub(super) fn cut(device: &SimDevice, rng: &mut Pcg64Mcg, image: &mut Image) {
    let Some(store) = &device.store else { return };
    let unflushed = store.unflushed().count() as u64;
    let some = |rng: &mut Pcg64Mcg| {
        let at = rng.random_range(0..unflushed.max(1));
        store.unflushed().nth(at as usize).map_or((0, 0), |(sector, write)| (sector, write))
    };
    match rng.random_range(0..7) {
        0 => store.cut_into(image, |_, _| false),
        1 => store.cut_into(image, |_, _| true),
        2 => {
            let (_, last) = some(rng);
            store.cut_into(image, |_, write| write <= last);
        }
        3 => {
            let missing = some(rng);
            store.cut_into(image, |sector, write| (sector, write) != missing);
        }
        4 => {
            let (below, _) = some(rng);
            store.cut_into(image, |sector, _| sector < below);
        }
        _ => store.cut_into(image, |_, _| rng.random::<bool>()),
    }
}

/// What the end of a process leaves of a device.
pub(super) fn keep(device: &SimDevice, image: &mut Image) {
    if let Some(store) = &device.store {
        store.cut_into(image, |_, _| true);
    }
}

/// What is recovered of a shard from an image of flash.
pub(super) fn recover_shard(
    setup: &Setup,
    volume: u64,
    shard: u32,
    store: &Store,
    flash: &Image,
) -> Result<Recovered, Unusable> {
    let layout = setup.units().and_then(|units| units.layout(volume, shard));
    let layout = layout.ok_or(Unusable::Nothing)?;
    let read = &mut |at: u64, len: u64| {
        let mut bytes = vec![0; len as usize];
        store.read_image(flash, at, &mut bytes);
        Ok(bytes)
    };
    recover(&layout, volume, read)
}

/// The metadata of an empty cache, as formatting leaves it on flash.
pub(super) fn formatted(setup: &Setup, volume: u64, flash: &mut Store) -> Vec<Option<Recovered>> {
    let shards = 0..setup.shape.shards;
    setup.plan.blank(volume).for_each(|(at, bytes)| flash.write(at, &bytes, true));
    let image = flash.image();
    shards.map(|shard| recover_shard(setup, volume, shard, flash, &image).ok()).collect()
}

/// Judges what a power cut left.
pub(super) fn judge_cut(moment: &mut Moment<'_>, origin: &Image, flash: &Image) -> Judged<Owners> {
    moment.seen.recoveries += 1;
    let (setup, volume) = (moment.setup, moment.volume);
    let mut owners = Owners::none(setup);
    let in_use = moment.attached && setup.is_journaled();
    for shard in (0..setup.shape.shards).filter(|_| in_use) {
        let Some(store) = moment.world.store(FLASH) else { continue };
        match recover_shard(setup, volume, shard, store, flash) {
            Ok(found) => {
                let shape = setup.shape.of_shard(shard);
                judge_pages(moment, &shape, &found, (origin, flash), &mut owners)?;
                judge_warmth(moment, &shape, &found)?;
            }
            Err(_) if setup.trouble.rots() => moment.seen.cold += 1,
            Err(why) => {
                return wrong("8: metadata is lost", format!("of shard {shard}: {why:?}"));
            }
        }
    }
    if moment.attached {
        logs::judge(moment, (origin, flash), &mut owners)?;
    }
    judge_volume(moment, &owners, origin, flash)?;
    if setup.choices.log().is_some_and(|log| log.policy == LogPolicy::Bounded) {
        // Whatever becomes of flash.
        judge_volume(moment, &Owners::none(setup), origin, flash)?;
    }
    Ok(owners)
}

/// What is settled survives: a shard without any change under way is recovered with all its units.
fn judge_warmth(moment: &mut Moment<'_>, shape: &Shape, found: &Recovered) -> Judged<()> {
    let (setup, shard) = (moment.setup, &moment.world.shards()[shape.shard as usize]);
    let layout = setup.units().and_then(|units| units.layout(moment.volume, shape.shard));
    let (Some(status), Some(layout)) = (shard.cache_status(), layout) else {
        return Ok(());
    };
    if !setup.trouble.spares_flash() || !shard.journal_settled() {
        return Ok(());
    }
    moment.seen.settled += 1;
    let units = (0..layout.slots).filter(|slot| found.unit(*slot, &layout).is_some()).count();
    if units as u64 == status.units_logged {
        return Ok(());
    }
    let what = format!("{units} of {} units of shard {}", status.units_logged, shape.shard);
    wrong("9: recovery forgets what was durable", what)
}

/// The volume holds what was promised: in a clean mode, the origin alone.
fn judge_volume(
    moment: &Moment<'_>,
    owners: &Owners,
    origin_left: &Image,
    flash_left: &Image,
) -> Judged<()> {
    let Some(origin) = moment.world.store(ORIGIN) else { return Ok(()) };
    let flash = moment.world.store(FLASH).unwrap_or(origin);
    for sector in moment.oracle.touched() {
        let value = owners.value(sector, (origin, origin_left), (flash, flash_left))?;
        if let Some(flushed) = moment.flushed {
            let lost = moment.oracle.durable(sector, value, flushed);
            lost.map_err(|w| Violation::of("7: an answered FLUSH did not cover a write", w))?;
        }
        let lost = moment.oracle.durable_fua(sector, value);
        lost.map_err(|w| Violation::of("7: an answered FUA write is lost", w))?;
        if let Some(cleared) = moment.cleared {
            let none = Owners::none(moment.setup);
            let alone = none.value(sector, (origin, origin_left), (flash, flash_left))?;
            let lost = moment.oracle.durable(sector, alone, cleared);
            lost.map_err(|w| Violation::of("10: the origin lacks what flash gave it", w))?;
        }
    }
    Ok(())
}

/// Every page that recovery finds valid is what the origin holds, unless flash alone has it, and
/// recovery knows that.
fn judge_pages(
    moment: &mut Moment<'_>,
    shape: &Shape,
    found: &Recovered,
    (origin, flash): (&Image, &Image),
    owners: &mut Owners,
) -> Judged<()> {
    let setup = moment.setup;
    let Some(units) = setup.units() else { return Ok(()) };
    let Some(layout) = units.layout(moment.volume, shape.shard) else { return Ok(()) };
    let undetected = setup.promise() == Promise::Undetected;
    let mut seen = Vec::with_capacity(layout.slots as usize);
    for slot in 0..layout.slots {
        let Some((unit, pages)) = found.slot(slot, &layout) else { continue };
        if seen.contains(&unit) || u64::from(unit) >= shape.units() {
            return wrong("8: metadata contradicts itself", format!("unit {unit}"));
        }
        seen.push(unit);
        let number = u64::from(slot) * u64::from(shape.shards) + u64::from(shape.shard);
        if layout.entry == Entry::Dirty {
            let slot = (units.slots_at + number * shape.unit_bytes) / SECTOR as u64;
            let global = shape.unit_offset(unit) / shape.unit_bytes;
            owners.set(global, Owner::Flash(slot));
        }
        let dirty = found.dirty(slot, &layout);
        moment.seen.dirty += u64::from(dirty != 0);
        let is_clean = |page: &u32| dirty >> (page / layout.touch_pages()) & 1 == 0;
        for page in pages.into_iter().filter(is_clean) {
            let within = u64::from(page) * PAGE as u64;
            let at = shape.unit_offset(unit) + within;
            let len = shape.origin_bytes.saturating_sub(at).min(PAGE as u64);
            let ours = (units.slots_at + number * shape.unit_bytes + within) / SECTOR as u64;
            let theirs = at / SECTOR as u64;
            for i in 0..len / SECTOR as u64 {
                let (a, b) = (flash.get((ours + i) as usize), origin.get((theirs + i) as usize));
                let (Some(a), Some(b)) = (a, b) else { continue };
                moment.seen.pages += 1;
                if a.content == as_written(theirs + i, b.content) {
                    continue;
                }
                if undetected && a.tainted {
                    moment.seen.undetected += 1;
                    continue;
                }
                let what = format!(
                    "recovered slot {slot}, page {page} of unit {unit}: flash holds {:?}, the origin {:?}",
                    a.content, b.content
                );
                let rule = "9: recovery takes a stale page for valid";
                return Err(Violation::new(rule, Some(theirs + i), what));
            }
        }
    }
    Ok(())
}

/// A sector of the origin as it is on flash.
fn as_written(sector: u64, content: Content) -> Content {
    match content {
        Content::First => Content::Of { sector: sector as u32, write: 0 },
        other => other,
    }
}
