// SPDX-License-Identifier: MIT OR Apache-2.0
//! FaCE: the engine's page log between pool and disk.
//!
//! The log itself ([`larder_core::pagelog`]) is that of a served volume. This file is what a
//! buffer pool does with it (FaCE, Algorithm 1): a page that is newer than flash's copy is put; one that
//! is not is put if flash has none; and when a group has left the log and the open batch has room,
//! more pages are pulled from the cold end of the pool until it is full (4.3), except those that flash
//! already has.
//!
//! A page is evicted from the pool when it is in a batch in memory. The batch is written in the background,
//! its pages are read from there until then, and a task that finds four batches in flight waits. That is
//! safe in a database whose log has every change since the last checkpoint, as a checkpoint ends when
//! all that was put is durable.
//!
//! Invariant: a page that is newer than disk is in the pool, or valid and dirty in the log.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::atomic::AtomicU64;

use larder_core::buf::{Buf, PAGE};
use larder_core::pagelog::{
    BATCH_PAGES, BUFFERS, Geometry, Got, Host, LogPolicy, LogSettings, words_needed,
};

use super::extension::{Extension, Found, Frames, Leaving, Tail};
use super::log_host::{LogHost, Store, decode, encode};
use super::machine::Io;
use super::{Caches, PageLog, Sync};

type Inner = larder_core::pagelog::PageLog<LogHost, Vec<AtomicU64>>;

/// The extension, see the module.
pub(super) struct Log {
    log: Rc<Inner>,
    how: PageLog,
    caches: Caches,
    sync: Sync,
    io: Rc<Io>,
    /// Pages that had left the log when pages were pulled last.
    seen: Cell<u64>,
}

fn memory(geometry: &Geometry) -> Vec<AtomicU64> {
    (0..words_needed(geometry.blocks)).map(|_| AtomicU64::new(0)).collect()
}

impl Log {
    /// A new log on so many bytes of flash; nothing if they are too few.
    pub(super) async fn format(
        bytes: u64,
        how: PageLog,
        caches: Caches,
        sync: Sync,
        io: Rc<Io>,
    ) -> Option<Rc<Self>> {
        let geometry = Geometry::fit(0, bytes, BATCH_PAGES, 1)?;
        let store = Rc::<Store>::default();
        for (offset, buf) in geometry.blank() {
            store.write(offset, &buf);
        }
        let opened = Self::open(store, geometry, how, caches, sync, io).await;
        opened.map(|(log, _)| log)
    }

    async fn open(
        store: Rc<Store>,
        geometry: Geometry,
        how: PageLog,
        caches: Caches,
        sync: Sync,
        io: Rc<Io>,
    ) -> Option<(Rc<Self>, u64)> {
        let back = sync == Sync::Back && caches != Caches::Clean;
        let policy = if back { LogPolicy::Full } else { LogPolicy::Through };
        let settings = LogSettings { policy, second_chance: how.second_chance };
        let host = LogHost::new(Rc::clone(&io), store, how.batches);
        let opened = Inner::open(host, memory(&geometry), geometry, settings).await;
        let (log, found) = opened.ok()?;
        let log = Self { log: Rc::new(log), how, caches, sync, io, seen: Cell::new(0) };
        Some((Rc::new(log), found.read_bytes))
    }

    async fn put(&self, page: u64, version: u32, dirty: bool) {
        let mut buf = Buf::with_len(PAGE);
        encode(page, version, &mut buf);
        // The devices do not fail, so the log does not.
        let put = self.log.put(page, &buf, dirty).await;
        debug_assert!(put.is_ok(), "{put:?}");
    }

    /// Makes a page safe; whether it is newer than disk then.
    async fn keep(&self, leaving: Leaving) -> bool {
        let Leaving { page, version, fdirty, .. } = leaving;
        if !fdirty {
            // If it has left flash, it was written back to disk.
            if self.caches != Caches::Dirty && !self.log.has(page) {
                self.put(page, version, false).await;
            }
            return leaving.dirty;
        }
        if self.caches == Caches::Clean || self.sync == Sync::Around {
            let dropped = self.log.drop_pages(page..page + 1).await;
            debug_assert!(dropped.is_ok(), "{dropped:?}");
            self.io.write_disk(page, version).await;
            return false;
        }
        if self.sync == Sync::Back {
            self.put(page, version, true).await;
            return true;
        }
        let disk = self.io.write(super::machine::DISK, page);
        self.put(page, version, false).await;
        super::machine::done(disk).await;
        self.io.set_disk(page, version);
        false
    }

    /// Pulls pages into what is left of the open batch, if a group has left since the last time.
    async fn pull(&self, tail: &dyn Tail) {
        let status = self.log.status();
        let gone = status.evicted + status.appended_again;
        if !self.how.second_chance || self.seen.replace(gone) == gone {
            return;
        }
        for _ in 0..status.open_room {
            let Some(pulled) = tail.pull() else { return };
            let dirty = self.keep(pulled).await;
            tail.done(pulled, dirty);
        }
    }
}

/// Writes batches, without end.
async fn write(log: Rc<Inner>) {
    loop {
        let seen = log.host().changes();
        if !log.write_next().await {
            log.host().changed(seen).await;
        }
    }
}

/// Makes room, without end.
async fn make_room(log: Rc<Inner>) {
    loop {
        let seen = log.host().changes();
        if !log.keep().await {
            log.host().changed(seen).await;
        }
    }
}

impl Extension for Log {
    fn start(self: &Rc<Self>) {
        for _ in 0..BUFFERS {
            self.io.exec.spawn(write(Rc::clone(&self.log)));
        }
        self.io.exec.spawn(make_room(Rc::clone(&self.log)));
    }

    async fn fetch(&self, page: u64) -> Option<Found> {
        match self.log.get(page).await {
            Ok(Got::Hit(buf, dirty)) => Some(Found { version: decode(&buf).1, dirty }),
            Ok(Got::Miss) | Err(_) => None,
        }
    }

    async fn leave(&self, leaving: Leaving, tail: &dyn Tail) -> bool {
        let dirty = self.keep(leaving).await;
        self.pull(tail).await;
        dirty
    }

    fn enter(self: &Rc<Self>, _page: u64, _version: u32) {}

    async fn checkpoint(&self, leaving: Leaving) -> bool {
        self.keep(leaving).await
    }

    async fn settle(&self) {
        let settled = self.log.flush().await;
        debug_assert!(settled.is_ok(), "{settled:?}");
    }

    async fn stop(&self) {
        let released = self.log.release().await;
        debug_assert!(released.is_ok(), "{released:?}");
    }

    async fn reopen(&self, io: Rc<Io>) -> Option<(Rc<Self>, u64)> {
        let (store, geometry) = (Rc::clone(&self.log.host().store), *self.log.geometry());
        Self::open(store, geometry, self.how, self.caches, self.sync, io).await
    }

    fn frames(&self) -> Frames {
        let status = self.log.status();
        let pages = self.log.host().pages_in(status.used);
        let stale = pages.saturating_sub(status.valid);
        Frames { all: status.blocks, used: status.used, stale, dirty: status.dirty }
    }

    fn entered(&self) -> u64 {
        self.log.status().put
    }
}
