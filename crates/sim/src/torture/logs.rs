// SPDX-License-Identifier: MIT OR Apache-2.0
//! Page logs under torture: they are formatted, and what must hold of them after a power cut.
//!
//! The engine's own recovery looks at the images of the devices. Every page that it finds valid is the only
//! truth of that page; where it counts as clean it is also what the origin holds.

use std::collections::BTreeMap;

use larder_core::buf::{Buf, PAGE, SECTOR};
use larder_core::pagelog::{Found, Geometry, Look, OpenError};

use super::history::{Judged, Violation, wrong};
use super::moment::Moment;
use super::owners::{Owner, Owners};
use super::promise::Trouble;
use super::setup::{FLASH, Setup};
use crate::store::{Content, Image, Store};

/// Sectors of a page.
const SECTORS: u64 = (PAGE / SECTOR) as u64;

/// Writes empty logs to a flash device.
pub(super) fn format(setup: &Setup, volume: u64, flash: &mut Store) {
    setup.plan.blank(volume).for_each(|(at, bytes)| flash.write(at, &bytes, true));
}

/// What recovery makes of a log: what it found, and where its valid pages lie, and whether the origin may
/// lack them.
type Recovered = (Found, BTreeMap<u64, (u64, bool)>);

fn recover(
    setup: &Setup,
    place: Geometry,
    store: &Store,
    image: &Image,
) -> Result<Recovered, OpenError> {
    let Some(settings) = setup.choices.log() else { return Err(OpenError::NoHeader) };
    let read = |offset, mut buf: Buf| {
        store.read_image(image, offset, &mut buf);
        Ok(buf)
    };
    let look = Look::new(place, settings, read)?;
    let pages = look.pages().map(|(page, at, dirty)| (page, (at, dirty))).collect();
    Ok((look.found, pages))
}

/// Judges the logs of all shards; what flash owns goes to `owners`.
pub(super) fn judge(
    moment: &mut Moment<'_>,
    (origin, flash): (&Image, &Image),
    owners: &mut Owners,
) -> Judged<()> {
    let setup = moment.setup;
    let (Some(logs), Some(settings)) = (setup.logs(), setup.choices.log()) else { return Ok(()) };
    for (shard, place) in logs.each(moment.volume).enumerate() {
        let Some(store) = moment.world.store(FLASH) else { continue };
        let (found, pages) = match recover(setup, place, store, flash) {
            Ok(found) => found,
            // The origin has everything, or everything that was flushed.
            Err(_) if !settings.policy.outlives_crash() => continue,
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
            if dirty {
                owners.set(page, Owner::Flash(sector));
            } else {
                judge_clean(moment, page * SECTORS, sector, (origin, flash))?;
            }
        }
    }
    Ok(())
}

/// A clean page is what the origin holds, unless rot struck it, which its checksum shows to whoever reads it.
fn judge_clean(
    moment: &mut Moment<'_>,
    theirs: u64,
    ours: u64,
    (origin, flash): (&Image, &Image),
) -> Judged<()> {
    let sectors = moment.setup.shape.origin_bytes / SECTOR as u64;
    for i in (0..SECTORS).take_while(|i| theirs + i < sectors) {
        let (a, b) = (flash.get((ours + i) as usize), origin.get((theirs + i) as usize));
        let (Some(a), Some(b)) = (a, b) else { continue };
        moment.seen.pages += 1;
        let expected = match b.content {
            Content::First => Content::Of { sector: (theirs + i) as u32, write: 0 },
            other => other,
        };
        let rots = moment.setup.trouble == Trouble::DataRot;
        if a.content != expected && !rots {
            let (a, b) = (a.content, b.content);
            let what = format!("the log holds {a:?} at sector {ours}, the origin {b:?}");
            let rule = "9: recovery takes a stale page for valid";
            return Err(Violation::new(rule, Some(theirs + i), what));
        }
    }
    Ok(())
}
