// SPDX-License-Identifier: MIT OR Apache-2.0
//! A shard as the host of its page log.
//!
//! Under write-through an operation on flash that is overdue counts as failed for whoever reads; a write
//! keeps its batch until the device has answered (design rule 5), and nobody waits for it. Where the log
//! alone has something, everything takes as long as it takes.

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;

use super::holds::{For, Hold, Holds};
use crate::buf::{Buf, PAGE};
use crate::context::Context;
use crate::event::Event;
use crate::exec::{IoKind, MILLISECOND, Nanos, WaitList};
use crate::flash::{Flash, FlashError, FlashOp, Guards, InFlight, LateAnswer, Role};
use crate::origin::Use;
use crate::pagelog::{BUFFERS, Burials, Geometry, HEADS, Host};
use crate::request::Errno;

/// How long a batch that flash refused rests before it is tried again.
const REST: Nanos = 10 * MILLISECOND;

/// See the module.
pub(crate) struct ShardHost {
    cx: Rc<Context>,
    pub(super) flash: Rc<Flash>,
    pub(super) holds: Holds<InFlight>,
    batch_pages: usize,
    buffers: RefCell<Vec<u8>>,
    changes: Cell<u64>,
    waiting: WaitList,
    /// The origin did not take what was brought to it last.
    refused: Cell<bool>,
}

impl ShardHost {
    pub(super) fn new(cx: &Rc<Context>, flash: Rc<Flash>, log: &Geometry) -> Self {
        let batch_pages = log.batch_pages as usize;
        Self {
            cx: Rc::clone(cx),
            flash,
            holds: Holds::new(cx.exec.clone()),
            batch_pages,
            buffers: RefCell::new(vec![0; BUFFERS * batch_pages * PAGE]),
            changes: Cell::new(0),
            waiting: WaitList::default(),
            refused: Cell::new(false),
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
        let op = FlashOp { role: Role::Data, kind, offset, len, buf, at: 0 };
        match self.flash.io(op, guards).await {
            Ok(buf) => Ok(buf),
            Err(FlashError::Failed(errno, _)) => Err(errno),
            Err(FlashError::Overdue) if kind == IoKind::Read => Err(Errno::ETIMEDOUT),
            Err(FlashError::Overdue) => {
                // What is still on its way must not be written over by what comes next.
                while answer.get().is_none() && !self.flash.closed() {
                    self.rest().await;
                }
                answer.get().unwrap_or(Err(Errno::ESHUTDOWN)).map(|()| None)
            }
        }
    }

    /// Bytes of a page that the volume has: its last one may be short.
    pub(super) fn page_bytes(cx: &Context, page: u64) -> u64 {
        let offset = page * PAGE as u64;
        cx.shape.origin_bytes.saturating_sub(offset).min(PAGE as u64)
    }
}

impl Host for ShardHost {
    type Guard<'a> = ();
    type Hold = Hold<InFlight>;

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
        head: Buf,
        buffer: usize,
        pages: usize,
    ) -> Result<(), Errno> {
        let heads = HEADS as usize * PAGE;
        let mut bytes = Buf::with_len(heads + pages * PAGE);
        bytes[..PAGE].copy_from_slice(&head);
        bytes[PAGE..heads].copy_from_slice(&head);
        let from = self.place(buffer, 0).start;
        bytes[heads..].copy_from_slice(&self.buffers.borrow()[from..from + pages * PAGE]);
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

    async fn tombstone_done(&self, page: u64) {
        self.holds.tombstone_done(page).await;
    }

    fn burials(&self) -> Burials {
        let trims = self.holds.trims();
        Burials { ended: trims.ended, refused: trims.given_up }
    }

    async fn burials_of_now(&self) {
        self.holds.trims_of_now().await;
    }

    async fn write_origin(&self, page: u64, buf: Buf) -> Result<(), Errno> {
        let len = Self::page_bytes(&self.cx, page);
        self.cx.stats.add(|c| c.write_back_bytes += len);
        let at = (page * PAGE as u64, len);
        let (result, _) = self.cx.origin.write(Use::WriteBack, at, false, Some(buf)).await;
        if self.refused.replace(result.is_err()) != result.is_err() {
            self.flash.device().emit(Event::OriginRefuses { errno: result.err() });
        }
        result
    }

    async fn zero_origin(&self, pages: Range<u64>) -> Result<(), Errno> {
        let offset = pages.start * PAGE as u64;
        let end = (pages.end * PAGE as u64).min(self.cx.shape.origin_bytes);
        let kind = IoKind::Zero { fua: false, may_unmap: false };
        let range = (offset, end.saturating_sub(offset));
        self.cx.origin.change(Use::Unpaced, kind, range, None).await
    }

    async fn flush_origin(&self) -> Result<(), Errno> {
        self.cx.origin.make_durable().await
    }

    fn left(&self, pages: u64) {
        self.cx.stats.add(|c| c.evictions += pages);
    }

    async fn rest(&self) {
        self.cx.exec.sleep(REST).await;
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
