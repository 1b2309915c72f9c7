// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pages in logs.
//!
//! The engine opens a log itself. After a power cut its own recovery reads the images of the devices: every page that
//! it finds valid is the current version of that page; a clean one is also what the origin holds.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use larder_core::buf::{Buf, PAGE, SECTOR};
use larder_core::format::LogsPlan;
use larder_core::pagelog::{Found as Seen, Geometry, Inspection, OpenError};

use super::{Found, OnFlash, as_written};
use crate::device::SimDevice;
use crate::store::{Image, Store};
use crate::torture::history::{Judged, Violation, wrong};
use crate::torture::moment::Moment;
use crate::torture::owners::{Owner, Owners};
use crate::torture::promise::Trouble;
use crate::torture::setup::Setup;
use crate::world::World;

/// Sectors of a page.
const SECTORS: u64 = (PAGE / SECTOR) as u64;

impl OnFlash for LogsPlan {
    fn attach(
        &self,
        world: &mut World,
        flash: SimDevice,
        (volume, ignored): (u64, &[Vec<Range<u64>>]),
        _: &Found,
    ) -> usize {
        world.attach_logs_ignoring(flash, self, volume, ignored);
        0
    }

    fn judge(
        &self,
        moment: &mut Moment<'_>,
        left: (&Image, &Image),
        owners: &mut Owners,
    ) -> Judged<()> {
        let setup = moment.setup;
        for (shard, place) in self.each(moment.volume).enumerate() {
            let Some(store) = moment.world.store(moment.flash) else { continue };
            let ignored = moment.ignored.get(shard).cloned().unwrap_or_default();
            let (found, pages, lost) = match recover(setup, (place, ignored), store, left.1) {
                Ok(found) => found,
                // The origin has everything, or everything that was flushed.
                Err(_) if !self.survives_crash => continue,
                Err(error) => {
                    return wrong("8: metadata is lost", format!("of shard {shard}: {error}"));
                }
            };
            let settled = moment.world.shards()[shard].journal_settled();
            if settled && setup.trouble.spares_flash() {
                moment.seen.settled += 1;
                let status = moment.world.shards()[shard].cache_status();
                let valid = status.map_or(0, |s| s.units_used);
                if pages.len() as u64 != valid {
                    let what = format!("{} of {valid} pages of shard {shard}", pages.len());
                    return wrong("9: recovery forgets what was durable", what);
                }
            }
            for page in found.redo.iter().cloned().flatten() {
                owners.set(page, Owner::Zero);
            }
            for (page, (at, dirty)) in pages {
                let sector = at / SECTOR as u64;
                moment.seen.dirty += u64::from(dirty);
                if lost.contains(&page) {
                    owners.set(page, Owner::Lost);
                } else if dirty {
                    owners.set(page, Owner::Flash(sector));
                } else {
                    judge_clean(moment, page * SECTORS, sector, left)?;
                }
            }
        }
        Ok(())
    }

    /// One place of headers, and segments, which the batch headers repeat.
    fn one_copy(&self, copy: u8) -> Vec<Range<u64>> {
        let page = PAGE as u64;
        let of = |place: Geometry| {
            let header = place.base + u64::from(copy) * page;
            [header..header + page, place.base + 2 * page..place.block(0)]
        };
        self.each(0).flat_map(of).collect()
    }

    /// Batches.
    fn data(&self) -> Vec<Range<u64>> {
        self.each(0).map(|place| place.block(0)..place.base + place.bytes()).collect()
    }

    fn sums(&self, _copy: u8) -> Vec<Range<u64>> {
        Vec::new() // part of the metadata
    }
}

/// What recovery makes of a log: what it found, where its valid pages lie and whether the origin may lack them, and
/// those that are lost.
type Recovered = (Seen, BTreeMap<u64, (u64, bool)>, BTreeSet<u64>);

fn recover(
    setup: &Setup,
    (place, ignored): (Geometry, Vec<Range<u64>>),
    store: &Store,
    image: &Image,
) -> Result<Recovered, OpenError> {
    let Some(settings) = setup.choices.log() else { return Err(OpenError::NoHeader) };
    let read = |offset, mut buf: Buf| {
        store.read_image(image, offset, &mut buf);
        Ok(buf)
    };
    let pages = setup.shape.pages();
    let look = Inspection::ignoring(place, settings, pages, ignored, read)?;
    let pages = look.pages().map(|(page, at, dirty)| (page, (at, dirty))).collect();
    let lost = look.lost().collect();
    Ok((look.found, pages, lost))
}

/// A clean page is what the origin holds, unless rot struck it, which its checksum shows to every reader.
fn judge_clean(
    moment: &mut Moment<'_>,
    theirs: u64,
    ours: u64,
    (origin, flash): (&Image, &Image),
) -> Judged<()> {
    let sectors = moment.space.0.origin_bytes / SECTOR as u64;
    for i in (0..SECTORS).take_while(|i| theirs + i < sectors) {
        let (a, b) = (flash.get((ours + i) as usize), origin.get((theirs + i) as usize));
        let (Some(a), Some(b)) = (a, b) else { continue };
        moment.seen.pages += 1;
        let rots = moment.setup.trouble == Trouble::DataRot;
        if a.content != as_written(theirs + i, b.content) && !rots {
            let (a, b) = (a.content, b.content);
            let what = format!("the log holds {a:?} at sector {ours}, the origin {b:?}");
            let rule = "9: recovery takes a stale page for valid";
            return Err(Violation::new(rule, Some(theirs + i), what));
        }
    }
    Ok(())
}
