// SPDX-License-Identifier: MIT OR Apache-2.0
//! Writes dirty pages to the origin: those that are evicted, or all of them (a *drain*).
//!
//! Invariant: a page is held while its newest version is written. The version becomes clean only if it is still the newest
//! after the write.
//!
//! Why an eviction does not write dirty neighbours too: they would be changed again before their own eviction (TPC-C,
//! measured: a tenth more bytes written, 0.91 of the throughput).

use std::ops::{Deref, Range};
use std::slice;
use std::sync::atomic::AtomicU64;

use super::error::Unread;
use super::evict::ReadSpan;
use super::host::Host;
use super::paths::PageLog;
use super::words::{DIRTY, Kind, Mark, VALID, kind_of, page_of};
use crate::bad_reads::BadReads;
use crate::buf::Buf;
use crate::exec::each;
use crate::mutant;
use crate::request::Errno;

/// Positions that are read together for a batch of dirty pages, as multiples of it: the log's lock is held meanwhile.
const READ_MOST: usize = 64;

/// A dirty version.
struct Newest {
    page: u64,
    slot: u32,
    position: u64,
    bytes: Buf,
}

impl<H: Host, M: Deref<Target = [AtomicU64]>> PageLog<H, M> {
    /// Writes the newest versions of these pages to the origin, from the span if it has them. Returns the pages that failed;
    /// [`Mark::Unwritten`] has the error of one.
    pub(super) async fn to_origin(&self, mut pages: Vec<u64>, span: &ReadSpan) -> Vec<u64> {
        if let Some(left) = self.host.spread(&pages) {
            return left;
        }
        pages.sort_unstable();
        let jobs = pages.iter().map(|page| self.run(slice::from_ref(page), span)).collect();
        each(jobs).await.concat()
    }

    /// Writes the newest versions of ordered pages to the origin, neighbours in one operation. The host guarantees that one
    /// hold covers them. Returns the pages that failed.
    pub async fn run_to_origin(&self, pages: &[u64]) -> Vec<u64> {
        self.run(pages, &ReadSpan::default()).await
    }

    async fn run(&self, pages: &[u64], span: &ReadSpan) -> Vec<u64> {
        let Some(first) = pages.first() else { return Vec::new() };
        let Some(mut early) = self.read_early(pages, span).await else { return pages.to_vec() };
        let _hold = self.host.hold(*first).await;
        let (mut found, mut left) = (Vec::new(), Vec::new());
        for &page in pages {
            match self.newest(page, span, &mut early).await {
                Ok(newest) => found.extend(newest),
                Err(errno) => {
                    self.note_unwritten(errno);
                    left.push(page);
                }
            }
        }
        while let Some(first) = found.first().map(|newest| newest.page) {
            let beside = (first..).zip(&found).take_while(|(page, one)| one.page == *page).count();
            let run: Vec<Newest> = found.drain(..beside).collect();
            let places: Vec<_> = run.iter().map(|one| (one.page, one.slot, one.position)).collect();
            let bytes = run.into_iter().map(|one| one.bytes).collect();
            if !mutant::is_active("page-log-leave-unwritten")
                && let Err(errno) = self.host.write_origin_run(first, bytes).await
            {
                self.note_unwritten(errno);
                left.extend(places.iter().map(|(page, ..)| *page));
                continue;
            }
            let _guard = self.lock();
            self.words.add(Mark::OriginWrites, 1);
            for (page, slot, position) in places {
                // A newer version may have been put meanwhile.
                if self.is_newest_at(page, slot, position) {
                    self.words.make_clean(slot);
                }
            }
        }
        left
    }

    /// The newest versions of these pages that are on flash, as far as they can be read. A read of flash may take long, and
    /// other processes must not wait for the holds of the pages meanwhile; tasks wait for those of a page alone, and read under
    /// them. `None` if a read was abandoned.
    async fn read_early(&self, pages: &[u64], span: &ReadSpan) -> Option<Vec<Newest>> {
        let mut early = Vec::new();
        let pages = if self.host.has_tasks() { &[] } else { pages };
        for &page in pages {
            let found = {
                let _guard = self.lock();
                let slot = self.words.find(page).filter(|slot| {
                    let word = self.words.slot(*slot);
                    word & DIRTY != 0 && kind_of(word) != Kind::Lost
                });
                slot.map(|slot| (slot, self.place(slot)))
            };
            let Some((slot, place)) = found else { continue };
            let position = place.position;
            match self.page_bytes(place, span).await {
                Ok(bytes) => early.push(Newest { page, slot, position, bytes }),
                Err(Unread::Device(errno)) if self.host.is_abandoned(errno) => return None,
                // It is read again, with what follows a failed read.
                Err(_) => {}
            }
        }
        Some(early)
    }

