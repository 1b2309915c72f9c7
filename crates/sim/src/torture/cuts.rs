// SPDX-License-Identifier: MIT OR Apache-2.0
//! Power cuts: what they leave of the devices, and what must hold of it.
//!
//! Of the writes that no flush covered, sector by sector, any part may be there: none, all, all up
//! to a moment, all but one, or each by chance. The origin alone must hold what was promised, and
//! every page that recovery finds valid on flash must be what the origin holds.

use larder_core::buf::{PAGE, SECTOR};
use larder_core::journal::layout::Layout;
use larder_core::journal::recover::{Recovered, Unusable, recover};
use larder_core::shape::Shape;
use rand::RngExt;
use rand_pcg::Pcg64Mcg;

use super::history::Violation;
use super::life::{Judged, Life, wrong};
use super::plan::{FLASH, Setup};
use super::promise::Promise;
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
    let shape = Shape { shard, ..setup.shape };
    let layout = Layout::of(&shape, &setup.flash(volume)).ok_or(Unusable::Nothing)?;
    let read = &mut |at: u64, len: u64| {
        let mut bytes = vec![0; len as usize];
        store.read_image(flash, at, &mut bytes);
        Ok(bytes)
    };
    recover(&layout, volume, read)
}

/// Judges what a power cut left.
pub(super) fn judge_cut(life: &mut Life<'_>, origin: &Image, flash: &Image) -> Judged<()> {
    life.seen.recoveries += 1;
    judge_origin(life, origin)?;
    if !life.attached || !life.setup.is_journaled() {
        return Ok(());
    }
    let (setup, volume) = (life.setup, life.volume);
    for shard in 0..setup.shape.shards {
        let Some(store) = &life.world.device(FLASH).store else { continue };
        match recover_shard(setup, volume, shard, store, flash) {
            Ok(found) => {
                let shape = Shape { shard, ..setup.shape };
                judge_pages(life, &shape, &found, origin, flash)?;
            }
            Err(Unusable::Nothing) => {}
            Err(_) if setup.trouble.rots() => life.seen.cold += 1,
            Err(why) => {
                return wrong("8: metadata is lost", format!("of shard {shard}: {why:?}"));
            }
        }
    }
    Ok(())
}

/// The origin alone holds what was promised.
fn judge_origin(life: &mut Life<'_>, image: &Image) -> Judged<()> {
    let Some(store) = &life.world.device(ORIGIN).store else { return Ok(()) };
    for sector in life.oracle.touched() {
        let content = image.get(sector as usize).map_or(Content::First, |v| v.content);
        let value = match content {
            Content::First => crate::oracle::Value::Of(0),
            content => store
                .value(sector, content)
                .map_err(|what| Violation::new("2: the origin", Some(sector), what))?,
        };
        if let Some(flushed) = life.flushed {
            let lost = life.oracle.durable(sector, value, flushed);
            lost.map_err(|w| Violation::of("7: an answered FLUSH did not cover a write", w))?;
        }
        let lost = life.oracle.durable_fua(sector, value);
        lost.map_err(|w| Violation::of("7: an answered FUA write is lost", w))?;
    }
    Ok(())
}

/// Every page that recovery finds valid is what the origin holds.
fn judge_pages(
    life: &mut Life<'_>,
    shape: &Shape,
    found: &Recovered,
    origin: &Image,
    flash: &Image,
) -> Judged<()> {
    let setup = life.setup;
    let place = setup.flash(life.volume);
    let Some(layout) = Layout::of(shape, &place) else { return Ok(()) };
    let undetected = setup.trouble.promise() == Promise::Undetected;
    let mut units = Vec::with_capacity(layout.slots as usize);
    for slot in 0..layout.slots {
        let Some((unit, pages)) = found.slot(slot, &layout) else { continue };
        if units.contains(&unit) || u64::from(unit) >= shape.units() {
            return wrong("8: metadata contradicts itself", format!("unit {unit}"));
        }
        units.push(unit);
        let number = u64::from(slot) * u64::from(shape.shards) + u64::from(shape.shard);
        for page in pages {
            let within = u64::from(page) * PAGE as u64;
            let at = shape.unit_offset(unit) + within;
            let len = shape.origin_bytes.saturating_sub(at).min(PAGE as u64);
            let ours = (place.base + number * shape.unit_bytes + within) / SECTOR as u64;
            let theirs = at / SECTOR as u64;
            for i in 0..len / SECTOR as u64 {
                let (a, b) = (flash.get((ours + i) as usize), origin.get((theirs + i) as usize));
                let (Some(a), Some(b)) = (a, b) else { continue };
                life.seen.pages += 1;
                if a.content == as_written(theirs + i, b.content) {
                    continue;
                }
                if undetected && a.tainted {
                    life.seen.undetected += 1;
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
