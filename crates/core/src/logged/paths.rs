// SPDX-License-Identifier: MIT OR Apache-2.0
//! The paths of a logged shard.
//!
//! One write under write-back: hold its pages; complete those that it covers in part; put them; answer. A
//! FLUSH makes the log durable (policy full), or brings what is dirty to the origin (bounded). One write
//! under write-through: hold its pages; drop what the log has of them; write the origin; answer; let the whole
//! pages enter.
//!
//! One read: each page from the log; what is not there from the origin in one operation; those pages then
//! enter if nobody changed them meanwhile (design rule 4).
//!
//! Pages that enter after the answer wait for room as long as the write-through pool has room for their bytes
//! (SCE 3.6); they hold nothing meanwhile, and whoever claims one keeps it out.

use std::ops::Range;
use std::rc::Rc;

use super::Logged;
use super::holds::{For, Hold};
use super::host::ShardHost;
use crate::buf::{Buf, PAGE};
use crate::claims::Claim;
use crate::exec::{IoKind, MILLISECOND};
use crate::flash;
use crate::mutant;
use crate::pagelog::{Got, Host, LogPolicy, New, each};
use crate::request::{Errno, Request};
use crate::shard::Core;

const SIZE: u64 = PAGE as u64;
/// How often a trim is tried again that the origin refused after its tombstone.
const RETRIES: u32 = 20;

/// A request's place in bytes and pages of the volume.
struct Span {
    bytes: Range<u64>,
    pages: Range<u64>,
}

impl Span {
    fn of(offset: u64, len: u64) -> Self {
        let end = offset + len;
        Self { bytes: offset..end, pages: offset / SIZE..end.div_ceil(SIZE) }
    }

    /// The part of a page that it covers: from where to where in the page.
    fn part(&self, page: u64) -> Range<usize> {
        let start = self.bytes.start.max(page * SIZE) - page * SIZE;
        let end = self.bytes.end.min((page + 1) * SIZE) - page * SIZE;
        start as usize..end as usize
    }

    /// Where that part lies in the request's memory.
    fn at(&self, page: u64) -> usize {
        (page * SIZE).saturating_sub(self.bytes.start) as usize
    }

    /// Whether it covers all of the page that the volume has.
    fn covers(&self, core: &Core, page: u64) -> bool {
        let part = self.part(page);
        part.start == 0 && part.end as u64 >= ShardHost::page_bytes(core, page)
    }
}

impl Logged {
    /// A page of the log, or that the origin has it.
    async fn get(&self, page: u64) -> Result<Got, Errno> {
        loop {
            let got = self.log.get(page).await;
            let missed = matches!(got, Ok(Got::Miss));
            let holds = &self.log.host().holds;
            if !missed || !holds.trims_end(page).await {
                return if missed && holds.is_lost(page) { Err(Errno::EIO) } else { got };
            }
        }
    }
}

impl Core {
    pub(crate) async fn log_read(self: Rc<Self>, tag: u64, request: Request) {
        let logged = match self.logged().await {
            Ok(Some(logged)) => logged,
            Ok(None) => return self.read(tag, request).await,
            Err(errno) => return self.reply(tag, Err(errno), None, false),
        };
        let span = Span::of(request.offset, request.len);
        let mut buf = request.buf.unwrap_or_else(|| Buf::with_len(request.len as usize));
        let request = Request { buf: None, ..request };
        let found = each(span.pages.clone().map(|page| logged.get(page)).collect()).await;
        let mut missed = Vec::new();
        let mut hits = Vec::new();
        for (page, got) in span.pages.clone().zip(found) {
            match got {
                Ok(Got::Hit(bytes, _)) => hits.push((page, bytes)),
                Ok(Got::Miss) => missed.push(page),
                Err(_) if logged.device().closed() => {
                    // It was left meanwhile.
                    drop(logged);
                    let request = Request { buf: Some(buf), ..request };
                    return Box::pin(self.log_read(tag, request)).await;
                }
                Err(errno) => return self.reply(tag, Err(errno), None, true),
            }
        }
        let hit = missed.is_empty();
        let mut claim = None;
        if let (Some(first), Some(last)) = (missed.first(), missed.last()) {
            let place = self.place(&request);
            claim = Some(self.claims.claim(u64::from(place.unit), place.pages));
            let from = span.bytes.start.max(first * SIZE);
            let to = span.bytes.end.min((last + 1) * SIZE);
            // What was put since is newer than what the origin says now, and may leave before that would enter.
            if !mutant::is_active("page-log-put-before-claim") {
                missed.retain(|page| !logged.log.has(*page));
            }
            let aside = Buf::with_len((to - from) as usize);
            self.pace.foreground_began();
            let (result, aside) = self.origin_io(IoKind::Read, from, to - from, Some(aside)).await;
            self.pace.foreground_ended(self.exec.now());
            let Some(aside) = aside.filter(|_| result.is_ok()) else {
                return self.reply(tag, result.and(Err(Errno::EIO)), None, false);
            };
            let at = (from - span.bytes.start) as usize;
            buf[at..at + aside.len()].copy_from_slice(&aside);
        }
        for (page, bytes) in hits {
            let (at, part) = (span.at(page), span.part(page));
            buf[at..at + part.len()].copy_from_slice(&bytes[part]);
        }
        let enter = self.choices.on_exit().reads && !logged.leaving.get();
        let copies = missed.into_iter().filter(|p| enter && span.covers(&self, *p));
        let copies: Vec<(u64, Buf)> = copies.map(|p| (p, whole(&span, p, &buf))).collect();
        self.reply(tag, Ok(()), Some(buf), hit);
        let Some(claim) = claim else { return };
        let entered = self.enter_clean(&logged, &claim, &span, copies).await;
        self.stats.add(|c| {
            c.populations += entered;
            c.population_bytes += entered * SIZE;
        });
    }

