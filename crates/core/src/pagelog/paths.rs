// SPDX-License-Identifier: MIT OR Apache-2.0
//! The paths of a log: put, get, drain, settle.
//!
//! One put, step by step: wait for room in the open batch (or open one); copy the page to its buffer; the
//! slot says what it is; the rear moves on, and with it the page counts; the older version is not valid
//! any more. A full batch is closed, and written in the background.
//!
//! One get: the slot of the valid version; from the batch's buffer, or from flash with its checksum looked
//! at. Nothing keeps the slot from being written over meanwhile: then the checksum does not match, or the
//! version is not the valid one any more, and the page is looked for again. So readers hold nothing.

use std::ops::{Deref, Range};
use std::sync::atomic::AtomicU64;

use super::error::{Lack, NotEntered};
use super::geometry::{Geometry, PAGE_BYTES_MOST};
use super::host::Host;
use super::policy::LogSettings;
use super::words::{DIRTY, Kind, Mark, REFERENCED, VALID, Words, kind_of, slot_word};
use crate::buf::Buf;
use crate::checksum::crc32c;
use crate::mutant;
use crate::request::Errno;

/// A page of zeroes.
pub(super) static ZEROES: [u8; PAGE_BYTES_MOST] = [0; PAGE_BYTES_MOST];

/// A page log, see the module.
pub struct PageLog<H, M> {
    pub(super) host: H,
    pub(super) words: Words<M>,
    pub(super) log: Geometry,
    pub(super) settings: LogSettings,
}

/// What a log has of a page.
#[derive(Debug)]
pub enum Got {
    /// The page, and whether the origin lacks it.
    Hit(Buf, bool),
    /// Nothing: the origin has it.
    Miss,
}

/// What became of a page that could enter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum New {
    /// It is in the log.
    Entered,
    /// There is no room at the moment.
    NoRoom,
    /// The log has a version of it, or is sealed.
    NotNow,
}

/// What is put.
pub(super) struct Put<'a> {
    pub kind: Kind,
    pub page: u64,
    pub dirty: bool,
    pub crc: u32,
    pub bytes: &'a [u8],
    /// Only if this slot still holds the page's valid version.
    pub instead_of: Option<u32>,
    pub urgent: bool,
}

impl<H: Host, M: Deref<Target = [AtomicU64]>> PageLog<H, M> {
    /// The host.
    pub fn host(&self) -> &H {
        &self.host
    }

    /// Where it lies.
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

    /// Rebuilds what follows from the slots, for whoever finds that a holder of the lock died.
    pub fn repair(&self) {
        self.words.repair(&self.log);
    }

    /// Whether it has the page.
    pub fn has(&self, page: u64) -> bool {
        let _guard = self.lock();
        self.words.find(page).is_some()
    }

    /// The position of a slot between front and rear.
    pub(super) fn position(&self, slot: u32) -> u64 {
        let front = self.words.get(Mark::Front);
        let blocks = u64::from(self.log.blocks);
        front + (u64::from(slot) + blocks - front % blocks) % blocks
    }

    /// The newest version of a page.
    ///
    /// # Errors
    /// If the only copy is lost or cannot be read.
    pub async fn get(&self, page: u64) -> Result<Got, Errno> {
        self.fetch(page, REFERENCED).await
    }

