// SPDX-License-Identifier: MIT OR Apache-2.0
//! The steps before a flash is detached, or a volume leaves it: exchanges end, and dirty data is copied to the origin (a
//! *clear*).
//!
//! Each volume is cleared by a task of its own, so that an origin that hangs or fails delays no other. A clear that is requested
//! while one of the same volume is in progress follows it, since that one may miss later writes.
//!
//! The result of an eviction is kept apart from that of a copy: a copy that succeeds while a detach still waits for other volumes
//! does not hide that this volume could not be evicted.

use std::cell::Cell;

use crate::request::Errno;
use crate::volumes::VolumeSet;

/// What is copied to the origins, and whether it leaves the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clear {
    /// The volume; `None` for all of them.
    pub volume: Option<u32>,
    /// Whether the units leave. Those of one volume do not come back until it joins again; the others are evicted for a detach
    /// of the flash.
    pub evict: bool,
}

/// What a clear does with the units of a volume. A later step includes the earlier ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Step {
    /// Copies dirty data; the units stay.
    Copy,
    /// Evicts the units.
    Evict,
    /// The volume gets no slot from now on.
    Leave,
}

/// Progress of an update, of clears, and towards a detach.
pub(crate) struct Detaching {
    /// An update is in progress; never at the same time as a clear.
    pub updating: Cell<bool>,
    /// Commands that warm or evict units; none at the same time as a clear.
    arranging: Cell<u32>,
    /// The clear of each volume.
    each: Vec<Clearing>,
    /// Whether changes wait, from the end of a clear on, for the detach of a page log.
    pub hold_back: Cell<bool>,
    /// The flash is about to be detached, once the clears have ended.
    leaving: Cell<bool>,
    /// No unit is exchanged: the volume stops, or the flash is about to be detached.
    pub stopped: Cell<bool>,
    /// The volume stops.
    stops: Cell<bool>,
}

/// A command that warms or evicts units.
pub(crate) struct Arranging<'a> {
    of: &'a Detaching,
}

impl Drop for Arranging<'_> {
    fn drop(&mut self) {
        self.of.arranging.set(self.of.arranging.get() - 1);
    }
}

/// The clear of a volume.
struct Clearing {
    in_progress: Cell<bool>,
    /// What is requested and has not begun.
    requested: Cell<Option<Step>>,
    /// The result of the last step, and that of the last one that evicts.
    copied: Cell<Result<(), Errno>>,
    evicted: Cell<Result<(), Errno>>,
    /// How often the volume joined.
    joined: Cell<u32>,
}

impl Detaching {
    pub(crate) fn of(volumes: u32) -> Self {
        let clearing = |_| Clearing {
            in_progress: Cell::new(false),
            requested: Cell::new(None),
            copied: Cell::new(Ok(())),
            evicted: Cell::new(Ok(())),
            joined: Cell::new(0),
        };
        Self {
            updating: Cell::new(false),
            arranging: Cell::new(0),
            each: (0..volumes).map(clearing).collect(),
            hold_back: Cell::new(false),
            leaving: Cell::new(false),
            stopped: Cell::new(false),
            stops: Cell::new(false),
        }
    }

    /// Whether exchanges have ended.
    pub(crate) fn has_begun(&self) -> bool {
        self.is_clearing() || self.stopped.get()
    }

