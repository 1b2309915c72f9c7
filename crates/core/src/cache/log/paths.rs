// SPDX-License-Identifier: MIT OR Apache-2.0
//! The paths of a shard with a page log.
//!
//! **Write** under `bounded` and `full`: hold the pages, complete those that are covered in part, put them, answer. A FLUSH
//! makes the log durable (`full`), or writes dirty pages to the origin (`bounded`).
//!
//! **Write** under `through`: hold the pages, drop their versions in the log, write the origin, answer, admit the whole
//! pages.
//!
//! **Read**: each page from the log, the missing ones from the origin in one operation. Those are then admitted, unless
//! another task changed them meanwhile (design rule 4), and unless the read is passive.
//!
//! Pages that are admitted after the answer wait for room if the write-through pool has room for their bytes (SCE 3.6). They
//! are not held meanwhile; a conflicting claim cancels their admission.

use std::ops::Range;
use std::rc::Rc;

use super::OpenLog;
use super::holds::{For, Hold};
use super::host::ShardHost;
use crate::buf::{Buf, PAGE};
use crate::claims::Claim;
use crate::context::Context;
use crate::exec::{IoKind, MILLISECOND, each};
use crate::flash::InFlight;
use crate::mutant;
use crate::origin::Use;
use crate::pagelog::{Change, Got, Host, New};
use crate::request::{Errno, Request};
use crate::runs::Tag;

pub(super) const SIZE: u64 = PAGE as u64;
/// Retries of a trim that the origin failed after its tombstone.
const RETRIES: u32 = 20;

/// A request's range in bytes and pages of the volume.
pub(super) struct RequestSpan {
    bytes: Range<u64>,
    pub(super) pages: Range<u64>,
}

impl RequestSpan {
    pub(super) fn of(offset: u64, len: u64) -> Self {
        let end = offset + len;
        Self { bytes: offset..end, pages: offset / SIZE..end.div_ceil(SIZE) }
    }

    /// The bytes within a page that it covers.
    fn part(&self, page: u64) -> Range<usize> {
        let start = self.bytes.start.max(page * SIZE) - page * SIZE;
        let end = self.bytes.end.min((page + 1) * SIZE) - page * SIZE;
        start as usize..end as usize
    }

    /// First byte of that part within the request's buffer.
    fn at(&self, page: u64) -> usize {
        (page * SIZE).saturating_sub(self.bytes.start) as usize
    }

    /// Whether it covers the whole page, up to the end of the volume.
    pub(super) fn covers(&self, cx: &Context, page: u64) -> bool {
        let part = self.part(page);
        part.start == 0 && part.end as u64 >= ShardHost::page_bytes(cx, page)
    }

    /// First byte, and bytes.
    fn range(&self) -> (u64, u64) {
        (self.bytes.start, self.bytes.end - self.bytes.start)
    }
}

impl OpenLog {
    /// A page from the log; `passive`: counts as no access. A miss means that the origin has the current version.
    pub(super) async fn get(&self, page: u64, passive: bool) -> Result<Got, Errno> {
        loop {
            let got = match passive {
                true => self.log.peek(page).await,
                false => self.log.get(page).await,
            };
            let missed = matches!(got, Ok(Got::Miss));
            let holds = &self.log.host().holds;
            if !missed || !holds.trims_end(page).await {
                return if missed && holds.is_lost(page) { Err(Errno::EIO) } else { got };
            }
        }
    }

    /// Serves a read; returns the request if the log was detached meanwhile.
    pub(crate) async fn read(self: Rc<Self>, tag: Tag, request: Request) -> Option<Request> {
        let cx = &self.cx;
        let span = RequestSpan::of(request.offset, request.len);
        let mut buf = request.buf.unwrap_or_else(|| Buf::with_len(request.len as usize));
        let request = Request { buf: None, ..request };
        let found =
            each(span.pages.clone().map(|page| self.get(page, request.passive)).collect()).await;
        let mut missed = Vec::new();
        let mut hits = Vec::new();
        for (page, got) in span.pages.clone().zip(found) {
            match got {
                Ok(Got::Hit(bytes, _)) => hits.push((page, bytes)),
                Ok(Got::Miss) => missed.push(page),
                Err(_) if self.device().closed() => {
                    return Some(Request { buf: Some(buf), ..request });
                }
                Err(errno) => {
                    cx.reply(tag, Err(errno), None, true);
                    return None;
                }
            }
        }
        let hit = missed.is_empty();
        let mut claim = None;
        if let (Some(first), Some(last)) = (missed.first(), missed.last()) {
            let place = cx.shape.place(&request);
            claim = Some(cx.claims.claim(u64::from(place.unit), place.pages));
            let from = span.bytes.start.max(first * SIZE);
            let to = span.bytes.end.min((last + 1) * SIZE);
            // A page that was put since is newer than the origin's version, and may be evicted before the admission.
            if !mutant::is_active("page-log-put-before-claim") {
                missed.retain(|page| !self.log.has(*page));
            }
            let aside = Buf::with_len((to - from) as usize);
            let aside = match cx.origins.read(Use::Client, from, to - from, aside).await {
                Ok(aside) => aside,
                Err(errno) => {
                    cx.reply(tag, Err(errno), None, false);
                    return None;
                }
            };
            let at = (from - span.bytes.start) as usize;
            buf[at..at + aside.len()].copy_from_slice(&aside);
        }
        for (page, bytes) in hits {
            let (at, part) = (span.at(page), span.part(page));
            buf[at..at + part.len()].copy_from_slice(&bytes[part]);
        }
        let enter =
            self.admits_reads && !request.passive && !self.detaching.get() && cx.may_admit();
        let copies = missed.into_iter().filter(|p| enter && span.covers(cx, *p));
        let copies: Vec<(u64, Buf)> = copies.map(|p| (p, whole(&span, p, &buf))).collect();
        cx.reply(tag, Ok(()), Some(buf), hit);
        let entered = self.admit_clean(&*claim?, &span, copies).await;
        self.count_populated(entered);
        None
    }

