// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the origin lacks goes there: pages that leave, or all of them.
//!
//! # Invariants
//! 1. A page is held while it is written, and what is written is the newest version at that moment. It counts as clean only
//!    if it still is then.
//!
//! Why no page goes along with a neighbour that leaves: it would be changed again before its own turn (TPC-C, measured: a
//! tenth more bytes written, 0.91 of the throughput).

use std::ops::Deref;
use std::slice;
use std::sync::atomic::AtomicU64;

use super::error::Unread;
use super::host::Host;
use super::leave::ReadSpan;
use super::paths::PageLog;
use super::words::{DIRTY, Kind, Mark, VALID, kind_of, page_of};
use crate::buf::Buf;
use crate::exec::each;
use crate::mutant;
use crate::request::Errno;

/// A version that the origin lacks.
struct Newest {
    page: u64,
    slot: u32,
    position: u64,
    bytes: Buf,
}

impl<H: Host, M: Deref<Target = [AtomicU64]>> PageLog<H, M> {
    /// Brings the newest versions of these pages to the origin, from the span where it has them; those that could not be.
    pub(super) async fn to_origin(&self, mut pages: Vec<u64>, span: &ReadSpan) -> Vec<u64> {
        if let Some(left) = self.host.spread(&pages) {
            return left;
        }
        pages.sort_unstable();
        let jobs = pages.iter().map(|page| self.run(slice::from_ref(page), span)).collect();
        each(jobs).await.concat()
    }

    /// Brings the newest versions of pages to the origin, which are in order, and which one hold covers, as the host knows:
    /// those side by side go in one operation. Those that could not be brought.
    pub async fn run_to_origin(&self, pages: &[u64]) -> Vec<u64> {
        self.run(pages, &ReadSpan::default()).await
    }

    async fn run(&self, pages: &[u64], span: &ReadSpan) -> Vec<u64> {
        let Some(first) = pages.first() else { return Vec::new() };
        let _hold = self.host.hold(*first).await;
        let (mut found, mut left) = (Vec::new(), Vec::new());
        for &page in pages {
            match self.newest(page, span).await {
                Ok(newest) => found.extend(newest),
                Err(_) => left.push(page),
            }
        }
        while let Some(first) = found.first().map(|newest| newest.page) {
            let beside = (first..).zip(&found).take_while(|(page, one)| one.page == *page).count();
            let run: Vec<Newest> = found.drain(..beside).collect();
            let places: Vec<_> = run.iter().map(|one| (one.page, one.slot, one.position)).collect();
            let bytes = run.into_iter().map(|one| one.bytes).collect();
            if !mutant::is_active("page-log-leave-unwritten")
                && self.host.write_origin_run(first, bytes).await.is_err()
            {
                left.extend(places.iter().map(|(page, ..)| *page));
                continue;
            }
            let _guard = self.lock();
            self.words.add(Mark::OriginWrites, 1);
            for (page, slot, position) in places {
                // The origin has the newest, unless a newer one came meanwhile.
                if self.is_newest_at(page, slot, position) {
                    self.words.make_clean(slot);
                }
            }
        }
        left
    }

    /// The newest version of a page that is held, if the origin lacks it.
    async fn newest(&self, page: u64, span: &ReadSpan) -> Result<Option<Newest>, Errno> {
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
            match self.page_bytes(place, span).await {
                Ok(bytes) => return Ok(Some(Newest { page, slot, position, bytes })),
                Err(unread) => {
                    let _guard = self.lock();
                    if self.is_newest_at(page, slot, position) {
                        return Err(match unread {
                            Unread::Damaged => Errno::EIO,
                            Unread::Device(errno) => errno,
                        });
                    }
                    // The slot may be another page's by now.
                }
            }
        }
    }

    fn is_newest_at(&self, page: u64, slot: u32, position: u64) -> bool {
        self.words.find(page) == Some(slot) && self.position(slot) == position
    }

    /// Brings to the origin what of the log it lacks, and makes it durable there.
    ///
    /// # Errors
    /// If a page is lost, or a device fails.
    pub async fn drain(&self) -> Result<(), Errno> {
        self.bring(false).await
    }

    /// Brings to the origin everything that it lacks, whatever was brought before.
    ///
    /// # Errors
    /// If a page is lost, or a device fails.
    pub async fn empty(&self) -> Result<(), Errno> {
        self.bring(true).await
    }

    /// What a burial drops meanwhile is neither here nor on the origin until it is done, and a flush that began before
    /// is none of it; where the origin refused it, it is here again.
    async fn bring(&self, all: bool) -> Result<(), Errno> {
        let mut before = self.host.burials();
        let mut again = false;
        loop {
            if all {
                let _guard = self.lock();
                self.words.set(Mark::Drained, 0);
            }
            self.bring_once().await?;
            if mutant::is_active("page-log-flush-misses-trims") {
                return Ok(());
            }
            self.host.burials_of_now().await;
            let now = self.host.burials();
            if before.ended == now.ended || again && before.refused == now.refused {
                return Ok(());
            }
            (before, again) = (now, true);
        }
    }

    async fn bring_once(&self) -> Result<(), Errno> {
        // Which pages, once and for all: while this runs they may be entered once more, or replaced by versions
        // that it need not wait for, and then it is those that the origin gets.
        let (pages, until) = {
            let _guard = self.lock();
            let get = |mark| self.words.get(mark);
            let from = get(Mark::Drained).max(get(Mark::Front));
            let until = get(Mark::Last).max(from);
            let slots = (from..until).map(|position| self.words.slot(self.log.slot(position)));
            let dirty = slots.filter(|word| word & VALID != 0 && word & DIRTY != 0);
            (dirty.map(page_of).collect::<Vec<_>>(), until)
        };
        let mut result = Ok(());
        let mut rest = &pages[..];
        while !rest.is_empty() {
            // All at once, where the host knows by now that this is better.
            let (left, count) = match self.host.spread(rest) {
                Some(left) => (left, rest.len()),
                None => {
                    let count = rest.len().min(self.log.batch_pages as usize);
                    (self.batch_to_origin(&rest[..count]).await, count)
                }
            };
            if !left.is_empty() {
                result = Err(Errno::EIO);
            }
            rest = &rest[count..];
        }
        self.host.flush_origin().await?;
        result?;
        let _guard = self.lock();
        self.words.raise(Mark::Drained, until);
        Ok(())
    }

    /// Pages that lie together on flash are read together.
    async fn batch_to_origin(&self, pages: &[u64]) -> Vec<u64> {
        let slots: Vec<u32> = {
            let _guard = self.lock();
            pages.iter().filter_map(|page| self.words.find(*page)).collect()
        };
        let span = self.read_span(slots.iter()).await;
        self.to_origin(pages.to_vec(), &span).await
    }
}
