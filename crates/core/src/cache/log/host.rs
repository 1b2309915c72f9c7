// SPDX-License-Identifier: MIT OR Apache-2.0
//! A shard as the host of its page log.
//!
//! Under write-through an overdue read of flash fails; an overdue write keeps its batch until the device has answered
//! (design rule 5), and no client waits for it. A log that may hold dirty pages has no time limits.

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;

use super::holds::{For, Hold, Holds};
use super::ignored::Bypass;
use crate::buf::{Buf, PAGE};
use crate::context::Context;
use crate::event::Event;
use crate::exec::{IoKind, MILLISECOND, Nanos, WaitList};
use crate::flash::{Flash, FlashError, FlashOp, Guards, InFlight, LateAnswer, Role};
use crate::origin::Use;
use crate::pagelog::{BATCH_HEADERS, BUFFERS, Burials, Geometry, Host, Order};
use crate::request::Errno;

/// How long a log without dirty pages retries.
pub(crate) const PATIENCE_WITH_COPIES: Nanos = 80 * MILLISECOND;

/// The host of one log.
pub(crate) struct ShardHost {
    cx: Rc<Context>,
    pub(super) flash: Rc<Flash>,
    pub(super) holds: Holds<InFlight>,
    batch_pages: usize,
    buffers: RefCell<Vec<u8>>,
    changes: Cell<u64>,
    waiting: WaitList,
    pub(super) bypass: Bypass,
    order: Option<Order>,
}

impl ShardHost {
    pub(super) fn new(
        cx: &Rc<Context>,
        flash: Rc<Flash>,
        log: &Geometry,
        (ignored, order): (Vec<Range<u64>>, Option<Order>),
    ) -> Self {
        let batch_pages = log.batch_pages as usize;
        Self {
            cx: Rc::clone(cx),
            flash,
            holds: Holds::new(cx.exec.clone()),
            batch_pages,
            buffers: RefCell::new(vec![0; BUFFERS * batch_pages * PAGE]),
            changes: Cell::new(0),
            waiting: WaitList::default(),
            bypass: Bypass::ignoring(ignored),
            order,
        }
    }

    fn place(&self, buffer: usize, place: usize) -> Range<usize> {
        let at = (buffer * self.batch_pages + place) * PAGE;
        at..at + PAGE
    }

    /// One operation on flash.
    async fn io(&self, kind: IoKind, offset: u64, buf: Option<Buf>) -> Result<Option<Buf>, Errno> {
        if self.flash.closed() {
            return Err(Errno::ESHUTDOWN);
        }
        let len = buf.as_ref().map_or(0, |b| b.len() as u64);
        let answer = LateAnswer::default();
        let guards = Guards { answer: Some(Rc::clone(&answer)), ..Guards::default() };
        let op = FlashOp { role: Role::Data, kind, offset, len, buf, at: 0, of: 0 };
        match self.flash.io(op, guards).await {
            Ok(buf) => Ok(buf),
            Err(FlashError::Failed(errno, _)) => Err(errno),
            // Only slots of units have checksums of their own; a log verifies its pages.
            Err(FlashError::Mismatch(..)) => Err(Errno::EIO),
            Err(FlashError::Overdue) if kind == IoKind::Read => Err(Errno::ETIMEDOUT),
            Err(FlashError::Overdue) => {
                // The write is still in flight: it could overwrite the next one.
                while answer.get().is_none() && !self.flash.closed() {
                    self.rest(1).await;
                }
                answer.get().unwrap_or(Err(Errno::ESHUTDOWN)).map(|()| None)
            }
        }
    }

    /// Waits for a change, but no longer than a time.
    pub(super) async fn changed_within(&self, seen: u64, span: Nanos) {
        if self.changes.get() == seen {
            self.waiting.wait_for(span, &self.cx.exec).await;
        }
    }

    async fn write_back(&self, page: u64, len: u64, buf: Buf) -> Result<(), Errno> {
        self.cx.stats.add(|c| c.write_back_bytes += len);
        self.cx.origins.write_back((page * PAGE as u64, len), Some(buf)).await
    }

    /// In pieces, as a client's request: a tombstone may cover the whole volume.
    async fn make_zero(&self, pages: Range<u64>, may_unmap: bool) -> Result<(), Errno> {
        let kind = IoKind::Zero { fua: false, may_unmap };
        let shape = &self.cx.shape;
        let [offset, end] =
            [pages.start, pages.end].map(|page| shape.origin_bytes.min(page * PAGE as u64));
        for piece in shape.pieces(offset, end - offset) {
            let range = (piece.offset, piece.len);
            self.cx.origins.change(Use::Unpaced, kind, range, None).await?;
        }
        Ok(())
    }

    /// Bytes of a page within the volume: the last one may be short.
    pub(super) fn page_bytes(cx: &Context, page: u64) -> u64 {
        let offset = page * PAGE as u64;
        cx.shape.origin_bytes.saturating_sub(offset).min(PAGE as u64)
    }
}

impl Host for ShardHost {
    type Guard<'a> = ();
    type Hold = Hold<InFlight>;

    fn pages(&self) -> u64 {
        self.cx.shape.pages()
    }

    fn lock(&self) -> ((), bool) {
        ((), false) // one thread
    }

    fn stage(&self, buffer: usize, place: usize, bytes: &[u8]) {
        self.buffers.borrow_mut()[self.place(buffer, place)].copy_from_slice(bytes);
    }

    fn staged(&self, buffer: usize, place: usize, into: &mut [u8]) {
        into.copy_from_slice(&self.buffers.borrow()[self.place(buffer, place)]);
    }

