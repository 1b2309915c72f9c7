// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ranges of a volume that a command warms, evicts, or asks about.
//!
//! Ranges are handled one after the other, up to [`WINDOW`] bytes at a time, in the order in which they are given: the
//! first ones are the most wanted. In between the pace is kept, progress is reported, and the command may end. What was
//! done stays done.
//!
//! Invariants: nothing is warmed that does not fit on flash with all else of the same command, in the units or pages that it takes
//! there, unless a share of a volume or a set leaves less. A window that has begun ends by itself, even if the command ended first.
//!
//! What is done is the cache's (`core/src/cache/arrange.rs`); a kind that cannot do it refuses.

use std::ops::Range;
use std::time::{Duration, Instant};

use larder_core::buf::PAGE;
use larder_core::ranges::windows;
use larder_core::request::Errno;
use larder_core::shard::{Arrangement, Shard};

use super::error::VolumeError;
use super::lock::lock;
use super::tasks::{Done, GoesOn, LOOK};
use super::volume::Volume;

/// Bytes that are handled at a time.
const WINDOW: u64 = 32 << 20;
/// A window takes about so long where a pace is set.
const PACED: Duration = Duration::from_millis(250);
/// The smallest window of a pace.
const LEAST: u64 = 1 << 20;
/// Ranges that are handled at a time.
const TOGETHER: usize = 1024;

/// How a command treats its ranges.
#[derive(Clone, Copy, Debug, Default)]
pub struct Terms {
    /// Bytes per second at most.
    pub pace: Option<u64>,
    /// The time after which it ends.
    pub bound: Option<Duration>,
    /// Bytes of flash that earlier commands of the same list took: the first ranges are warmed, as many as fit beside them. `None`:
    /// ranges that do not all fit are refused.
    pub beside: Option<u64>,
}

/// What a command did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ranged {
    /// Bytes of the ranges; of those that fit, if others are left out.
    pub range_bytes: u64,
    /// Those that were handled before the command ended: all of them, unless its time was over.
    pub passed_bytes: u64,
    /// Bytes of the ranges that flash has.
    pub cached_bytes: u64,
}

/// Called with the bytes that are done, and all of them; returns whether to continue.
pub type Progress<'a> = &'a mut dyn FnMut(u64, u64) -> bool;