    /// As above; the version gets these flags.
    pub(super) async fn fetch(&self, page: u64, flags: u64) -> Result<Got, Errno> {
        loop {
            let mut buf = Buf::with_len(self.log.page() as usize);
            let (slot, position, word, crc);
            {
                let _guard = self.lock();
                let Some(found) = self.words.find(page) else { return Ok(Got::Miss) };
                (slot, word, crc) = (found, self.words.slot(found), self.words.crc(found));
                if kind_of(word) == Kind::Lost {
                    return Err(Errno::EIO);
                }
                self.words.set_slot(slot, word | flags);
                position = self.position(slot);
                if let Some((buffer, place)) = self.words.in_memory(position) {
                    self.host.staged(buffer, place, &mut buf);
                    return Ok(Got::Hit(buf, word & DIRTY != 0));
                }
            }
            let read = self.host.read_flash(self.log.block(position), buf).await;
            match read {
                Ok(buf) if crc32c(&buf) == crc || mutant::is_active("page-log-unchecked") => {
                    return Ok(Got::Hit(buf, word & DIRTY != 0));
                }
                read => {
                    let _guard = self.lock();
                    if self.words.find(page) != Some(slot) || self.position(slot) != position {
                        continue;
                    }
                    if self.words.slot(slot) & DIRTY != 0 {
                        return Err(read.err().unwrap_or(Errno::EIO));
                    }
                    self.drop_unreadable(slot);
                    return Ok(Got::Miss);
                }
            }
        }
    }

    /// Enters a version of a page, the newest from now on. It is durable once [`settle`](Self::settle)
    /// says so of what it returns.
    ///
    /// # Errors
    /// If the log has failed.
    pub async fn put(&self, page: u64, bytes: &[u8], dirty: bool) -> Result<u64, Errno> {
        let put = Self::page(page, bytes, dirty);
        match self.enter(&put).await? {
            Some(position) => Ok(position),
            None => Err(Errno::EIO), // nothing to be instead of
        }
    }

    /// As [`put`](Self::put), if there is room at once, no version of the page, and the log is not sealed. The page may be held.
    ///
    /// # Errors
    /// If the log has failed.
    pub async fn put_new(&self, page: u64, bytes: &[u8], dirty: bool) -> Result<New, Errno> {
        self.put_new_if(page, bytes, dirty, || true).await
    }