    pub(super) fn count_populated(&self, pages: u64) {
        self.cx.stats.add(|c| {
            c.populations += pages;
            c.population_bytes += pages * SIZE;
        });
    }

    /// Admits clean pages, unless their claim conflicts; returns how many.
    pub(super) async fn admit_clean(
        &self,
        claim: &Claim,
        span: &RequestSpan,
        copies: Vec<(u64, Buf)>,
    ) -> u64 {
        let base = span.pages.start - u64::from(self.page_within(span.bytes.start));
        let claimed = |page: u64| {
            claim.conflicts().has((page - base) as u32) && !mutant::is_active("page-log-stale-fill")
        };
        let (mut entered, mut kept) = (0, None);
        for (n, (page, bytes)) in copies.iter().enumerate() {
            loop {
                let seen = self.log.host().changes();
                if claimed(*page) {
                    break;
                }
                match self.log.put_new(*page, bytes, false).await {
                    Ok(New::Entered) => entered += 1,
                    Ok(New::NoRoom) => {
                        let left = (copies.len() - n) as u64;
                        kept = kept.or_else(|| self.cx.pool.take(left * SIZE));
                        if kept.is_some() {
                            self.log.host().changed(seen).await;
                            continue;
                        }
                        // The next read admits them.
                        self.cx.stats.add(|c| c.write_arounds += left);
                        return entered;
                    }
                    Ok(New::NotNow) => {}
                    Err(_) => return entered,
                }
                break;
            }
        }
        entered
    }

    /// The number within its unit of the page at an offset.
    fn page_within(&self, offset: u64) -> u32 {
        (offset % self.cx.shape.unit_bytes / SIZE) as u32
    }

    /// Serves a write; returns the request if the log was detached meanwhile.
    pub(crate) async fn write(
        self: Rc<Self>,
        tag: Tag,
        request: Request,
        fua: bool,
    ) -> Option<Request> {
        let cx = &self.cx;
        let fua = fua && !mutant::is_active("fua-ignored");
        let span = RequestSpan::of(request.offset, request.len);
        let place = cx.shape.place(&Request { buf: None, ..request });
        let hold = self.hold_to_change(span.pages.clone(), For::Write).await;
        let Some(hold) = hold else { return Some(request) };
        let claim = cx.claims.claim(u64::from(place.unit), place.pages);
        let hit = self.log.has(span.pages.start);
        let Some(buf) = request.buf else {
            cx.reply(tag, Err(Errno::EINVAL), None, hit);
            return None;
        };
        let change = self.log.plan_change(fua);
        if change == Change::PastLog {
            let (result, back) = self.write_through(&span, buf, fua).await;
            cx.reply(tag, result, None, hit);
            drop(hold);
            if let Some(buf) = back.filter(|_| cx.may_copy()) {
                let pages = span.pages.clone().filter(|p| span.covers(cx, *p));
                let copies = pages.map(|p| (p, whole(&span, p, &buf))).collect();
                drop(buf);
                self.admit_clean(&claim, &span, copies).await;
            }
            return None;
        }
        self.writers.set(self.writers.get() + 1);
        let result = self.absorb(&span, buf, fua).await;
        self.writers.set(self.writers.get() - 1);
        drop((claim, hold));
        cx.reply(tag, result, None, hit);
        None
    }

