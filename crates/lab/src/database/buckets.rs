// SPDX-License-Identifier: MIT OR Apache-2.0
//! A cache below the database, of buckets that are filled in order: bcache in write-back (FaCE, 3.3).
//!
//! It sees what any block device sees. A page that is read from disk is admitted in the background, by a
//! stream of its own. A page that is written goes to the open bucket of its writer, of up to six, and
//! its older copy becomes invalid. Pages that the pool evicts unchanged are not seen. When a bucket is needed,
//! the engine's own order ([`larder_policy::replacement::Buckets`], which the preset `bcache` has) empties one
//! among those without dirty pages.
//!
//! Why not the preset itself under the database: under write-back it is a volume of the engine, and the database drives its
//! devices itself ([`super::machine`]).
//!
//! # Where the papers are silent
//! - Dirty pages are written to disk in the background while they are more than a tenth of the cache
//!   (bcache's own default), in order of place from the last position, and whenever no bucket
//!   is free.
//! - Writers are distinguished by the page's number, as there are no processes here; its journal and its
//!   tree of keys are left out, which makes it faster than it is.
//!
//! Invariants: a page is in one place at most; a place is not reused while it is being read or
//! written; a bucket that is taken has no dirty page.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use hashbrown::HashMap;

use larder_policy::replacement::{self, BucketOrder, Replacement};

use super::extension::{Extension, Found, Frames, Leaving, Tail};
use super::machine::{FLASH, Io, done};
use super::waits::Waits;

/// Pages of a bucket: 512 KiB, as of the preset.
pub(super) const BUCKET_PAGES: u32 = 128;
/// Open buckets for written pages; one more is for pages that were read.
const WRITERS: u64 = 6;
/// Writers' pages come in turns of so many neighbours.
const RUN_PAGES: u64 = 32;
/// Above this share of dirty pages they are written to disk.
const DIRTY_SHARE: f64 = 0.1;
/// How many at once.
const CLEANERS: u32 = 16;

#[derive(Clone, Copy)]
struct Copy {
    at: u32,
    version: u32,
    dirty: bool,
}

#[derive(Clone, Default)]
struct Bucket {
    /// Pages in it, invalid ones too.
    pages: Vec<u64>,
    /// Places that were given to pages, from its beginning.
    filled: u32,
    dirty: u32,
    /// Reads and writes in flight.
    pins: u32,
    open: bool,
}

struct State {
    /// Which bucket is emptied; its slots are places.
    order: replacement::Buckets,
    buckets: Vec<Bucket>,
    of: HashMap<u64, Copy>,
    /// Dirty pages by place on disk, and where cleaning has come to.
    dirty: BTreeMap<u64, bool>,
    swept: u64,
    open: Vec<Option<u32>>,
    free: VecDeque<u32>,
    cleaning: u32,
}

/// The extension, see the module.
pub(super) struct Buckets {
    io: Rc<Io>,
    state: RefCell<State>,
    room: Waits,
    work: Waits,
    wanted: Cell<bool>,
    entered: Cell<u64>,
}

impl Buckets {
    /// Over so many pages of flash.
    pub(super) fn new(pages: u32, order: BucketOrder, io: Rc<Io>) -> Self {
        let count = (pages / BUCKET_PAGES).max(WRITERS as u32 + 4);
        let state = State {
            order: replacement::Buckets::new(count * BUCKET_PAGES, BUCKET_PAGES, order),
            buckets: vec![Bucket::default(); count as usize],
            of: HashMap::new(),
            dirty: BTreeMap::new(),
            swept: 0,
            open: vec![None; WRITERS as usize + 1],
            free: (0..count).collect(),
            cleaning: 0,
        };
        Self {
            io,
            state: RefCell::new(state),
            room: Waits::default(),
            work: Waits::default(),
            wanted: Cell::new(false),
            entered: Cell::new(0),
        }
    }