/// Handles a part of ranges; returns whether the command continues.
type Act<'a> = &'a mut dyn FnMut(&[Range<u64>], GoesOn<'_>) -> Result<bool, VolumeError>;

impl Volume {
    /// Bytes of these ranges that flash has.
    ///
    /// # Errors
    /// A range ends beyond the volume; a worker does not answer.
    pub fn cached(&self, ranges: &[Range<u64>]) -> Result<Ranged, VolumeError> {
        self.check(ranges)?;
        let range_bytes = total(ranges);
        let mut cached_bytes = 0;
        for some in batches(ranges, WINDOW) {
            cached_bytes += self.cached_in(&some)?;
        }
        Ok(Ranged { range_bytes, passed_bytes: range_bytes, cached_bytes })
    }

    /// Copies these ranges to flash, extended to whole units, or as single pages where these are admitted. Also returns the flash
    /// that they take, with that of earlier commands of the same list. What cannot be copied is left out.
    ///
    /// # Errors
    /// As for [`cached`](Self::cached); no flash is in use, the ranges take more than it has, the command was abandoned, or an
    /// origin is overdue.
    pub fn warm(
        &self,
        ranges: &[Range<u64>],
        terms: Terms,
        progress: Progress<'_>,
    ) -> Result<(Ranged, u64), VolumeError> {
        self.check_present()?;
        self.check(ranges)?;
        let flash = self.flash_bytes()?;
        let (fitting, taken) = self.fitting(ranges, terms.beside.unwrap_or(0), flash);
        let left_out = ranges.len() - fitting;
        if left_out > 0 && terms.beside.is_none() {
            return Err(VolumeError::Refused(format!(
                "the ranges do not fit on flash, which caches {flash} bytes in units of {}; accepted: ranges of fewer units",
                self.cache().config().choices.cached_bytes()
            )));
        }
        if terms.beside.is_none_or(|taken| taken == 0) {
            self.cache().ask(|worker| worker.shard.begin_list())?;
        }
        let warmed = self.pass(Arrangement::Warm, &ranges[..fitting], terms, progress)?;
        Ok((warmed, taken))
    }

    /// How many of these ranges fit on so many bytes of flash, of which some are taken; and what is taken with them.
    fn fitting(&self, ranges: &[Range<u64>], taken: u64, flash: u64) -> (usize, u64) {
        let choices = &self.cache().config().choices;
        let unit = choices.unit_bytes;
        let (mut taken, mut whole) = (taken, None);
        for (n, range) in ranges.iter().enumerate() {
            let range = self.placed(range);
            let (first, last) = (range.start / unit, (range.end - 1) / unit);
            let part = |at: u64| {
                let start = range.start.max(at * unit);
                choices.warmed_bytes(range.end.min((at + 1) * unit) - start)
            };
            let mut bytes = if whole == Some(first) { 0 } else { part(first) };
            if last > first {
                bytes += (last - first - 1) * choices.warmed_bytes(unit) + part(last);
            }
            if taken.saturating_add(bytes) > flash {
                return (n, taken);
            }
            taken += bytes;
            whole = (part(last) >= unit).then_some(last);
        }
        (ranges.len(), taken)
    }

    /// Evicts these ranges from flash, extended to whole units. Dirty data is copied to the origin before.
    ///
    /// # Errors
    /// As for [`warm`](Self::warm), or a device fails.
    pub fn evict(
        &self,
        ranges: &[Range<u64>],
        progress: Progress<'_>,
    ) -> Result<Ranged, VolumeError> {
        self.check_present()?;
        self.check(ranges)?;
        self.check_unpinned(ranges)?;
        self.flash_bytes()?;
        self.pass(Arrangement::Evict, ranges, Terms::default(), progress)
    }

    /// Arranges all ranges.
    pub(crate) fn pass(
        &self,
        what: Arrangement,
        ranges: &[Range<u64>],
        terms: Terms,
        progress: Progress<'_>,
    ) -> Result<Ranged, VolumeError> {
        let act = &mut |some: &[Range<u64>], goes_on: GoesOn<'_>| self.arrange(what, some, goes_on);
        self.in_windows(ranges, terms, progress, act)
    }

    /// Handles all ranges, window by window: `act` returns whether it was done before the command ended.
    pub(crate) fn in_windows(
        &self,
        ranges: &[Range<u64>],
        terms: Terms,
        progress: Progress<'_>,
        act: Act<'_>,
    ) -> Result<Ranged, VolumeError> {
        let began = Instant::now();
        let range_bytes = total(ranges);
        // Whole pages, so that no page is handled twice.
        let paced =
            |pace: u64| (pace as f64 * PACED.as_secs_f64()) as u64 / PAGE as u64 * PAGE as u64;
        let window = terms.pace.map_or(WINDOW, |pace| paced(pace).clamp(LEAST, WINDOW));
        let mut passed_bytes = 0;
        for some in batches(ranges, window) {
            let due = terms.pace.map_or(Duration::ZERO, |pace| {
                Duration::from_secs_f64(passed_bytes as f64 / pace.max(1) as f64)
            });
            // Whether the command continues.
            let mut goes_on = || match progress(passed_bytes, range_bytes) {
                true => Ok(terms.bound.is_none_or(|bound| began.elapsed() < bound)),
                false => Err(VolumeError::Refused("abandoned by its client".to_owned())),
            };
            while let Some(early) =
                due.checked_sub(began.elapsed()).filter(|early| !early.is_zero())
            {
                if !goes_on()? {
                    break;
                }
                std::thread::sleep(early.min(LOOK));
            }
            if !goes_on()? || !act(&some, &mut goes_on)? {
                break;
            }
            passed_bytes = passed_bytes.saturating_add(total(&some));
        }
        let Ranged { cached_bytes, .. } = self.cached(ranges)?;
        Ok(Ranged { range_bytes, passed_bytes, cached_bytes })
    }

    /// Whether ranges lie on the volume.
    pub(crate) fn check(&self, ranges: &[Range<u64>]) -> Result<(), VolumeError> {
        let size = self.space().end - self.space().start;
        for range in ranges {
            if range.is_empty() || range.end > size {
                return Err(VolumeError::Usage(format!(
                    "{}+{}: not a range of the volume; accepted: a length, and an end up to {size}",
                    range.start,
                    range.end.saturating_sub(range.start)
                )));
            }
        }
        Ok(())
    }

    /// Bytes that the flash caches, of all volumes.
    pub(crate) fn flash_bytes(&self) -> Result<u64, VolumeError> {
        let (state, cache) = (lock(&self.cache().state), self.cache());
        if state.outside.contains(&self.number()) {
            let why = format!("volume '{}' has left its cache", self.name());
            return Err(VolumeError::Refused(format!("{why}; accepted: after larder attach")));
        }
        let attached = state.attached.as_ref().map(|attached| attached.flash.plan.slots());
        let slots = attached.ok_or_else(|| {
            VolumeError::Refused(
                "no flash device is attached; accepted: after larder attach".into(),
            )
        })?;
        Ok(cache.flash_bytes(slots))
    }

    fn cached_in(&self, some: &[Range<u64>]) -> Result<u64, VolumeError> {
        let ranges: Vec<Range<u64>> = some.iter().map(|range| self.placed(range)).collect();
        let cached = self.cache().ask(move |worker| {
            ranges.iter().map(|range| worker.shard.cached(range)).sum::<u64>()
        })?;
        Ok(cached.into_iter().sum::<u64>().min(total(some)))
    }

    /// A range of the volume in the space of all volumes.
    pub(crate) fn placed(&self, range: &Range<u64>) -> Range<u64> {
        let start = self.space().start;
        start + range.start..start + range.end
    }

    /// Each worker does it with its units; returns whether it was done before the command ended.
    fn arrange(
        &self,
        what: Arrangement,
        some: &[Range<u64>],
        goes_on: GoesOn<'_>,
    ) -> Result<bool, VolumeError> {
        let done = self.each_worker(some, goes_on, move |shard, ranges, done: Done<()>| {
            shard.arrange(what, ranges, done);
        })?;
        done.transpose().map(|done| done.is_some()).map_err(|errno| self.failed(what, errno))
    }

    /// Each worker begins with its part of ranges; returns what they found, unless the command ended before.
    pub(crate) fn each_worker<T: Send + 'static>(
        &self,
        some: &[Range<u64>],
        goes_on: GoesOn<'_>,
        begin: impl Fn(&Shard, Vec<Range<u64>>, Done<T>) + Clone + Send + 'static,
    ) -> Result<Option<Result<Vec<T>, Errno>>, VolumeError> {
        let ranges: Vec<Range<u64>> = some.iter().map(|range| self.placed(range)).collect();
        self.cache().each_worker(goes_on, move |shard, done| begin(shard, ranges.clone(), done))
    }

    /// Why ranges could not be arranged.
    fn failed(&self, what: Arrangement, errno: Errno) -> VolumeError {
        self.cannot(errno, match what {
            Arrangement::Warm => {
                "warm: this cache admits only what is written; accepted: a cache that admits reads"
            }
            Arrangement::Evict => {
                "evict: pages leave a page log in the order in which they were appended; accepted: detach"
            }
        })
    }

    /// Why ranges could not be handled; `lacks`: why not by this cache.
    pub(crate) fn cannot(&self, errno: Errno, lacks: &str) -> VolumeError {
        let refused = |why: &str| VolumeError::Refused(why.to_owned());
        match errno {
            Errno::ENODEV => refused("the flash device is out of use"),
            Errno::ECANCELED => refused("a detach or stop has begun"),
            Errno::EOPNOTSUPP => refused(lacks),
            Errno::ETIMEDOUT => {
                let why = "clients or a device keep units of the range busy; repeat the command";
                VolumeError::TooSlow(why.to_owned())
            }
            errno => {
                let device = self.origin().name().to_owned();
                VolumeError::Device { device, doing: "handling a range", errno }
            }
        }
    }
}