    /// Puts the pages of a write, or writes them to the origin: past a log whose flash fails, or because the log was
    /// detached.
    async fn absorb(&self, span: &RequestSpan, buf: Buf, fua: bool) -> Result<(), Errno> {
        let (cx, mut buf) = (&self.cx, Some(buf));
        loop {
            let change = self.log.plan_change(fua);
            if change == Change::Bypass {
                let write = async || {
                    let write = cx.origins.write(Use::Client, span.range(), fua, buf.take());
                    let (result, back) = write.await;
                    buf = back;
                    result
                };
                if let Some(result) = self.change_past_failed(span, write).await {
                    return result;
                }
                continue;
            }
            let result = self.put_pages(span, buf.as_ref(), fua, change).await;
            if result.is_err() && self.device().closed() {
                // The origin has all other data.
                return cx.origins.write(Use::Unpaced, span.range(), fua, buf).await.0;
            }
            if result.is_ok() || !self.log.is_bypassed() {
                return result;
            }
        }
    }

    /// Holds pages for a change; waits while changes wait for a detach. `None` if the log was detached.
    async fn hold_to_change(&self, pages: Range<u64>, what: For) -> Option<Hold<InFlight>> {
        loop {
            self.until_origin_follows().await;
            let hold = self.log.host().holds.take(pages.clone(), what).await;
            if !self.changes_wait.get() {
                return Some(hold);
            }
            drop(hold);
            while self.changes_wait.get() {
                if self.device().closed() {
                    return None;
                }
                self.cx.exec.sleep(MILLISECOND).await;
            }
        }
    }

    /// Drops the pages of a change that bypasses the log. If the seal of the log cannot be removed, the device has failed,
    /// and the change waits for the fence.
    async fn drop_pages(&self, span: &RequestSpan) {
        let dropped = self.log.drop_pages(span.pages.clone()).await;
        if dropped.is_err() && !self.device().closed() {
            self.log.host().flash.fail("its header cannot be written".to_owned());
        }
        self.cx.fence.passed(&self.cx.exec).await;
    }

    async fn write_through(
        &self,
        span: &RequestSpan,
        buf: Buf,
        fua: bool,
    ) -> (Result<(), Errno>, Option<Buf>) {
        self.drop_pages(span).await;
        let written = self.cx.origins.write(Use::Client, span.range(), fua, Some(buf)).await;
        let (result, buf) = written;
        (result, buf.filter(|_| result.is_ok()))
    }

    /// Puts the pages of a write, or of zeroes if `buf` is `None`.
    async fn put_pages(
        &self,
        span: &RequestSpan,
        buf: Option<&Buf>,
        fua: bool,
        change: Change,
    ) -> Result<(), Errno> {
        let through = self.detaching.get() || change == Change::AbsorbAndWrite;
        let (mut last, losses) = (0, self.log.losses());
        for page in span.pages.clone() {
            let mut bytes = match span.covers(&self.cx, page) {
                true => Buf::zeroed(PAGE),
                false => self.whole_page(page).await?,
            };
            let part = span.part(page);
            match buf {
                Some(buf) => {
                    let from = &buf[span.at(page)..span.at(page) + part.len()];
                    bytes[part].copy_from_slice(from);
                }
                None => bytes[part].fill(0),
            }
            last = self.log.put(page, &bytes, true).await?;
            self.log.host().holds.find(&(page..page + 1));
            if through {
                let len = ShardHost::page_bytes(&self.cx, page);
                let _hold = self.log.host().holds.take(page..page + 1, For::Origin).await;
                let at = (page * SIZE, len);
                self.cx.origins.write(Use::Unpaced, at, fua, Some(bytes)).await.0?;
                self.log.origin_has(page, last);
            }
        }
        match change {
            Change::AbsorbAndSettle => self.log.settle_change(last, losses).await,
            _ => Ok(()),
        }
    }

    /// The current version of a page.
    async fn whole_page(&self, page: u64) -> Result<Buf, Errno> {
        match self.log.get(page).await? {
            Got::Hit(bytes, _) => Ok(bytes),
            Got::Miss if self.log.host().holds.is_lost(page) => Err(Errno::EIO),
            Got::Miss => self.log.host().read_origin(page).await,
        }
    }

    /// Trim and zero: puts a tombstone, then changes the origin; writes zeroes to pages that are covered in part. Returns
    /// the request if the log was detached meanwhile.
    pub(crate) async fn discard(
        self: Rc<Self>,
        tag: Tag,
        request: Request,
        kind: IoKind,
    ) -> Option<Request> {
        let cx = &self.cx;
        let span = RequestSpan::of(request.offset, request.len);
        let place = cx.shape.place(&request);
        let what = For::Trim { recorded: false };
        let hold = self.hold_to_change(span.pages.clone(), what).await;
        let Some(hold) = hold else { return Some(request) };
        let claim = cx.claims.claim(u64::from(place.unit), place.pages);
        self.writers.set(self.writers.get() + 1);
        let mut result = self.discard_held(&span, kind).await;
        if result.is_err() && self.device().closed() {
            result = cx.origins.change(Use::Unpaced, kind, span.range(), None).await;
        }
        self.writers.set(self.writers.get() - 1);
        drop((claim, hold));
        cx.reply(tag, result, None, false);
        None
    }

