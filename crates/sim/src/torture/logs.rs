// SPDX-License-Identifier: MIT OR Apache-2.0
//! Page logs under torture: what is drawn for them, and what must hold of them after a power cut.
//!
//! The engine's own recovery looks at the images of the devices. Every page that it finds valid is the only
//! truth of that page; where it counts as clean it is also what the origin holds.

use std::collections::BTreeMap;
use std::ops::Range;

use larder_core::buf::{Buf, PAGE, SECTOR};
use larder_core::config::{AdmissionChoice, Choices, WritePolicy};
use larder_core::pagelog::{Found, Geometry, LogPolicy, Look, OpenError};
use rand::RngExt;
use rand_pcg::Pcg64Mcg;

use super::cuts::{Owner, Owners};
use super::history::Violation;
use super::life::{Judged, Life, wrong};
use super::plan::{FLASH, Setup};
use super::promise::Trouble;
use crate::store::{Content, Image, Store};

/// Sectors of a page.
const SECTORS: u64 = (PAGE / SECTOR) as u64;

/// Small batches, and a log of a few of them, so that laps are short. Its bytes; 0 where there is none.
pub(super) fn draw(
    choices: &mut Choices,
    policy: Option<LogPolicy>,
    unit_bytes: u64,
    rng: &mut Pcg64Mcg,
) -> u64 {
    let AdmissionChoice::OnExit(settings) = &mut choices.admission else { return 0 };
    settings.batch_pages = [2, 4, 8][rng.random_range(0..3)];
    settings.reads = rng.random_bool(0.8);
    choices.write = WritePolicy::Logged(policy.unwrap_or(LogPolicy::Full));
    choices.unit_bytes = unit_bytes;
    let geometry = Geometry {
        base: 0,
        blocks: 0,
        page_bytes: PAGE as u32,
        batch_pages: settings.batch_pages,
        volume: 0,
    };
    let least = geometry.least_blocks();
    let geometry = Geometry { blocks: least + rng.random_range(0..2 * least), ..geometry };
    geometry.bytes()
}

/// Writes empty logs to a flash device.
pub(super) fn format(setup: &Setup, volume: u64, flash: &mut Store) {
    for place in setup.logs(volume) {
        place.blank().iter().for_each(|(at, bytes)| flash.write(*at, bytes, true));
    }
}

/// Where rot may strike one copy: one place of headers, and segments, which the heads of batches repeat.
pub(super) fn one_copy(setup: &Setup) -> Vec<Range<u64>> {
    let page = PAGE as u64;
    let of = |place: Geometry| {
        let header = place.base + u64::from(setup.copy) * page;
        [header..header + page, place.base + 2 * page..place.block(0)]
    };
    setup.logs(0).into_iter().flat_map(of).collect()
}

/// Where batches lie.
pub(super) fn batches(setup: &Setup) -> Vec<Range<u64>> {
    let of = |place: Geometry| place.block(0)..place.base + place.bytes();
    setup.logs(0).into_iter().map(of).collect()
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
    life: &mut Life<'_>,
    (origin, flash): (&Image, &Image),
    owners: &mut Owners,
) -> Judged<()> {
    let setup = life.setup;
    let Some(settings) = setup.choices.log() else { return Ok(()) };
    for (shard, place) in setup.logs(life.volume).into_iter().enumerate() {
        let Some(store) = &life.world.device(FLASH).store else { continue };
        let (found, pages) = match recover(setup, place, store, flash) {
            Ok(found) => found,
            // The origin has everything, or everything that was flushed.
            Err(_) if !settings.policy.outlives_crash() => continue,
            Err(error) => {
                return wrong("8: metadata is lost", format!("of shard {shard}: {error}"));
            }
        };
        let settled = life.world.shards()[shard].journal_settled();
        if settled && setup.trouble.spares_flash() {
            life.seen.settled += 1;
            let status = life.world.shards()[shard].cache_status();
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
            life.seen.dirty += u64::from(dirty);
            if dirty {
                owners.set(page, Owner::Flash(sector));
            } else {
                judge_clean(life, page * SECTORS, sector, (origin, flash))?;
            }
        }
    }
    Ok(())
}

/// A clean page is what the origin holds, unless rot struck it, which its checksum shows to whoever reads it.
fn judge_clean(
    life: &mut Life<'_>,
    theirs: u64,
    ours: u64,
    (origin, flash): (&Image, &Image),
) -> Judged<()> {
    let sectors = life.setup.shape.origin_bytes / SECTOR as u64;
    for i in (0..SECTORS).take_while(|i| theirs + i < sectors) {
        let (a, b) = (flash.get((ours + i) as usize), origin.get((theirs + i) as usize));
        let (Some(a), Some(b)) = (a, b) else { continue };
        life.seen.pages += 1;
        let expected = match b.content {
            Content::First => Content::Of { sector: (theirs + i) as u32, write: 0 },
            other => other,
        };
        let rots = life.setup.trouble == Trouble::DataRot;
        if a.content != expected && !rots {
            let (a, b) = (a.content, b.content);
            let what = format!("the log holds {a:?} at sector {ours}, the origin {b:?}");
            let rule = "9: recovery takes a stale page for valid";
            return Err(Violation::new(rule, Some(theirs + i), what));
        }
    }
    Ok(())
}