fn length(range: &Range<u64>) -> u64 {
    range.end.saturating_sub(range.start)
}

/// The bytes of ranges, which may overlap.
pub(crate) fn total(ranges: &[Range<u64>]) -> u64 {
    ranges.iter().fold(0, |sum, range| sum.saturating_add(length(range)))
}

/// The ranges in their order, cut at multiples of so many bytes, some at a time: up to so many bytes together.
fn batches(ranges: &[Range<u64>], bytes: u64) -> impl Iterator<Item = Vec<Range<u64>>> + '_ {
    let mut all = windows(ranges, bytes).peekable();
    std::iter::from_fn(move || {
        let (mut some, mut sum) = (vec![all.next()?], 0);
        while let Some(next) = all.peek() {
            sum += some.last().map_or(0, length);
            if sum + length(next) > bytes || some.len() == TOGETHER {
                break;
            }
            some.extend(all.next());
        }
        Some(some)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_hold_as_many_bytes_as_they_may() {
        let ranges = [5..25, 100..103, 104..107, 30..40];
        let text: Vec<_> = batches(&ranges, 10).map(|some| format!("{some:?}")).collect();
        assert_eq!(text, ["[5..10]", "[10..20]", "[20..25, 100..103]", "[104..107]", "[30..40]"]);
        let small: Vec<Range<u64>> = (0..2000).map(|n| 2 * n..2 * n + 1).collect();
        assert_eq!(
            batches(&small, 1 << 20).map(|some| some.len()).collect::<Vec<_>>(),
            [1024, 976]
        );
    }
}
