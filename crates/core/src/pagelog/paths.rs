// SPDX-License-Identifier: MIT OR Apache-2.0
//! The paths of a log: put and flush; `get.rs` has the reads.
//!
//! A put waits for room in the open batch (or opens one), copies the page to its buffer, fills the slot, and advances the
//! head: the page becomes the current version, and the older version becomes invalid. A full batch is closed and written in
//! the background.

use std::ops::{Deref, Range};
use std::sync::atomic::AtomicU64;

use super::error::{Lack, NotAppended};
use super::geometry::{Geometry, PAGE_BYTES_MOST};
use super::host::{Host, insist};
use super::policy::LogSettings;
use super::words::{DIRTY, Kind, Mark, VALID, Words, slot_word};
use crate::checksum::crc32c;
use crate::mutant;
use crate::request::Errno;

/// A page of zeroes.
pub(super) static ZEROES: [u8; PAGE_BYTES_MOST] = [0; PAGE_BYTES_MOST];

/// A page log.
pub struct PageLog<H, M> {
    pub(super) host: H,
    pub(super) words: Words<M>,
    pub(super) log: Geometry,
    pub(super) settings: LogSettings,
}

/// The result of an attempt to admit a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum New {
    /// It was appended.
    Entered,
    /// There is no room.
    NoRoom,
    /// The log has a version of it, or is sealed.
    NotNow,
}

/// A version to append.
pub(super) struct Put<'a> {
    pub kind: Kind,
    pub page: u64,
    pub dirty: bool,
    pub crc: u32,
    pub bytes: &'a [u8],
    /// Append only if this slot holds the page's valid version.
    pub instead_of: Option<u32>,
    /// Whether it may use the reserve.
    pub urgent: bool,
}

impl<H: Host, M: Deref<Target = [AtomicU64]>> PageLog<H, M> {
    /// The host.
    pub fn host(&self) -> &H {
        &self.host
    }

    /// Its place on flash.
    pub fn geometry(&self) -> &Geometry {
        &self.log
    }