    async fn discard_held(&self, span: &RequestSpan, kind: IoKind) -> Result<(), Errno> {
        let fua = matches!(kind, IoKind::Trim { fua: true } | IoKind::Zero { fua: true, .. });
        let fua = fua && !mutant::is_active("fua-ignored");
        let discard = async || self.cx.origins.change(Use::Unpaced, kind, span.range(), None).await;
        loop {
            let change = self.log.plan_change(fua);
            let result = match change {
                Change::PastLog => {
                    self.drop_pages(span).await;
                    return discard().await;
                }
                Change::Bypass => match self.change_past_failed(span, discard).await {
                    Some(result) => return result,
                    None => continue,
                },
                _ => self.discard_in_log(span, kind, fua, change).await,
            };
            if result.is_ok() || !self.log.is_bypassed() {
                return result;
            }
        }
    }

    async fn discard_in_log(
        &self,
        span: &RequestSpan,
        kind: IoKind,
        fua: bool,
        change: Change,
    ) -> Result<(), Errno> {
        let covered: Vec<u64> = span.pages.clone().filter(|p| span.covers(&self.cx, *p)).collect();
        for page in span.pages.clone().filter(|p| !covered.contains(p)) {
            let part = span.part(page);
            let bytes = page * SIZE + part.start as u64..page * SIZE + part.end as u64;
            let edge = RequestSpan { bytes, pages: page..page + 1 };
            self.put_pages(&edge, None, fua, change).await?;
        }
        let (Some(first), Some(last)) = (covered.first(), covered.last()) else { return Ok(()) };
        let pages = *first..last + 1;
        if !self.log.may_write_early() {
            return self.log.bury_in_order(pages, fua).await;
        }
        // If that failed, the log still has the pages; or it dropped them, and reads must not return the origin's older
        // bytes. A seal that could not be removed covers also pages that were dropped since, because they could not be read.
        let buried = self.log.bury(pages.clone()).await;
        let sealed = self.log.may_count() && !mutant::is_active("page-log-trims-sealed");
        if buried.is_err() && (sealed || pages.clone().any(|page| self.log.has(page))) {
            return buried.map(drop);
        }
        let end = (pages.end * SIZE).min(self.cx.shape.origin_bytes);
        let range = (pages.start * SIZE, end - pages.start * SIZE);
        let hold = self.log.host().holds.take(pages.clone(), For::Origin).await;
        let mut result = self.cx.origins.change(Use::Unpaced, kind, range, None).await;
        for _ in 0..RETRIES {
            if result.is_ok() || buried != Ok(true) {
                break;
            }
            // The tombstone is durable: the pages must become zero.
            self.cx.exec.sleep(MILLISECOND).await;
            result = self.cx.origins.change(Use::Unpaced, kind, range, None).await;
        }
        drop(hold);
        if buried != Ok(true) {
            self.unrecorded.set(self.unrecorded.get() + 1);
        }
        if result.is_err() {
            let holds = &self.log.host().holds;
            holds.cancel_trim(&pages);
            let put = self.log.zero(pages.clone()).await;
            if put.is_err() && !mutant::is_active("page-log-trim-refused") {
                holds.lose(pages);
            }
            put?;
        }
        buried.and(result)
    }

    /// Serves a FLUSH. Returns false if the log was detached meanwhile, after all data was written to the origin.
    pub(crate) async fn flush(&self, tag: Tag, offset: u64) -> bool {
        if mutant::is_active("flush-skips-origin") {
            self.cx.reply(tag, Ok(()), None, false);
            return true;
        }
        let result = self.log.barrier(self.cx.origins.at(offset).flush(), self.flush_past()).await;
        if result.is_err() && self.device().closed() {
            return false;
        }
        self.cx.reply(tag, result, None, false);
        true
    }

    /// Flushes the origin for the changes that bypassed the log.
    async fn flush_past(&self) -> Result<(), Errno> {
        // A restart after a power loss may not use a log that is being detached.
        let needed = self.unrecorded.get();
        if self.covered.get() < needed || self.detaching.get() {
            self.cx.origins.make_all_durable().await?;
            self.covered.set(self.covered.get().max(needed));
        }
        Ok(())
    }
}

/// A whole page of a request's buffer.
pub(super) fn whole(span: &RequestSpan, page: u64, buf: &[u8]) -> Buf {
    let mut bytes = Buf::zeroed(PAGE);
    let (at, part) = (span.at(page), span.part(page));
    bytes[part.clone()].copy_from_slice(&buf[at..at + part.len()]);
    bytes
}
