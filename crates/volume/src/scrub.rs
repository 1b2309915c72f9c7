// SPDX-License-Identifier: MIT OR Apache-2.0
//! A scrub: what flash has of ranges is read back and compared with its checksums.
//!
//! Invariant: every damaged page that was found is counted; of their places a report has the first [`MOST_PLACES`] runs.

use std::collections::btree_map::Entry;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use larder_core::buf::PAGE;
use larder_core::request::Errno;
use larder_core::shard::Damaged;
use serde::Serialize;

use super::cache::Cache;
use super::error::VolumeError;
use super::lock::lock;
use super::ranges::{Progress, Ranged, Terms};
use super::tasks::{Done, GoesOn};
use super::volume::Volume;

/// How often the log gets a line about damaged pages.
const LOG_EVERY: Duration = Duration::from_secs(10);
/// Runs of damaged pages that are named.
pub const MOST_PLACES: usize = 1000;

/// What a scrub found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Scrubbed {
    /// Pages that did not match their checksum.
    pub damaged_pages: u64,
    /// Those of them whose data no other device has.
    pub lost_pages: u64,
    /// Where they are on the volume, neighbours as one.
    pub places: Vec<Place>,
}

/// A run of damaged pages.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Place {
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub length: u64,
    /// No other device has their data.
    pub lost: bool,
}

impl Scrubbed {
    /// Adds a page; `space`: of the volume, in that of several.
    pub(crate) fn add(&mut self, found: Damaged, space: &Range<u64>) {
        let Damaged { range, lost } = found;
        let (offset, length) = (range.start - space.start, range.end.min(space.end) - range.start);
        let pages = length.div_ceil(PAGE as u64);
        self.damaged_pages += pages;
        self.lost_pages += if lost { pages } else { 0 };
        let joins = |last: &&mut Place| last.offset + last.length == offset && last.lost == lost;
        let has_room = self.places.len() < MOST_PLACES;
        match self.places.last_mut().filter(joins) {
            Some(last) => last.length += length,
            None if has_room => {
                self.places.push(Place { offset, length, lost });
            }
            None => {}
        }
    }
}

impl Cache {
    /// A page of flash, that of byte `at` in the space of all volumes, is not as it was written. Logged at most every
    /// [`LOG_EVERY`]: a device that returns garbage has many.
    pub(crate) fn flash_damaged(&self, at: u64) {
        let mut state = lock(&self.state);
        if state.damage_logged.is_some_and(|last| last.elapsed() < LOG_EVERY) {
            return;
        }
        state.damage_logged = Some(Instant::now());
        let volume = self.volumes.at(at);
        tracing::warn!(
            "{}flash returned wrong data for the page at byte {} of the volume: clean data is read from the origin, dirty data is EIO; \
             damaged_pages counts all such pages, larder scrub lists them",
            self.config.of_volume(volume),
            at - self.volumes.range(volume).start
        );
    }

    /// A page that only flash has, that of byte `at` in the space of all volumes, is damaged: an alarm until a scrub of the
    /// whole volume finds none, or until flash is detached.
    pub(crate) fn dirty_damaged(self: &Arc<Self>, at: u64) {
        let volume = self.volumes.at(at);
        let mut state = lock(&self.state);
        let attached = state.attached.is_some();
        let Entry::Vacant(first) = state.dirty_damaged.entry(volume) else { return };
        if !attached {
            return;
        }
        let why = format!(
            "{}dirty data on flash is damaged, noticed first at byte {} of the volume: EIO until it is written again; larder scrub lists it",
            self.config.of_volume(volume),
            at - self.volumes.range(volume).start
        );
        first.insert(why.clone());
        drop(state);
        tracing::error!("ALARM: {why}");
        self.keep_recent(&why);
    }
}

impl Volume {
    /// Reads what flash has of these ranges, extended to whole pages, and compares it with its checksums. Clean pages that do not match are
    /// written again from the origin.
    ///
    /// # Errors
    /// As for [`warm`](Self::warm); flash has no checksums.
    pub fn scrub(
        &self,
        ranges: &[Range<u64>],
        terms: Terms,
        progress: Progress<'_>,
    ) -> Result<(Ranged, Scrubbed), VolumeError> {
        self.check_present()?;
        self.check(ranges)?;
        self.flash_bytes()?;
        let (space, mut scrubbed) = (&self.space(), Scrubbed::default());
        let act = &mut |some: &[Range<u64>], goes_on: GoesOn<'_>| {
            let found = self.each_worker(some, goes_on, |shard, ranges, done: Done<_>| {
                shard.scrub(ranges, done);
            })?;
            let Some(found) = found else { return Ok(false) };
            let lacks =
                "scrub: cached data has no checksums; accepted: a cache of units with --verify on";
            let found = found.map_err(|errno| match errno {
                Errno::EIO => VolumeError::Refused("flash cannot be read".to_owned()),
                errno => self.cannot(errno, lacks),
            })?;
            let mut found: Vec<Damaged> = found.into_iter().flatten().collect();
            found.sort_unstable_by_key(|damaged| damaged.range.start);
            found.into_iter().for_each(|damaged| scrubbed.add(damaged, space));
            Ok(true)
        };
        let ranged = self.in_windows(ranges, terms, progress, act)?;
        if let Some(lost) = scrubbed.places.iter().find(|place| place.lost) {
            self.cache().dirty_damaged(space.start + lost.offset);
        } else if scrubbed.lost_pages == 0 && ranged.passed_bytes >= space.end - space.start {
            let volume = self.cache().volumes.at(space.start);
            lock(&self.cache().state).dirty_damaged.remove(&volume);
        }
        Ok((ranged, scrubbed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_one_place_unless_only_one_of_them_is_lost() {
        let mut scrubbed = Scrubbed::default();
        for (page, lost) in [(4, false), (5, false), (6, true), (9, true)] {
            let range = page * 4096..(page + 1) * 4096;
            scrubbed.add(Damaged { range, lost }, &(4096..1 << 30));
        }
        let place =
            |page: u64, pages: u64, lost| Place { offset: page * 4096, length: pages * 4096, lost };
        assert_eq!((scrubbed.damaged_pages, scrubbed.lost_pages), (4, 2));
        assert_eq!(scrubbed.places, [place(3, 2, false), place(5, 1, true), place(8, 1, true)]);
    }
}