    /// The newest version of a held page, if it is dirty.
    async fn newest(
        &self,
        page: u64,
        span: &ReadSpan,
        early: &mut Vec<Newest>,
    ) -> Result<Option<Newest>, Errno> {
        let (mut bad, mut damaged) = (BadReads::default(), None);
        loop {
            let (slot, place) = {
                let _guard = self.lock();
                let Some(slot) = self.words.find(page) else { return Ok(None) };
                match self.words.slot(slot) {
                    word if word & DIRTY == 0 => return Ok(None),
                    word if kind_of(word) == Kind::Lost => return Err(Errno::EIO),
                    _ => (slot, self.place(slot)),
                }
            };
            let position = place.position;
            let same = |one: &Newest| (one.page, one.position) == (page, position);
            if let Some(at) = early.iter().position(same) {
                return Ok(Some(early.swap_remove(at)));
            }
            match self.page_bytes(place, span).await {
                Ok(bytes) => return Ok(Some(Newest { page, slot, position, bytes })),
                Err(unread) => {
                    {
                        let _guard = self.lock();
                        if !self.is_newest_at(page, slot, position) {
                            // The slot may hold another page meanwhile.
                            continue;
                        }
                        // Once more: only a page that stays so is lost.
                        let insists = damaged.replace(position) == Some(position);
                        if matches!(unread, Unread::Damaged) && !insists {
                            continue;
                        }
                        if matches!(unread, Unread::Damaged) && self.words.get(Mark::Renewing) != 0
                        {
                            self.words.lose(slot);
                        }
                    }
                    let Unread::Device(errno) = unread else {
                        self.host.damaged(page, true);
                        return Err(Errno::EIO);
                    };
                    if !self.reads_again(errno, &mut bad).await? {
                        return Err(errno);
                    }
                }
            }
        }
    }

    /// A page could not be written to the origin. An abandoned operation is no error of a device.
    pub(super) fn note_unwritten(&self, errno: Errno) {
        if errno != Errno::ESHUTDOWN && !self.host.is_abandoned(errno) {
            self.words.set(Mark::Unwritten, errno.0 as u64);
        }
    }

    /// The error of a page that could not be written to the origin.
    pub(super) fn unwritten(&self) -> Errno {
        match self.words.get(Mark::Unwritten) {
            // An operation was abandoned.
            0 => Errno::EIO,
            errno => Errno(errno as i32),
        }
    }

    pub(super) fn is_newest_at(&self, page: u64, slot: u32, position: u64) -> bool {
        self.words.find(page) == Some(slot) && self.position(slot) == position
    }

    /// Writes all dirty pages to the origin, and flushes it.
    ///
    /// # Errors
    /// If a page is lost, or a device fails.
    pub async fn drain(&self) -> Result<(), Errno> {
        self.drain_with_burials(false).await
    }

    /// As [`drain`](Self::drain), and ignores how far an earlier drain came.
    pub(super) async fn drain_from_tail(&self) -> Result<(), Errno> {
        self.drain_with_burials(true).await
    }

    /// Drains until no burial ran meanwhile: its pages are in neither place until it ends, and a flush that began before its
    /// end does not cover it. If the origin failed it, its pages are dirty in the log again.
    async fn drain_with_burials(&self, all: bool) -> Result<(), Errno> {
        let mut before = self.host.burials();
        let mut again = false;
        loop {
            match all {
                true => self.drain_all().await?,
                false => self.drain_once().await?,
            }
            if mutant::is_active("page-log-flush-misses-trims") {
                return Ok(());
            }
            self.host.burials_end().await;
            let now = self.host.burials();
            if before.ended == now.ended || again && before.refused == now.refused {
                return Ok(());
            }
            (before, again) = (now, true);
        }
    }