    /// The next place of a stream, pinned; waits until there is one.
    async fn place(&self, stream: usize) -> u32 {
        loop {
            if let Some(at) = self.state.borrow_mut().place(stream) {
                return at;
            }
            self.wanted.set(true);
            self.work.wake(&self.io.exec);
            self.room.wait(&self.io.exec).await;
        }
    }

    /// Writes a page to the next place of a stream; unless it `is_due` no more when there is one.
    async fn put(&self, stream: usize, leaving: Leaving, is_due: impl Fn(&State) -> bool) {
        let at = self.place(stream).await;
        if is_due(&self.state.borrow()) {
            self.entered.set(self.entered.get() + 1);
            done(self.io.write(FLASH, at.into())).await;
            let state = &mut *self.state.borrow_mut();
            if is_due(state) {
                state.void(leaving.page);
                let copy = Copy { at, version: leaving.version, dirty: leaving.dirty };
                state.of.insert(leaving.page, copy);
                let bucket = &mut state.buckets[(at / BUCKET_PAGES) as usize];
                bucket.pages.push(leaving.page);
                if leaving.dirty {
                    bucket.dirty += 1;
                    state.dirty.insert(leaving.page, false);
                }
            }
        }
        let state = &mut *self.state.borrow_mut();
        state.buckets[(at / BUCKET_PAGES) as usize].pins -= 1;
        if state.is_too_dirty() {
            self.work.wake(&self.io.exec);
        }
        self.room.wake(&self.io.exec);
    }

    async fn write(&self, leaving: Leaving) -> bool {
        let stream = (leaving.page / RUN_PAGES % WRITERS) as usize;
        let dirty = Leaving { dirty: true, ..leaving };
        self.put(stream, dirty, |_| true).await;
        true
    }

    /// Writes dirty pages to disk whenever there are too many, or a bucket is wanted.
    async fn clean(self: Rc<Self>) {
        loop {
            let next = {
                let state = &mut *self.state.borrow_mut();
                let wanted = self.wanted.get() || state.is_too_dirty();
                let next = if wanted { state.next_dirty() } else { None };
                state.cleaning += u32::from(next.is_some());
                next
            };
            let Some((page, copy)) = next else {
                self.work.wait(&self.io.exec).await;
                continue;
            };
            done(self.io.read(FLASH, copy.at.into())).await;
            self.io.write_disk(page, copy.version).await;
            let state = &mut *self.state.borrow_mut();
            state.cleaning -= 1;
            state.cleaned(page, copy);
            self.wanted.set(false);
            self.room.wake(&self.io.exec);
        }
    }
}

impl State {
    fn place(&mut self, stream: usize) -> Option<u32> {
        if self.open[stream].is_none() {
            let bucket = match self.free.pop_front() {
                Some(bucket) => bucket,
                None => self.take()?,
            };
            self.buckets[bucket as usize] = Bucket { open: true, ..Bucket::default() };
            self.open[stream] = Some(bucket * BUCKET_PAGES);
        }
        let at = self.open[stream]?;
        let bucket = &mut self.buckets[(at / BUCKET_PAGES) as usize];
        bucket.pins += 1;
        bucket.filled += 1;
        bucket.open = bucket.filled < BUCKET_PAGES;
        self.open[stream] = bucket.open.then_some(at + 1);
        self.order.inserted(at, 0);
        Some(at)
    }

    /// Empties the bucket whose turn it is.
    fn take(&mut self) -> Option<u32> {
        let buckets = &self.buckets;
        let idle = |place: u32| {
            let bucket = &buckets[(place / BUCKET_PAGES) as usize];
            bucket.dirty == 0 && bucket.pins == 0 && !bucket.open && bucket.filled > 0
        };
        let number = self.order.victim(0, 0, &idle)? / BUCKET_PAGES;
        let bucket = &mut self.buckets[number as usize];
        let first = number * BUCKET_PAGES;
        (first..first + bucket.filled).for_each(|place| self.order.removed(place));
        for page in std::mem::take(&mut bucket.pages) {
            let here = |copy: &Copy| copy.at / BUCKET_PAGES == number;
            if self.of.get(&page).is_some_and(here) {
                self.of.remove(&page);
            }
        }
        Some(number)
    }