    pub(super) fn lock(&self) -> H::Guard<'_> {
        let (guard, died) = self.host.lock();
        if died && !mutant::is_active("page-log-no-repair") {
            self.words.repair(&self.log);
        }
        guard
    }

    /// Repairs the memory after the death of a holder of the lock. The caller holds the lock.
    pub fn repair(&self) {
        self.words.repair(&self.log);
    }

    /// The position of a slot, between tail and head.
    pub(super) fn position(&self, slot: u32) -> u64 {
        let tail = self.words.get(Mark::Tail);
        let blocks = u64::from(self.log.blocks);
        tail + (u64::from(slot) + blocks - tail % blocks) % blocks
    }

    /// Appends a version of a page, which becomes the current one. It is durable once [`settle`](Self::settle) of the
    /// returned position has returned.
    ///
    /// # Errors
    /// If the log has failed.
    pub async fn put(&self, page: u64, bytes: &[u8], dirty: bool) -> Result<u64, Errno> {
        let put = Self::page(page, bytes, dirty);
        match self.append(&put).await? {
            Some(position) => Ok(position),
            None => Err(Errno::EIO), // cannot happen: `instead_of` is not set
        }
    }

    /// As [`put`](Self::put), if `so` returns true under the log's lock, after any wait for room; `None` if it does not.
    ///
    /// # Errors
    /// If the log has failed.
    pub async fn put_if(
        &self,
        page: u64,
        bytes: &[u8],
        dirty: bool,
        so: impl Fn() -> bool,
    ) -> Result<Option<u64>, Errno> {
        self.append_if(&Self::page(page, bytes, dirty), so).await
    }

    /// As [`put`](Self::put), if there is room at once, the log has no version of the page, and it is not sealed. The caller
    /// may hold the page.
    ///
    /// # Errors
    /// If the log has failed.
    pub async fn put_new(&self, page: u64, bytes: &[u8], dirty: bool) -> Result<New, Errno> {
        self.put_new_if(page, bytes, dirty, || true).await
    }

    /// As [`put_new`](Self::put_new), if `so` returns true. It is called while no other task or process can put or drop the
    /// page.
    ///
    /// # Errors
    /// If the log has failed.
    pub async fn put_new_if(
        &self,
        page: u64,
        bytes: &[u8],
        dirty: bool,
        so: impl FnOnce() -> bool,
    ) -> Result<New, Errno> {
        let put = Self::page(page, bytes, dirty);
        let appended = {
            let _guard = self.lock();
            if !so() {
                return Ok(New::NotNow);
            }
            // Unsealing takes time, in which `so` may become false.
            let sealed = self.words.get(Mark::Sealed) != 0;
            match self.words.find(page) {
                Some(_) => return Ok(New::NotNow),
                None if self.is_buried(page) => return Ok(New::NotNow),
                None if sealed => return Ok(New::NotNow),
                None => self.try_append(&put),
            }
        };
        match appended {
            Ok(_) => {
                if !self.host.has_tasks() {
                    self.write_next().await;
                }
                Ok(New::Entered)
            }
            Err(NotAppended::Lack(lack)) => {
                if lack == Lack::Room {
                    // Requested here: if only clean pages are put, no other path makes room.
                    self.want_room();
                }
                Ok(New::NoRoom)
            }
            Err(NotAppended::Failed(errno)) => Err(errno),
        }
    }

    pub(super) fn page(page: u64, bytes: &[u8], dirty: bool) -> Put<'_> {
        let crc = crc32c(bytes);
        Put { kind: Kind::Page, page, dirty, crc, bytes, instead_of: None, urgent: false }
    }

    /// Appends, waiting for room. `None` if `instead_of` is no longer valid, or if there is no room even for an urgent
    /// version.
    pub(super) async fn append(&self, put: &Put<'_>) -> Result<Option<u64>, Errno> {
        self.append_if(put, || true).await
    }

    /// As above, if `so` returns true under the lock.
    async fn append_if(&self, put: &Put<'_>, so: impl Fn() -> bool) -> Result<Option<u64>, Errno> {
        let mut since = 0;
        loop {
            let mut seen = self.host.changes();
            self.unseal().await?;
            let appended = {
                let _guard = self.lock();
                if !so() {
                    return Ok(None);
                }
                if let Some(slot) = put.instead_of
                    && (self.words.find(put.page) != Some(slot))
                {
                    return Ok(None);
                }
                self.try_append(put)
            };
            match appended {
                Ok(position) => {
                    self.progress().await;
                    return Ok(Some(position));
                }
                Err(NotAppended::Failed(errno)) => return Err(errno),
                Err(NotAppended::Lack(Lack::Buffer)) => self.wait(seen, &mut since).await?,
                // The keeper, which makes room, cannot wait for it.
                Err(NotAppended::Lack(Lack::Room)) if put.instead_of.is_some() => {
                    if !self.room_of_evicted().await? {
                        return Ok(None);
                    }
                }
                Err(NotAppended::Lack(Lack::Room)) => {
                    if self.want_room() {
                        seen = self.host.changes();
                    }
                    self.wait(seen, &mut 0).await?;
                }
            }
        }
    }

    /// Appends a page if there is room. The caller holds the lock.
    pub(super) fn try_append(&self, put: &Put<'_>) -> Result<u64, NotAppended> {
        if let Some(errno) = self.failed() {
            return Err(NotAppended::Failed(errno));
        }
        let words = &self.words;
        let epoch = self.epoch();
        if words.open().is_some_and(|open| words.end_epoch(&self.log, open, epoch)) {
            self.host.notify();
        }
        let buffer = match words.open() {
            Some(buffer) => buffer,
            None => words.open_batch(&self.log, put.urgent, epoch).map_err(NotAppended::Lack)?,
        };
        let position = words.get(Mark::Head);
        let slot = self.log.slot(position);
        let place = position - words.batch_pages(buffer).start;
        if mutant::is_active("page-log-drops-first") {
            words.drop_pages(put.page..put.page + 1);
        }
        debug_assert_eq!(put.bytes.len() as u64, self.log.page());
        self.host.stage(buffer, place as usize, put.bytes);
        let flags = VALID | if put.dirty { DIRTY } else { 0 };
        let tombstone = put.kind == Kind::Tombstone;
        words.set_crc(slot, put.crc);
        words.set_slot(slot, slot_word(put.kind, put.page, if tombstone { 0 } else { flags }));
        words.set(Mark::Head, position + 1);
        // From here on the page is current.
        words.set(Mark::Last, position + 1);
        if tombstone {
            let pages = put.page..put.page + u64::from(put.crc);
            words.set(Mark::Tombstone, position + 1);
            words.drop_pages(pages.clone());
            self.host.buried(pages.clone());
            self.bury_until_replay(pages, position);
        } else {
            words.insert(slot);
        }
        words.add(Mark::Put, 1);
        if put.dirty || tombstone {
            self.entered(epoch);
        }
        if words.open_room(&self.log) == 0 {
            words.close_batch();
            self.host.notify();
        }
        Ok(position + 1)
    }

    /// Requests room from the keeper; returns whether this is the first request, which is a change.
    pub(super) fn want_room(&self) -> bool {
        let first = self.words.get(Mark::Wanted) == 0;
        if first {
            self.words.set(Mark::Wanted, 1);
            self.host.notify();
        }
        first
    }

    /// Waits for a change, or makes one. `since`: see [`Host::stops_waiting`].
    ///
    /// # Errors
    /// If the host must not wait any longer.
    pub(super) async fn wait(&self, seen: u64, since: &mut u64) -> Result<(), Errno> {
        if let Some(errno) = self.host.stops_waiting(since) {
            return Err(errno);
        }
        if self.host.has_tasks() || !self.work().await {
            self.host.changed(seen).await;
        }
        Ok(())
    }

    /// Without tasks, the process that closed a batch writes it.
    async fn progress(&self) {
        if !self.host.has_tasks() {
            self.work().await;
        }
    }

    /// Makes one step that is due, for a caller without tasks that holds no page; returns whether one was due.
    pub async fn work(&self) -> bool {
        // Boxed: `keep` may wait, and so call this function.
        self.write_next().await || Box::pin(self.keep()).await
    }

    /// Drops the valid versions of these pages before the origin is changed, in a log that does not survive a crash.
    ///
    /// # Errors
    /// If the seal of the log cannot be removed.
    pub async fn drop_pages(&self, pages: Range<u64>) -> Result<(), Errno> {
        self.unseal().await?;
        let _guard = self.lock();
        self.words.drop_pages(pages);
        Ok(())
    }

    /// The origin has this version of the page.
    pub fn origin_has(&self, page: u64, position: u64) {
        let _guard = self.lock();
        self.words.add(Mark::OriginWrites, 1);
        let slot = self.words.find(page);
        if let Some(slot) = slot.filter(|slot| self.position(*slot) + 1 == position) {
            self.words.make_clean(slot);
        }
    }

    /// Whether a start may find it sealed.
    pub fn may_count(&self) -> bool {
        self.words.get(Mark::Sealed) != 0
    }

    /// Whether it is sealed.
    pub fn is_sealed(&self) -> bool {
        self.words.get(Mark::Sealed) == 2
    }

    /// Removes the seal of a stop, if there is one: the log is about to change.
    ///
    /// # Errors
    /// If flash fails.
    pub async fn unseal(&self) -> Result<(), Errno> {
        if self.words.get(Mark::Sealed) == 0 {
            return Ok(());
        }
        let segments = self.words.get(Mark::Segments);
        let written = insist(&self.host, async || self.write_header(segments, None).await).await;
        let _guard = self.lock();
        match written {
            Ok(()) => self.works_again(),
            Err(errno) if self.host.has_tasks() => self.give_up(errno),
            Err(_) => {}
        }
        written
    }

    /// Makes all pages that were put durable.
    ///
    /// # Errors
    /// If flash fails.
    pub async fn flush(&self) -> Result<(), Errno> {
        let last = self.words.get(Mark::Last);
        self.settle(last).await
    }

    /// Waits until all pages before this position are durable; closes its batch if that is open.
    ///
    /// # Errors
    /// If flash fails.
    pub async fn settle(&self, position: u64) -> Result<(), Errno> {
        if mutant::is_active("page-log-ack-before-flush") {
            return Ok(());
        }
        loop {
            let seen = self.host.changes();
            let written = {
                let _guard = self.lock();
                if self.words.get(Mark::Durable) >= position {
                    return Ok(());
                }
                if let Some(errno) = self.failed() {
                    return Err(errno);
                }
                let open = self.words.open();
                if open.is_some_and(|b| self.words.batch_pages(b).start < position) {
                    self.words.close_batch();
                    self.host.notify();
                }
                self.words.get(Mark::Written) >= position
            };
            if let Some(errno) = self.host.stops_waiting(&mut 0) {
                return Err(errno);
            }
            if written && self.become_flusher() {
                if let Err(errno) = self.flush_as_flusher().await
                    && (self.failed().is_some() || self.host.is_abandoned(errno))
                {
                    return Err(errno);
                }
            } else if written {
                self.host.changed(seen).await;
            } else if self.host.has_tasks() || !self.write_next().await {
                // Waits for batches only: the caller may hold pages that the keeper waits for.
                self.host.changed(seen).await;
            }
        }
    }
}
