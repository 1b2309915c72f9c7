// SPDX-License-Identifier: MIT OR Apache-2.0
//! The interface between a buffer pool and its extension on flash, and the extension without flash.

use std::rc::Rc;

use super::machine::Io;

/// A page that the pool evicts, or that is made safe and stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Leaving {
    pub(super) page: u64,
    pub(super) version: u32,
    /// It is newer than disk.
    pub(super) dirty: bool,
    /// It is newer than its copy on flash, or has none that is known.
    pub(super) fdirty: bool,
}

/// A page that was found on flash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) version: u32,
    /// It is newer than disk.
    pub(super) dirty: bool,
}

/// The cold end of the pool, from which an extension may pull more pages to evict.
pub(super) trait Tail {
    /// The next one; it is held until [`Tail::done`].
    fn pull(&self) -> Option<Leaving>;
    /// A pulled page is safe: its frame is free unless a task wanted the page meanwhile. `dirty`
    /// states whether it is newer than the disk's version.
    fn done(&self, pulled: Leaving, dirty: bool);
}

/// An extension, see the module. A page is asked for by at most one task at a time, and is never
/// fetched during its eviction.
pub(super) trait Extension: 'static {
    /// Starts its background tasks.
    fn start(self: &Rc<Self>) {}

    /// Reads a page from flash, if flash has it.
    async fn fetch(&self, page: u64) -> Option<Found>;

    /// Makes a page safe, so that the pool may drop it; whether it is newer than disk now.
    async fn leave(&self, leaving: Leaving, tail: &dyn Tail) -> bool;

    /// A page was read from disk.
    fn enter(self: &Rc<Self>, page: u64, version: u32);

    /// The database's checkpoint makes a page safe that stays; whether it is newer than disk now.
    async fn checkpoint(&self, leaving: Leaving) -> bool;

    /// All that a checkpoint handed over is durable.
    async fn settle(&self) {}

    /// A clean stop: the directory in memory is written to flash.
    async fn stop(&self) {}

    /// Starts again after a crash from the contents of flash, and returns how much was read for that; `None` if
    /// the contents are lost.
    async fn reopen(&self, io: Rc<Io>) -> Option<(Rc<Self>, u64)>;

    /// Frames of flash, those with a page, and of these the ones that hold an old version.
    fn frames(&self) -> Frames;

    /// Pages admitted to flash so far.
    fn entered(&self) -> u64;
}

/// The state of flash.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Frames {
    /// All.
    pub all: u64,
    /// With something in it.
    pub used: u64,
    /// Of these, with a version that is not the last.
    pub stale: u64,
    /// Of these, newer than disk.
    pub dirty: u64,
}

/// No flash: the database is on disk, or all of it on a drive that takes the disk's place.
pub(super) struct Nothing(pub(super) Rc<Io>);

impl Extension for Nothing {
    async fn fetch(&self, _page: u64) -> Option<Found> {
        None
    }

    async fn leave(&self, leaving: Leaving, _tail: &dyn Tail) -> bool {
        if leaving.dirty {
            self.0.write_disk(leaving.page, leaving.version).await;
        }
        false
    }

    fn enter(self: &Rc<Self>, _page: u64, _version: u32) {}

    async fn checkpoint(&self, leaving: Leaving) -> bool {
        if leaving.dirty {
            self.0.write_disk(leaving.page, leaving.version).await;
        }
        false
    }

    async fn reopen(&self, io: Rc<Io>) -> Option<(Rc<Self>, u64)> {
        Some((Rc::new(Self(io)), 0))
    }

    fn frames(&self) -> Frames {
        Frames::default()
    }

    fn entered(&self) -> u64 {
        0
    }
}