    /// The copy of a page becomes invalid.
    fn void(&mut self, page: u64) {
        if let Some(copy) = self.of.remove(&page)
            && copy.dirty
        {
            self.buckets[(copy.at / BUCKET_PAGES) as usize].dirty -= 1;
            self.dirty.remove(&page);
        }
    }

    fn is_too_dirty(&self) -> bool {
        let pages = self.buckets.len() as f64 * f64::from(BUCKET_PAGES);
        self.dirty.len() as f64 > DIRTY_SHARE * pages
    }

    /// The next dirty page by place on disk that no task cleans, its copy pinned.
    fn next_dirty(&mut self) -> Option<(u64, Copy)> {
        let behind = self.dirty.range(self.swept..).find(|(_, cleaning)| !**cleaning);
        let page = *behind.or_else(|| self.dirty.iter().find(|(_, cleaning)| !**cleaning))?.0;
        self.swept = page + 1;
        self.dirty.insert(page, true);
        let copy = *self.of.get(&page)?;
        self.buckets[(copy.at / BUCKET_PAGES) as usize].pins += 1;
        Some((page, copy))
    }

    /// A copy is on disk; if it is still valid, it is clean.
    fn cleaned(&mut self, page: u64, copy: Copy) {
        let bucket = &mut self.buckets[(copy.at / BUCKET_PAGES) as usize];
        bucket.pins -= 1;
        if let Some(now) = self.of.get_mut(&page).filter(|now| now.at == copy.at) {
            now.dirty = false;
            bucket.dirty -= 1;
            self.dirty.remove(&page);
        }
    }
}

impl Extension for Buckets {
    fn start(self: &Rc<Self>) {
        for _ in 0..CLEANERS {
            self.io.exec.spawn(Rc::clone(self).clean());
        }
    }

    async fn fetch(&self, page: u64) -> Option<Found> {
        let copy = {
            let state = &mut *self.state.borrow_mut();
            let copy = state.of.get(&page).copied()?;
            state.buckets[(copy.at / BUCKET_PAGES) as usize].pins += 1;
            state.order.accessed(copy.at);
            copy
        };
        done(self.io.read(FLASH, copy.at.into())).await;
        let state = &mut *self.state.borrow_mut();
        state.buckets[(copy.at / BUCKET_PAGES) as usize].pins -= 1;
        self.room.wake(&self.io.exec);
        // The database sees one device: a page that it has not changed since is clean to it.
        Some(Found { version: copy.version, dirty: false })
    }

    async fn leave(&self, leaving: Leaving, _tail: &dyn Tail) -> bool {
        if leaving.fdirty {
            self.write(leaving).await;
        }
        false
    }

    fn enter(self: &Rc<Self>, page: u64, version: u32) {
        let this = Rc::clone(self);
        self.io.exec.spawn(async move {
            let clean = Leaving { page, version, dirty: false, fdirty: false };
            let io = Rc::clone(&this.io);
            // A version written meanwhile is in the cache, or on disk already.
            let is_due =
                |state: &State| !state.of.contains_key(&page) && io.on_disk(page) == version;
            this.put(WRITERS as usize, clean, is_due).await;
        });
    }

    async fn checkpoint(&self, leaving: Leaving) -> bool {
        self.write(leaving).await;
        false
    }

    async fn reopen(&self, _io: Rc<Io>) -> Option<(Rc<Self>, u64)> {
        None
    }

    fn frames(&self) -> Frames {
        let state = self.state.borrow();
        let places = state.buckets.len() as u64 * u64::from(BUCKET_PAGES);
        let free = state.free.len() as u64 * u64::from(BUCKET_PAGES);
        let valid = state.of.len() as u64;
        let used = places - free;
        let stale = used.saturating_sub(valid);
        Frames { all: places, used, stale, dirty: state.dirty.len() as u64 }
    }

    fn entered(&self) -> u64 {
        self.entered.get()
    }
}