    /// A command may warm or evict units until the guard is dropped; `None` while a clear is in progress.
    pub(crate) fn arranges(&self) -> Option<Arranging<'_>> {
        if self.is_clearing() {
            return None;
        }
        self.arranging.set(self.arranging.get() + 1);
        Some(Arranging { of: self })
    }

    /// Whether an update or a command moves units.
    pub(crate) fn moves_units(&self) -> bool {
        self.updating.get() || self.arranging.get() > 0
    }

    /// The volume stops: no unit is exchanged from now on.
    pub(crate) fn stop(&self) {
        self.stops.set(true);
        self.stopped.set(true);
    }

    /// The detach that a clear prepared does not come.
    pub(crate) fn cancel(&self) {
        self.hold_back.set(false);
        self.stopped.set(self.stops.get());
    }

    /// Whether dirty data is being copied to an origin.
    pub(crate) fn is_clearing(&self) -> bool {
        self.each.iter().any(|of| of.in_progress.get())
    }

    /// Requests a clear; returns the volumes for which the caller must start it.
    pub(crate) fn request(&self, clear: Clear) -> VolumeSet {
        let step = match clear {
            Clear { evict: false, .. } => Step::Copy,
            Clear { volume: None, evict: true } => Step::Evict,
            Clear { volume: Some(_), evict: true } => Step::Leave,
        };
        if step == Step::Evict {
            self.hold_back.set(true);
            self.leaving.set(true);
        }
        let asked = |number: &u32| clear.volume.is_none_or(|volume| volume == *number);
        let begin = |number: &u32| {
            let of = &self.each[*number as usize];
            of.requested.set(of.requested.get().max(Some(step)));
            !of.in_progress.replace(true)
        };
        (0..self.each.len() as u32).filter(asked).filter(begin).collect()
    }

    /// The next step that is requested for a volume.
    pub(crate) fn next(&self, volume: u32) -> Option<Step> {
        self.each[volume as usize].requested.take()
    }

    /// The volume joins: a leave that is requested or in progress ends.
    pub(crate) fn join(&self, volume: u32) {
        let of = &self.each[volume as usize];
        of.joined.set(of.joined.get().wrapping_add(1));
        if of.requested.get() == Some(Step::Leave) {
            let rest = if self.leaving.get() { Step::Evict } else { Step::Copy };
            of.requested.set(Some(rest));
        }
    }

    /// How often the volume joined. A leave ends if that changes.
    pub(crate) fn joined(&self, volume: u32) -> u32 {
        self.each[volume as usize].joined.get()
    }

    /// A step for a volume has ended. What is requested behind one that failed fails too, but not behind a leave that a join
    /// ended.
    pub(crate) fn did(&self, volume: u32, step: Step, result: Result<(), Errno>) {
        let of = &self.each[volume as usize];
        let failed = result.is_err_and(|errno| errno != Errno::ECANCELED);
        let discarded = if failed { of.requested.take() } else { None };
        of.copied.set(result);
        if discarded.max(Some(step)) >= Some(Step::Evict) {
            of.evicted.set(result);
        }
    }

    /// The clear of a volume has ended. With the last one that precedes a detach, exchanges end until another flash is
    /// attached.
    pub(crate) fn ended(&self, volume: u32) {
        self.each[volume as usize].in_progress.set(false);
        if !self.is_clearing() && self.leaving.replace(false) {
            self.stopped.set(self.each.iter().all(|of| of.evicted.get().is_ok()));
        }
    }

    /// Result of the last clear of this kind; `None` while one of its volumes is being cleared.
    pub(crate) fn cleared(&self, clear: Clear) -> Option<Result<(), Errno>> {
        let of = match clear.volume {
            Some(volume) => &self.each[volume as usize..=volume as usize],
            None => &self.each[..],
        };
        let result = |of: &Clearing| if clear.evict { of.evicted.get() } else { of.copied.get() };
        let ended = of.iter().all(|of| !of.in_progress.get());
        ended.then(|| of.iter().map(result).fold(Ok(()), Result::and))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COPY: Clear = Clear { volume: None, evict: false };
    const ALL: Clear = Clear { volume: None, evict: true };
    const FAILED: Result<(), Errno> = Err(Errno::EIO);

    fn end(detaching: &Detaching, volume: u32, result: Result<(), Errno>) {
        while let Some(step) = detaching.next(volume) {
            detaching.did(volume, step, result);
        }
        detaching.ended(volume);
    }

    #[test]
    fn each_volume_is_cleared_by_one_task_and_the_largest_step_follows() {
        let detaching = Detaching::of(2);
        let of_first = Clear { volume: Some(0), evict: true };
        assert_eq!(detaching.request(of_first), [0].into_iter().collect());
        assert_eq!(detaching.next(0), Some(Step::Leave));
        assert_eq!(detaching.request(COPY), [1].into_iter().collect(), "the first has its task");
        assert!(detaching.request(of_first).is_empty());
        assert_eq!((detaching.next(0), detaching.next(0)), (Some(Step::Leave), None));
        detaching.did(0, Step::Leave, FAILED);
        detaching.ended(0);
        assert_eq!(detaching.cleared(of_first), Some(FAILED));
        assert_eq!(detaching.cleared(COPY), None);
        end(&detaching, 1, Ok(()));
        assert_eq!(detaching.cleared(COPY), Some(FAILED));
        assert!(!detaching.has_begun());
    }

    #[test]
    fn a_copy_does_not_hide_that_an_eviction_failed() {
        let detaching = Detaching::of(2);
        assert_eq!(detaching.request(ALL).iter().count(), 2);
        end(&detaching, 1, FAILED);
        let of_second = Clear { volume: Some(1), evict: false };
        assert_eq!(detaching.request(of_second), [1].into_iter().collect());
        end(&detaching, 1, Ok(()));
        assert_eq!((detaching.cleared(of_second), detaching.cleared(ALL)), (Some(Ok(())), None));
        end(&detaching, 0, Ok(()));
        assert_eq!(detaching.cleared(ALL), Some(FAILED));
        assert!(!detaching.stopped.get());
    }

    #[test]
    fn an_eviction_behind_a_copy_that_fails_fails_too() {
        let detaching = Detaching::of(1);
        detaching.request(COPY);
        let step = detaching.next(0);
        assert_eq!(step, Some(Step::Copy));
        detaching.request(ALL);
        detaching.did(0, Step::Copy, FAILED);
        assert_eq!(detaching.next(0), None);
        detaching.ended(0);
        assert_eq!((detaching.cleared(ALL), detaching.stopped.get()), (Some(FAILED), false));
        detaching.request(ALL);
        end(&detaching, 0, Ok(()));
        assert_eq!((detaching.cleared(ALL), detaching.stopped.get()), (Some(Ok(())), true));
    }

    #[test]
    fn a_join_ends_a_leave_and_nothing_else() {
        const LEAVE: Clear = Clear { volume: Some(0), evict: true };
        let detaching = Detaching::of(1);
        detaching.request(LEAVE);
        assert_eq!((detaching.next(0), detaching.joined(0)), (Some(Step::Leave), 0));
        detaching.request(LEAVE);
        detaching.join(0);
        assert_eq!(detaching.joined(0), 1);
        detaching.did(0, Step::Leave, Err(Errno::ECANCELED));
        assert_eq!(detaching.next(0), Some(Step::Copy), "a flush may wait for it");
        // A detach of the flash waits for it too.
        detaching.request(LEAVE);
        detaching.request(ALL);
        detaching.join(0);
        detaching.did(0, Step::Copy, Ok(()));
        assert_eq!(detaching.next(0), Some(Step::Evict));
        detaching.did(0, Step::Evict, Ok(()));
        detaching.ended(0);
        assert_eq!((detaching.cleared(ALL), detaching.stopped.get()), (Some(Ok(())), true));
    }

    #[test]
    fn exchanges_continue_after_a_detach_that_was_canceled() {
        let detaching = Detaching::of(1);
        detaching.request(ALL);
        end(&detaching, 0, Ok(()));
        assert!(detaching.stopped.get());
        detaching.cancel();
        assert!(!detaching.stopped.get() && !detaching.hold_back.get());
        detaching.stop();
        detaching.cancel();
        assert!(detaching.stopped.get(), "the volume stops");
    }

    #[test]
    fn exchanges_end_once_everything_has_left() {
        for (result, stops) in [(Ok(()), true), (FAILED, false)] {
            let detaching = Detaching::of(2);
            assert_eq!(detaching.request(ALL).iter().count(), 2);
            end(&detaching, 1, Ok(()));
            assert!(!detaching.stopped.get());
            end(&detaching, 0, result);
            assert_eq!(detaching.stopped.get(), stops);
        }
    }
}