    /// Enters pages that are as the origin has them, unless somebody claims them first; how many did.
    async fn enter_clean(
        &self,
        logged: &Logged,
        claim: &Claim,
        span: &Span,
        copies: Vec<(u64, Buf)>,
    ) -> u64 {
        let base = span.pages.start - u64::from(self.place_pages(span.bytes.start));
        let claimed = |page: u64| {
            claim.tainted().has((page - base) as u32) && !mutant::is_active("page-log-stale-fill")
        };
        let (mut entered, mut kept) = (0, None);
        for (n, (page, bytes)) in copies.iter().enumerate() {
            loop {
                let seen = logged.log.host().changes();
                if claimed(*page) {
                    break;
                }
                match logged.log.put_new(*page, bytes, false).await {
                    Ok(New::Entered) => entered += 1,
                    Ok(New::NoRoom) => {
                        let left = (copies.len() - n) as u64;
                        kept = kept.or_else(|| self.pool.take(left * SIZE));
                        if kept.is_some() {
                            logged.log.host().changed(seen).await;
                            continue;
                        }
                        // They enter when they are asked for again.
                        self.stats.add(|c| c.write_arounds += left);
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
    fn place_pages(&self, offset: u64) -> u32 {
        (offset % self.shape.unit_bytes / SIZE) as u32
    }

    pub(crate) async fn log_write(self: Rc<Self>, tag: u64, request: Request, fua: bool) {
        let logged = match self.logged().await {
            Ok(Some(logged)) => logged,
            Ok(None) => return self.write(tag, request, fua).await,
            Err(errno) => return self.reply(tag, Err(errno), None, false),
        };
        let fua = fua && !mutant::is_active("fua-ignored");
        let span = Span::of(request.offset, request.len);
        let place = self.place(&Request { buf: None, ..request });
        let hold = self.hold_to_change(&logged, span.pages.clone(), For::Write).await;
        let Some(hold) = hold else { return Box::pin(self.log_write(tag, request, fua)).await };
        let claim = self.claims.claim(u64::from(place.unit), place.pages);
        let hit = logged.log.has(span.pages.start);
        let Some(buf) = request.buf else { return self.reply(tag, Err(Errno::EINVAL), None, hit) };
        if !logged.log.policy().holds_dirty() {
            let (result, back) = self.write_through(&logged, &span, buf, fua).await;
            self.reply(tag, result, None, hit);
            drop(hold);
            if let Some(buf) = back {
                let pages = span.pages.clone().filter(|p| span.covers(&self, *p));
                let copies = pages.map(|p| (p, whole(&span, p, &buf))).collect();
                drop(buf);
                self.enter_clean(&logged, &claim, &span, copies).await;
            }
            return;
        }
        logged.writers.set(logged.writers.get() + 1);
        let mut result = self.put_pages(&logged, &span, Some(&buf), fua).await;
        if result.is_err() && logged.device().closed() {
            // It was left meanwhile: the origin has everything.
            let (offset, len) = (span.bytes.start, span.bytes.end - span.bytes.start);
            result = self.origin_io(IoKind::Write { fua }, offset, len, Some(buf)).await.0;
        }
        logged.writers.set(logged.writers.get() - 1);
        drop((claim, hold));
        self.reply(tag, result, None, hit);
    }

    /// Takes pages to change them, unless the log is about to be left: nothing once it is.
    async fn hold_to_change(
        &self,
        logged: &Logged,
        pages: Range<u64>,
        what: For,
    ) -> Option<Hold<flash::Hold>> {
        loop {
            let hold = logged.log.host().holds.take(pages.clone(), what).await;
            if !logged.empty.get() {
                return Some(hold);
            }
            drop(hold);
            while logged.empty.get() {
                if logged.device().closed() {
                    return None;
                }
                self.exec.sleep(MILLISECOND).await;
            }
        }
    }

    async fn write_through(
        &self,
        logged: &Logged,
        span: &Span,
        buf: Buf,
        fua: bool,
    ) -> (Result<(), Errno>, Option<Buf>) {
        // What cannot be said on flash needs not be: a crash makes all of it cold.
        let dropped = logged.log.drop_pages(span.pages.clone()).await;
        if dropped.is_err() && !logged.device().closed() {
            self.give_up(logged.device(), "its header cannot be written".to_owned());
        }
        self.until_fenced().await;
        let kind = IoKind::Write { fua };
        let (offset, len) = (span.bytes.start, span.bytes.end - span.bytes.start);
        self.pace.foreground_began();
        let (result, buf) = self.origin_io(kind, offset, len, Some(buf)).await;
        self.pace.foreground_ended(self.exec.now());
        (result, buf.filter(|_| result.is_ok()))
    }

    /// Puts the pages that a write covers, or zeroes without bytes.
    async fn put_pages(
        &self,
        logged: &Rc<Logged>,
        span: &Span,
        buf: Option<&Buf>,
        fua: bool,
    ) -> Result<(), Errno> {
        let full = logged.log.policy() == LogPolicy::Full;
        let through = logged.leaving.get() || (fua && !full);
        let mut last = 0;
        for page in span.pages.clone() {
            let mut bytes = match span.covers(self, page) {
                true => Buf::zeroed(PAGE),
                false => self.whole_page(logged, page).await?,
            };
            let part = span.part(page);
            match buf {
                Some(buf) => {
                    let from = &buf[span.at(page)..span.at(page) + part.len()];
                    bytes[part].copy_from_slice(from);
                }
                None => bytes[part].fill(0),
            }
            last = logged.log.put(page, &bytes, true).await?;
            if through {
                let (kind, len) = (IoKind::Write { fua }, ShardHost::page_bytes(self, page));
                let _hold = logged.log.host().holds.take(page..page + 1, For::Origin).await;
                self.origin_io(kind, page * SIZE, len, Some(bytes)).await.0?;
                logged.log.origin_has(page, last);
            }
        }
        if fua && full { logged.log.settle(last).await } else { Ok(()) }
    }

    /// A page as it is.
    async fn whole_page(&self, logged: &Rc<Logged>, page: u64) -> Result<Buf, Errno> {
        match logged.log.get(page).await? {
            Got::Hit(bytes, _) => Ok(bytes),
            Got::Miss => {
                let len = ShardHost::page_bytes(self, page);
                let buf = Buf::zeroed(len as usize);
                let (result, buf) = self.origin_io(IoKind::Read, page * SIZE, len, Some(buf)).await;
                result?;
                let mut whole = Buf::zeroed(PAGE);
                whole[..len as usize].copy_from_slice(&buf.ok_or(Errno::EIO)?);
                Ok(whole)
            }
        }
    }

    /// Trim and zero: a tombstone, then the origin; what is covered in part is written as zeroes.
    pub(crate) async fn log_discard(self: Rc<Self>, tag: u64, request: Request, kind: IoKind) {
        let logged = match self.logged().await {
            Ok(Some(logged)) => logged,
            Ok(None) => return self.discard(tag, request, kind).await,
            Err(errno) => return self.reply(tag, Err(errno), None, false),
        };
        let span = Span::of(request.offset, request.len);
        let place = self.place(&request);
        let what = For::Trim { recorded: false };
        let hold = self.hold_to_change(&logged, span.pages.clone(), what).await;
        let Some(hold) = hold else { return Box::pin(self.log_discard(tag, request, kind)).await };
        let claim = self.claims.claim(u64::from(place.unit), place.pages);
        logged.writers.set(logged.writers.get() + 1);
        let mut result = self.discard_held(&logged, &span, kind).await;
        if result.is_err() && logged.device().closed() {
            let (offset, len) = (span.bytes.start, span.bytes.end - span.bytes.start);
            result = self.origin_io(kind, offset, len, None).await.0;
        }
        logged.writers.set(logged.writers.get() - 1);
        drop((claim, hold));
        self.reply(tag, result, None, false);
    }

    async fn discard_held(
        &self,
        logged: &Rc<Logged>,
        span: &Span,
        kind: IoKind,
    ) -> Result<(), Errno> {
        let fua = matches!(kind, IoKind::Trim { fua: true } | IoKind::Zero { fua: true, .. });
        let fua = fua && !mutant::is_active("fua-ignored");
        if !logged.log.policy().holds_dirty() {
            if logged.log.drop_pages(span.pages.clone()).await.is_err() && !logged.device().closed()
            {
                self.give_up(logged.device(), "its header cannot be written".to_owned());
            }
            self.until_fenced().await;
            let len = span.bytes.end - span.bytes.start;
            return self.origin_io(kind, span.bytes.start, len, None).await.0;
        }
        let covered: Vec<u64> = span.pages.clone().filter(|p| span.covers(self, *p)).collect();
        for page in span.pages.clone().filter(|p| !covered.contains(p)) {
            let part = span.part(page);
            let bytes = page * SIZE + part.start as u64..page * SIZE + part.end as u64;
            let edge = Span { bytes, pages: page..page + 1 };
            self.put_pages(logged, &edge, None, fua).await?;
        }
        let (Some(first), Some(last)) = (covered.first(), covered.last()) else { return Ok(()) };
        let pages = *first..last + 1;
        // Where that failed the log has them still; or it dropped them, and the origin's older bytes must not show.
        let buried = logged.log.bury(pages.clone()).await;
        if buried.is_err() && pages.clone().any(|page| logged.log.has(page)) {
            return buried.map(drop);
        }
        let end = (pages.end * SIZE).min(self.shape.origin_bytes);
        let (offset, len) = (pages.start * SIZE, end - pages.start * SIZE);
        let hold = logged.log.host().holds.take(pages.clone(), For::Origin).await;
        let mut result = self.origin_io(kind, offset, len, None).await.0;
        for _ in 0..RETRIES {
            if result.is_ok() || buried != Ok(true) {
                break;
            }
            // The tombstone stands, and the pages are to be zero.
            self.exec.sleep(MILLISECOND).await;
            result = self.origin_io(kind, offset, len, None).await.0;
        }
        drop(hold);
        if buried != Ok(true) {
            logged.unrecorded.set(logged.unrecorded.get() + 1);
        }
        if result.is_err() {
            let holds = &logged.log.host().holds;
            holds.give_up(&pages);
            let put = logged.log.zero(pages.clone()).await;
            if put.is_err() && !mutant::is_active("page-log-trim-refused") {
                holds.lose(pages);
            }
            put?;
        }
        buried.and(result)
    }

    pub(crate) async fn log_flush(self: Rc<Self>, tag: u64) {
        let logged = match self.logged().await {
            Ok(Some(logged)) => logged,
            Ok(None) => return self.flush(tag).await,
            Err(errno) => return self.reply(tag, Err(errno), None, false),
        };
        if mutant::is_active("flush-skips-origin") {
            return self.reply(tag, Ok(()), None, false);
        }
        let result = match logged.log.policy() {
            LogPolicy::Through => self.flush_here().await,
            LogPolicy::Bounded => self.drain_log(&logged, false).await,
            LogPolicy::Full => self.flush_full(&logged).await,
        };
        // A log is detached when the origin has everything.
        match result {
            Err(_) if logged.device().closed() => self.flush(tag).await,
            result => self.reply(tag, result, None, false),
        }
    }

    /// Brings to the origin what the log alone has, durably; `all`: whatever was brought before. What a trim
    /// drops meanwhile is neither here nor there until it is done, and a flush that began before is none of it;
    /// where the origin refused it, it is here again.
    pub(super) async fn drain_log(&self, logged: &Logged, all: bool) -> Result<(), Errno> {
        let holds = &logged.log.host().holds;
        let mut before = holds.trims();
        let mut again = false;
        loop {
            if all {
                logged.log.empty().await?;
            } else {
                logged.log.drain().await?;
            }
            if mutant::is_active("page-log-flush-misses-trims") {
                return Ok(());
            }
            holds.trims_of_now().await;
            let now = holds.trims();
            if before.ended == now.ended || again && before.given_up == now.given_up {
                return Ok(());
            }
            (before, again) = (now, true);
        }
    }

    async fn flush_full(&self, logged: &Logged) -> Result<(), Errno> {
        // A log that is being left may not count any more when the power fails.
        let needed = logged.unrecorded.get();
        if logged.covered.get() < needed || logged.leaving.get() {
            self.flush_origin().await?;
            logged.covered.set(logged.covered.get().max(needed));
        }
        logged.log.flush().await
    }
}

/// A page of a request's memory, whole.
fn whole(span: &Span, page: u64, buf: &[u8]) -> Buf {
    let mut bytes = Buf::zeroed(PAGE);
    let (at, part) = (span.at(page), span.part(page));
    bytes[part.clone()].copy_from_slice(&buf[at..at + part.len()]);
    bytes
}
