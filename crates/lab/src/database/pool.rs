// SPDX-License-Identifier: MIT OR Apache-2.0
//! The buffer pool: the frames of TPC-C's pool ([`Frames`]), each with the two flags of FaCE (4.3), over an extension.
//!
//! A task that needs a frame takes the coldest that is not held, makes its page safe by the extension
//! and waits for that, as PostgreSQL's backends do. The page stays in its frame meanwhile; if a task
//! wants it, it stays in the pool and the next one is tried. A page that is being read is waited for.
//!
//! Pages have no bytes but a *version*, the number of changes made to them. A page that is fetched from flash
//! or disk must have its last version: any other is counted as wrong.
//!
//! Invariants: a page is in one frame at most; a held frame is not taken; `dirty` is never false while
//! the page is newer than disk, `fdirty` never while it is newer than its copy on flash.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use super::extension::{Extension, Leaving, Tail};
use super::journal::{Change, Journal};
use super::machine::{DISK, Io, done};
use super::waits::Waits;
use crate::load::trace::tpcc::frames::Frames;
use crate::load::trace::tpcc::pool::How;

#[derive(Default)]
struct Frame {
    version: u32,
    dirty: bool,
    fdirty: bool,
    loading: bool,
    held: bool,
    /// A task accessed it while it was held.
    wanted: bool,
    waits: Rc<Waits>,
}

struct State {
    frames: Frames<Frame>,
    /// The last version of each page.
    latest: Vec<u32>,
}

/// What the pool counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolCounts {
    /// Accesses to pages.
    pub accesses: u64,
    /// Pages that had to be fetched.
    pub misses: u64,
    /// Of these, those found on flash.
    pub flash_hits: u64,
    /// Changed pages that the pool evicted, or that a checkpoint made safe.
    pub dirty_left: u64,
    /// Pages that the pool evicted.
    pub left: u64,
    /// Pages that came back in another version than the last.
    pub wrong: u64,
}

impl PoolCounts {
    /// The difference to an earlier state.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            accesses: self.accesses - earlier.accesses,
            misses: self.misses - earlier.misses,
            flash_hits: self.flash_hits - earlier.flash_hits,
            dirty_left: self.dirty_left - earlier.dirty_left,
            left: self.left - earlier.left,
            wrong: self.wrong - earlier.wrong,
        }
    }
}

/// The pool, see the module.
pub(super) struct Pool<E> {
    state: RefCell<State>,
    pub(super) extension: Rc<E>,
    io: Rc<Io>,
    room: Waits,
    counts: Cell<PoolCounts>,
    pub(super) journal: RefCell<Journal>,
}

/// Where a page is.
enum Look {
    There,
    Loading(Rc<Waits>),
    Absent,
}

impl<E: Extension> Pool<E> {
    /// An empty pool of so many pages.
    pub(super) fn new(pages: u32, extension: Rc<E>, io: Rc<Io>) -> Self {
        let state = State { frames: Frames::new(pages), latest: Vec::new() };
        Self {
            state: RefCell::new(state),
            extension,
            io,
            room: Waits::default(),
            counts: Cell::default(),
            journal: RefCell::default(),
        }
    }

    pub(super) fn counts(&self) -> PoolCounts {
        self.counts.get()
    }

    fn count(&self, what: impl FnOnce(&mut PoolCounts)) {
        let mut counts = self.counts.get();
        what(&mut counts);
        self.counts.set(counts);
    }

    /// An access of a transaction.
    pub(super) async fn access(&self, page: u64, how: How) {
        self.touch(page, how, None).await;
    }

    /// A change as the log has it, made again where the page does not have it.
    pub(super) async fn redo(&self, change: Change) {
        let how = if change.makes { How::Make } else { How::Change };
        self.touch(change.page, how, Some(change)).await;
    }

    async fn touch(&self, page: u64, how: How, again: Option<Change>) {
        self.count(|c| c.accesses += 1);
        loop {
            match self.look(page, how, again) {
                Look::There => return,
                Look::Loading(waits) => waits.wait(&self.io.exec).await,
                Look::Absent => {
                    let frame = self.frame().await;
                    if self.state.borrow().frames.find(page).is_some() {
                        self.state.borrow_mut().frames.give(frame);
                        self.room.wake(&self.io.exec);
                    } else {
                        self.load(frame, page, how == How::Make).await;
                    }
                }
            }
        }
    }

    /// Accesses a page if it is there.
    fn look(&self, page: u64, how: How, again: Option<Change>) -> Look {
        let state = &mut *self.state.borrow_mut();
        let Some(at) = state.frames.find(page) else { return Look::Absent };
        let frame = state.frames.get(at).1;
        if frame.loading {
            return Look::Loading(Rc::clone(&frame.waits));
        }
        state.frames.used(at);
        let frame = state.frames.state(at);
        frame.wanted = true;
        let version = match again {
            _ if how == How::Read => return Look::There,
            Some(change) => change.version,
            None => {
                let makes = how == How::Make;
                let version = next_version(&mut state.latest, page);
                self.journal.borrow_mut().add(Change { page, version, makes });
                version
            }
        };
        if frame.version < version {
            frame.version = version;
            (frame.dirty, frame.fdirty) = (true, true);
        }
        Look::There
    }