    async fn read_flash(&self, offset: u64, buf: Buf) -> Result<Buf, Errno> {
        if !self.flash.usable() {
            return Err(Errno::ETIMEDOUT);
        }
        self.io(IoKind::Read, offset, Some(buf)).await?.ok_or(Errno::EIO)
    }

    async fn write_batch(
        &self,
        offset: u64,
        header: Buf,
        buffer: usize,
        pages: usize,
    ) -> Result<(), Errno> {
        let headers = BATCH_HEADERS as usize * PAGE;
        let mut bytes = Buf::with_len(headers + pages * PAGE);
        bytes[..PAGE].copy_from_slice(&header);
        bytes[PAGE..headers].copy_from_slice(&header);
        let from = self.place(buffer, 0).start;
        bytes[headers..].copy_from_slice(&self.buffers.borrow()[from..from + pages * PAGE]);
        self.io(IoKind::Write { fua: false }, offset, Some(bytes)).await.map(drop)
    }

    async fn write_flash(&self, offset: u64, buf: Buf) -> Result<(), Errno> {
        self.io(IoKind::Write { fua: false }, offset, Some(buf)).await.map(drop)
    }

    async fn flush_flash(&self) -> Result<(), Errno> {
        self.io(IoKind::Flush, 0, None).await.map(drop)
    }

    async fn hold(&self, page: u64) -> Self::Hold {
        self.holds.take(page..page + 1, For::Origin).await
    }

    fn buried(&self, pages: Range<u64>) {
        self.holds.recorded(&pages);
    }

    fn order(&self) -> Option<&Order> {
        self.order.as_ref()
    }

    fn clock(&self) -> Nanos {
        self.cx.exec.now()
    }

    async fn tombstone_done(&self, page: u64) {
        self.holds.tombstone_done(page).await;
    }

    fn burials(&self) -> Burials {
        let trims = self.holds.trims();
        Burials { ended: trims.ended, refused: trims.failed }
    }

    async fn burials_end(&self) {
        self.holds.open_trims_end().await;
    }

    fn damaged(&self, page: u64, dirty: bool) {
        self.cx.stats.add(|c| c.damaged_pages += 1);
        let at = page * PAGE as u64;
        self.flash.device().emit(Event::FlashDamaged { at });
        if dirty {
            self.flash.device().emit(Event::DirtyDamaged { at });
        }
    }

    fn ignores(&self) -> Vec<Range<u64>> {
        self.bypass.ignored()
    }

    fn has_ignored(&self, page: u64) -> bool {
        self.bypass.has_ignored(page)
    }

    fn around(&self, pages: &Range<u64>) -> Range<u64> {
        self.neighbours(pages)
    }

    async fn bypass(&self, pages: Vec<u64>) -> Result<(), Errno> {
        self.ignore(pages).await
    }

    fn may_continue(&self) -> bool {
        self.bypass.is_unused()
    }

    fn passes(&self) -> bool {
        self.bypass.passing.get() > 0
    }

    async fn stop_bypass(&self) {
        self.stop_passing().await;
    }

    async fn end_bypass(&self, renewed: bool) {
        self.end_passing(renewed).await;
    }

    async fn read_origin(&self, page: u64) -> Result<Buf, Errno> {
        let len = Self::page_bytes(&self.cx, page);
        let found = Buf::with_len(len as usize);
        let at = page * PAGE as u64;
        let found = self.cx.origins.read(Use::Unpaced, at, len, found).await?;
        let mut whole = Buf::zeroed(PAGE);
        whole[..len as usize].copy_from_slice(&found);
        Ok(whole)
    }

    async fn write_origin(&self, page: u64, buf: Buf) -> Result<(), Errno> {
        let len = Self::page_bytes(&self.cx, page);
        self.write_back(page, len, buf).await
    }

    async fn write_origin_run(&self, first: u64, pages: Vec<Buf>) -> Result<(), Errno> {
        let mut bytes = Buf::with_len(pages.len() * PAGE);
        for (to, page) in bytes.chunks_exact_mut(PAGE).zip(&pages) {
            to.copy_from_slice(page);
        }
        let last = first + pages.len() as u64 - 1;
        let len = (last - first) * PAGE as u64 + Self::page_bytes(&self.cx, last);
        self.write_back(first, len, bytes).await
    }

    async fn zero_origin(&self, pages: Range<u64>) -> Result<(), Errno> {
        self.make_zero(pages, false).await
    }

    async fn unmap_origin(&self, pages: Range<u64>) -> Result<(), Errno> {
        self.make_zero(pages, true).await
    }

    async fn flush_origin(&self) -> Result<(), Errno> {
        self.cx.origins.make_all_durable().await
    }

    fn evicted(&self, pages: u64) {
        self.cx.stats.add(|c| c.evictions += pages);
    }

    async fn rest(&self, failures: u64) {
        self.flash.rest(failures).await;
    }

    fn gives_up(&self, failures: u64) -> bool {
        self.flash.gives_up(failures)
    }

    fn has_tasks(&self) -> bool {
        true
    }

    async fn changed(&self, seen: u64) {
        if self.changes.get() != seen {
            return;
        }
        self.waiting.wait(&self.cx.exec).await;
    }

    fn changes(&self) -> u64 {
        self.changes.get()
    }

    fn notify(&self) {
        self.changes.set(self.changes.get() + 1);
        self.waiting.wake_all(&self.cx.exec);
    }

    fn me(&self) -> u64 {
        1
    }

    fn is_gone(&self, _: u64) -> bool {
        false
    }
}
