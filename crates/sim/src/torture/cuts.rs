// SPDX-License-Identifier: MIT OR Apache-2.0
//! Power cuts: what they leave of the devices, and what must hold of it.
//!
//! Of the writes that no flush covered, sector by sector, any part may be stored: none, all, all up
//! to a moment, all but one, or each by chance. The origin alone must hold what was promised, and
//! every page that recovery finds valid on flash must be what the origin holds.

use larder_core::buf::SECTOR;
use rand::RngExt;
use rand_pcg::Pcg64Mcg;

use super::history::{Judged, Violation, wrong};
use super::moment::Moment;
use super::on_flash::on_flash;
use super::ordered::judge_origin;
use super::owners::Owners;
use crate::device::SimDevice;
use crate::store::Image;
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

/// The contents of a device after the end of a process.
pub(super) fn keep(device: &SimDevice, image: &mut Image) {
    if let Some(store) = &device.store {
        store.cut_into(image, |_, _| true);
    }
}

/// Judges what a power cut left.
pub(super) fn judge_cut(moment: &mut Moment<'_>, origin: &Image, flash: &Image) -> Judged<Owners> {
    moment.seen.recoveries += 1;
    let in_doubt = moment.world.served_in_doubt();
    if in_doubt > 0 {
        let what = format!("{in_doubt} hits were read from it");
        return wrong("3: the origin serves hits although it may have lost writes", what);
    }
    let setup = moment.setup;
    let mut owners = Owners::none(setup);
    if moment.attached {
        on_flash(&setup.plan).judge(moment, (origin, flash), &mut owners)?;
    }
    judge_volume(moment, &owners, origin, flash)?;
    if setup.kind.in_order {
        judge_origin(moment, origin)?;
    }
    if setup.kind.outlives_flash && owners.any() {
        // Whatever happens to flash.
        judge_volume(moment, &Owners::none(setup), origin, flash)?;
    }
    Ok(owners)
}

/// The volume holds what was promised: in a clean mode, the origin alone.
fn judge_volume(
    moment: &Moment<'_>,
    owners: &Owners,
    origin_left: &Image,
    flash_left: &Image,
) -> Judged<()> {
    let Some(origin) = moment.world.store(ORIGIN) else { return Ok(()) };
    let flash = moment.world.store(moment.flash).unwrap_or(origin);
    for sector in moment.oracle.touched() {
        let value = owners.value(sector, (origin, origin_left), (flash, flash_left))?;
        let Some(value) = value else { continue };
        let volume = moment.setup.volumes.at(sector * SECTOR as u64) as usize;
        if let Some(flushed) = moment.flushed[volume] {
            let lost = moment.oracle.durable(sector, value, flushed);
            lost.map_err(|w| Violation::of("7: an answered FLUSH did not cover a write", w))?;
        }
        let lost = moment.oracle.durable_fua(sector, value);
        lost.map_err(|w| Violation::of("7: an answered FUA write is lost", w))?;
        if let Some(cleared) = moment.cleared[volume] {
            let none = Owners::none(moment.setup);
            let alone = none.value(sector, (origin, origin_left), (flash, flash_left))?;
            let lost = alone.map_or(Ok(()), |v| moment.oracle.durable(sector, v, cleared));
            lost.map_err(|w| Violation::of("10: the origin lacks data that was written back", w))?;
        }
    }
    Ok(())
}