    /// Drains once, and ignores how far an earlier drain came.
    pub(super) async fn drain_all(&self) -> Result<(), Errno> {
        {
            let _guard = self.lock();
            self.words.set(Mark::Drained, 0);
        }
        self.drain_once().await
    }

    async fn drain_once(&self) -> Result<(), Errno> {
        // A fixed list of pages. Meanwhile a page may be appended again or replaced; then its newest version is written.
        let (pages, lost, until) = {
            let _guard = self.lock();
            let get = |mark| self.words.get(mark);
            let from = get(Mark::Drained).max(get(Mark::Tail));
            let until = get(Mark::Last).max(from);
            let slots = (from..until).map(|position| self.words.slot(self.log.slot(position)));
            let dirty = slots.filter(|word| word & VALID != 0 && word & DIRTY != 0);
            let (lost, pages): (Vec<_>, Vec<_>) =
                dirty.partition(|word| kind_of(*word) == Kind::Lost);
            (pages.into_iter().map(page_of).collect::<Vec<_>>(), !lost.is_empty(), until)
        };
        let result = self.bring_all(&pages).await;
        self.host.flush_origin().await?;
        result?;
        if lost {
            return Err(Errno::EIO);
        }
        let _guard = self.lock();
        self.words.raise(Mark::Drained, until);
        Ok(())
    }

    /// The positions that may have dirty pages.
    pub fn undrained(&self) -> Range<u64> {
        let _guard = self.lock();
        let get = |mark| self.words.get(mark);
        let from = get(Mark::Drained).max(get(Mark::Tail));
        from..get(Mark::Last).max(from)
    }

    /// Writes the first dirty pages of these positions to the origin, as many as a batch has. Returns the position after them.
    /// They do not count as drained, since nothing is flushed: a later drain finds fewer dirty pages.
    ///
    /// # Errors
    /// If a page is lost, or a device fails.
    pub async fn drain_ahead(&self, positions: Range<u64>) -> Result<u64, Errno> {
        let (pages, end) = {
            let _guard = self.lock();
            let get = |mark| self.words.get(mark);
            let from = positions.start.max(get(Mark::Tail));
            let until = positions.end.min(get(Mark::Last)).max(from);
            let looked = (from..until).take(READ_MOST * self.log.batch_pages as usize);
            let (mut pages, mut end) = (Vec::new(), from);
            for position in looked {
                if pages.len() == self.log.batch_pages as usize {
                    break;
                }
                let word = self.words.slot(self.log.slot(position));
                if word & VALID != 0 && word & DIRTY != 0 {
                    pages.push(page_of(word));
                }
                end = position + 1;
            }
            (pages, end)
        };
        self.bring_all(&pages).await?;
        Ok(end)
    }

    /// Writes the newest versions of these pages to the origin, as many together as a batch has.
    pub(super) async fn bring_all(&self, pages: &[u64]) -> Result<(), Errno> {
        self.words.set(Mark::Unwritten, 0);
        let mut result = Ok(());
        let mut rest = pages;
        while !rest.is_empty() {
            // All at once, if the host spreads them.
            let (left, count) = match self.host.spread(rest) {
                Some(left) => (left, rest.len()),
                None => {
                    let count = rest.len().min(self.log.batch_pages as usize);
                    (self.batch_to_origin(&rest[..count]).await, count)
                }
            };
            if !left.is_empty() {
                if let Some(errno) = self.host.stops_waiting(&mut 0) {
                    return Err(errno);
                }
                result = Err(self.unwritten());
                // The others could not be read either, each after its retries.
                if self.failed().is_some() {
                    break;
                }
            }
            rest = &rest[count..];
        }
        result
    }

    /// Writes pages to the origin; reads those that are close together on flash in one operation.
    async fn batch_to_origin(&self, pages: &[u64]) -> Vec<u64> {
        let slots: Vec<u32> = {
            let _guard = self.lock();
            pages.iter().filter_map(|page| self.words.find(*page)).collect()
        };
        let span = self.read_span(slots.iter()).await;
        self.to_origin(pages.to_vec(), &span).await
    }
}