    /// Fetches a page into a free frame.
    async fn load(&self, at: u32, page: u64, makes: bool) {
        let waits = Rc::<Waits>::default();
        {
            let loading = Frame { loading: true, waits: Rc::clone(&waits), ..Frame::default() };
            self.state.borrow_mut().frames.enter(at, page, loading);
        }
        let (mut version, mut dirty) = (0, false);
        if !makes {
            (version, dirty) = self.fetch(page).await;
        }
        let state = &mut *self.state.borrow_mut();
        let frame = state.frames.state(at);
        (frame.version, frame.dirty, frame.loading) = (version, dirty, false);
        state.frames.ready(at);
        waits.wake(&self.io.exec);
    }

    async fn fetch(&self, page: u64) -> (u32, bool) {
        self.count(|c| c.misses += 1);
        // While changes are made again the last versions are not known yet.
        let expected = self.state.borrow().latest.get(page as usize).copied();
        let found = match self.extension.fetch(page).await {
            Some(found) => {
                self.count(|c| c.flash_hits += 1);
                (found.version, found.dirty)
            }
            None => {
                done(self.io.read(DISK, page)).await;
                let version = self.io.on_disk(page);
                self.extension.enter(page, version);
                (version, false)
            }
        };
        self.count(|c| c.wrong += u64::from(expected.is_some_and(|v| v != found.0)));
        found
    }

    /// A frame that is free and the caller's.
    async fn frame(&self) -> u32 {
        loop {
            if let Some(frame) = self.state.borrow_mut().frames.take() {
                return frame;
            }
            let Some(leaving) = self.pull() else {
                self.room.wait(&self.io.exec).await;
                continue;
            };
            let dirty = self.extension.leave(leaving, self).await;
            self.done(leaving, dirty);
        }
    }

    /// Holds a frame's page, so that it can be made safe.
    fn hold(&self, state: &mut State, at: u32) -> Leaving {
        let page = state.frames.get(at).0;
        let frame = state.frames.state(at);
        (frame.held, frame.wanted) = (true, false);
        let dirty = std::mem::take(&mut frame.dirty);
        let fdirty = std::mem::take(&mut frame.fdirty);
        self.count(|c| c.dirty_left += u64::from(fdirty));
        Leaving { page, version: frame.version, dirty, fdirty }
    }

    /// Changed pages, in order of place: what a checkpoint has to make safe.
    pub(super) fn changed(&self) -> Vec<u64> {
        self.state.borrow().frames.pages(|frame| frame.fdirty && !frame.loading)
    }

    /// Makes a page safe that stays, unless that has happened meanwhile.
    pub(super) async fn checkpoint(&self, page: u64) {
        let leaving = {
            let state = &mut *self.state.borrow_mut();
            let at = state.frames.find(page);
            let Some(at) = at.filter(|at| {
                let frame = state.frames.get(*at).1;
                frame.fdirty && !frame.held && !frame.loading
            }) else {
                return;
            };
            self.hold(state, at)
        };
        let dirty = self.extension.checkpoint(leaving).await;
        let state = &mut *self.state.borrow_mut();
        if let Some(at) = state.frames.find(page) {
            let frame = state.frames.state(at);
            frame.held = false;
            frame.dirty |= dirty;
        }
        self.room.wake(&self.io.exec);
    }

    /// Looks up every changed page that is not in the pool; returns how many, and how many of them are
    /// not in their last version.
    pub(super) async fn audit(&self) -> (u64, u64) {
        let before = self.counts.get();
        let changed: Vec<u64> = {
            let state = self.state.borrow();
            let all = (0..).zip(&state.latest);
            let away =
                all.filter(|(page, version)| **version > 0 && state.frames.find(*page).is_none());
            away.map(|(page, _)| page).collect()
        };
        for page in changed {
            self.fetch(page).await;
        }
        let now = self.counts.replace(before).since(&before);
        (now.misses, now.wrong)
    }

    /// The last versions of pages, which survive the pool with the log.
    pub(super) fn take_latest(&self) -> Vec<u32> {
        std::mem::take(&mut self.state.borrow_mut().latest)
    }

    /// Continues with these last versions.
    pub(super) fn set_latest(&self, latest: Vec<u32>) {
        self.state.borrow_mut().latest = latest;
    }
}

/// The version that the next change of a page makes.
fn next_version(latest: &mut Vec<u32>, page: u64) -> u32 {
    let at = page as usize;
    if latest.len() <= at {
        latest.resize(at + 1, 0);
    }
    latest[at] += 1;
    latest[at]
}

impl<E: Extension> Tail for Pool<E> {
    fn pull(&self) -> Option<Leaving> {
        let state = &mut *self.state.borrow_mut();
        let at = state.frames.coldest(|_, frame| !frame.held)?;
        Some(self.hold(state, at))
    }

    fn done(&self, pulled: Leaving, dirty: bool) {
        let state = &mut *self.state.borrow_mut();
        let Some(at) = state.frames.find(pulled.page) else { return };
        let frame = state.frames.state(at);
        frame.held = false;
        frame.dirty |= dirty;
        if !frame.wanted {
            self.count(|c| c.left += 1);
            state.frames.evict(at);
        }
        self.room.wake(&self.io.exec);
    }
}