    /// As above, if this is so too. It is asked while nobody else can put or drop the page.
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
        let entered = {
            let _guard = self.lock();
            if !so() {
                return Ok(New::NotNow);
            }
            // Unsealing would take time, in which the caller's reasons may end.
            let sealed = self.words.get(Mark::Sealed) != 0;
            match self.words.find(page) {
                Some(_) => return Ok(New::NotNow),
                None if sealed => return Ok(New::NotNow),
                None => self.try_enter(&put),
            }
        };
        match entered {
            Ok(_) => {
                if !self.host.has_tasks() {
                    self.write_next().await;
                }
                Ok(New::Entered)
            }
            Err(NotEntered::Lack(lack)) => {
                if lack == Lack::Room {
                    // Nobody else may come for long, and clean pages alone would never make any.
                    self.want_room();
                }
                Ok(New::NoRoom)
            }
            Err(NotEntered::Failed(errno)) => Err(errno),
        }
    }

    pub(super) fn page(page: u64, bytes: &[u8], dirty: bool) -> Put<'_> {
        let crc = crc32c(bytes);
        Put { kind: Kind::Page, page, dirty, crc, bytes, instead_of: None, urgent: false }
    }

    /// Puts, waiting for room. Nothing if it was to be instead of a version that is not valid any more, or
    /// there is no room even for what is urgent.
    pub(super) async fn enter(&self, put: &Put<'_>) -> Result<Option<u64>, Errno> {
        loop {
            let mut seen = self.host.changes();
            self.unseal().await?;
            let entered = {
                let _guard = self.lock();
                if let Some(slot) = put.instead_of
                    && (self.words.find(put.page) != Some(slot))
                {
                    return Ok(None);
                }
                self.try_enter(put)
            };
            match entered {
                Ok(position) => {
                    self.progress().await;
                    return Ok(Some(position));
                }
                Err(NotEntered::Failed(errno)) => return Err(errno),
                Err(NotEntered::Lack(Lack::Buffer)) => self.wait(seen).await,
                // Whoever makes room cannot wait for room.
                Err(NotEntered::Lack(Lack::Room)) if put.instead_of.is_some() => {
                    if !self.keep_marks().await {
                        return Ok(None);
                    }
                }
                Err(NotEntered::Lack(Lack::Room)) => {
                    if self.want_room() {
                        seen = self.host.changes();
                    }
                    self.wait(seen).await;
                }
            }
        }
    }

    /// Under the lock: enters a page, if there is room.
    pub(super) fn try_enter(&self, put: &Put<'_>) -> Result<u64, NotEntered> {
        if let Some(errno) = self.failed() {
            return Err(NotEntered::Failed(errno));
        }
        let words = &self.words;
        let buffer = match words.open() {
            Some(buffer) => buffer,
            None => words.open_batch(&self.log, put.urgent).map_err(NotEntered::Lack)?,
        };
        let position = words.get(Mark::Rear);
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
        words.set(Mark::Rear, position + 1);
        // From here on it counts.
        words.set(Mark::Last, position + 1);
        if tombstone {
            let pages = put.page..put.page + u64::from(put.crc);
            words.set(Mark::Tombstone, position + 1);
            words.drop_pages(pages.clone());
            self.host.buried(pages);
        } else {
            words.enter(slot);
        }
        words.add(Mark::Put, 1);
        if words.open_room(&self.log) == 0 {
            words.close_batch();
            self.host.notify();
        }
        Ok(position + 1)
    }

    /// Whoever makes room hears that somebody wants it, once: it is a change too. Whether it was the first time.
    pub(super) fn want_room(&self) -> bool {
        let first = self.words.get(Mark::Wanted) == 0;
        if first {
            self.words.set(Mark::Wanted, 1);
            self.host.notify();
        }
        first
    }

    /// Waits for a change, or makes one.
    pub(super) async fn wait(&self, seen: u64) {
        if self.host.has_tasks() || !self.work().await {
            self.host.changed(seen).await;
        }
    }

    /// Without tasks, whoever closed a batch writes it.
    async fn progress(&self) {
        if !self.host.has_tasks() {
            self.work().await;
        }
    }

    /// One step of what is due, for whoever has no tasks and holds no page; whether there was any.
    pub async fn work(&self) -> bool {
        // What makes room may itself have to wait, hence the box.
        self.write_next().await || Box::pin(self.keep()).await
    }

    /// Drops the valid versions of these pages, whose log does not outlive a crash: somebody changes the
    /// origin.
    ///
    /// # Errors
    /// If a sealed log cannot be made to count no more.
    pub async fn drop_pages(&self, pages: Range<u64>) -> Result<(), Errno> {
        self.unseal().await?;
        let _guard = self.lock();
        self.words.drop_pages(pages);
        Ok(())
    }

    /// The origin was written this version of the page.
    pub fn origin_has(&self, page: u64, position: u64) {
        let _guard = self.lock();
        self.words.add(Mark::OriginWrites, 1);
        let slot = self.words.find(page);
        if let Some(slot) = slot.filter(|slot| self.position(*slot) + 1 == position) {
            self.words.make_clean(slot);
        }
    }

    /// Whether a start might find it sealed.
    pub fn may_count(&self) -> bool {
        self.words.get(Mark::Sealed) != 0
    }

    /// Whether it was sealed, and nothing was put since.
    pub fn is_sealed(&self) -> bool {
        self.words.get(Mark::Sealed) == 2
    }

    pub(super) async fn unseal(&self) -> Result<(), Errno> {
        if self.words.get(Mark::Sealed) != 0 {
            self.write_header(self.words.get(Mark::Segments), None).await?;
        }
        Ok(())
    }

    /// Makes durable all that was put before this moment.
    ///
    /// # Errors
    /// If it cannot be.
    pub async fn flush(&self) -> Result<(), Errno> {
        let last = self.words.get(Mark::Last);
        self.settle(last).await
    }

    /// Waits until what [`put`](Self::put) returned this position for is durable; closes its batch if it is
    /// open.
    ///
    /// # Errors
    /// If it cannot be.
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
            if written {
                self.make_durable().await?;
            } else if self.host.has_tasks() || !self.write_next().await {
                // Batches alone are waited for, so that whoever settles may hold pages, which a keeper waits for.
                self.host.changed(seen).await;
            }
        }
    }
}
