// SPDX-License-Identifier: MIT OR Apache-2.0
//! A shard as the host of its page log.
//!
//! Under write-through an operation on flash that is overdue counts as failed for whoever reads; a write
//! keeps its batch until the device has answered (design rule 5), and nobody waits for it. Where the log
//! alone has something, everything takes as long as it takes.

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::{Rc, Weak};

use super::holds::{For, Hold, Holds};
use crate::attached::Attached;
use crate::buf::{Buf, PAGE};
use crate::event::Event;
use crate::exec::{DevId, Ended, Exec, IoKind, MILLISECOND, Nanos, Signal};
use crate::flash;
use crate::pagelog::{BUFFERS, Geometry, HEADS, Host};
use crate::request::Errno;
use crate::shard::Core;

/// How long a batch that flash refused rests before it is tried again.
const REST: Nanos = 10 * MILLISECOND;

/// See the module.
pub(crate) struct ShardHost {
    core: Weak<Core>,
    exec: Exec<flash::Hold>,
    pub(super) device: Rc<Attached>,
    pub(super) holds: Holds<flash::Hold>,
    batch_pages: usize,
    buffers: RefCell<Vec<u8>>,
    changes: Cell<u64>,
    waiting: RefCell<Vec<Rc<Signal>>>,
    /// The origin did not take what was brought to it last.
    refused: Cell<bool>,
}

impl ShardHost {
    pub(super) fn new(core: &Rc<Core>, dev: DevId, log: &Geometry) -> Self {
        let batch_pages = log.batch_pages as usize;
        Self {
            core: Rc::downgrade(core),
            exec: core.exec.clone(),
            device: Attached::new(dev, Rc::clone(&core.events)),
            holds: Holds::new(core.exec.clone()),
            batch_pages,
            buffers: RefCell::new(vec![0; BUFFERS * batch_pages * PAGE]),
            changes: Cell::new(0),
            waiting: RefCell::default(),
            refused: Cell::new(false),
        }
    }

    fn core(&self) -> Result<Rc<Core>, Errno> {
        self.core.upgrade().ok_or(Errno::ESHUTDOWN)
    }

    fn place(&self, buffer: usize, place: usize) -> Range<usize> {
        let at = (buffer * self.batch_pages + place) * PAGE;
        at..at + PAGE
    }

    /// One operation on flash.
    async fn flash(
        &self,
        kind: IoKind,
        offset: u64,
        buf: Option<Buf>,
    ) -> Result<Option<Buf>, Errno> {
        let core = self.core()?;
        if self.device.closed() {
            return Err(Errno::ESHUTDOWN);
        }
        let len = buf.as_ref().map_or(0, |b| b.len() as u64);
        core.stats.add(|c| match kind {
            IoKind::Read => c.flash_read_bytes += len,
            IoKind::Write { .. } => c.flash_write_bytes += len,
            _ => {}
        });
        let (hold, answer) = flash::Hold::with_answer(&self.device);
        let bound = core.flash_bound();
        let io = core.exec.io(self.device.dev, kind, offset, len, buf, 0, Some(hold), bound);
        match io.await {
            Ended::Done(Ok(()), buf) => Ok(buf),
            Ended::Done(Err(errno), _) => {
                core.flash_failed(&self.device, errno, kind);
                Err(errno)
            }
            Ended::TimedOut => {
                core.flash_overdue(&self.device);
                drop(core);
                if kind == IoKind::Read {
                    return Err(Errno::ETIMEDOUT);
                }
                // What is still on its way must not be written over by what comes next.
                while answer.get().is_none() && !self.device.closed() {
                    self.exec.sleep(REST).await;
                }
                answer.get().unwrap_or(Err(Errno::ESHUTDOWN)).map(|()| None)
            }
        }
    }

    /// Bytes of a page that the volume has: its last one may be short.
    pub(super) fn page_bytes(core: &Core, page: u64) -> u64 {
        let offset = page * PAGE as u64;
        core.shape.origin_bytes.saturating_sub(offset).min(PAGE as u64)
    }
}

impl Host for ShardHost {
    type Guard<'a> = ();
    type Hold = Hold<flash::Hold>;

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
        if !self.device.health.usable() {
            return Err(Errno::ETIMEDOUT);
        }
        self.flash(IoKind::Read, offset, Some(buf)).await?.ok_or(Errno::EIO)
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
        self.flash(IoKind::Write { fua: false }, offset, Some(bytes)).await.map(drop)
    }

    async fn write_flash(&self, offset: u64, buf: Buf) -> Result<(), Errno> {
        self.flash(IoKind::Write { fua: false }, offset, Some(buf)).await.map(drop)
    }

    async fn flush_flash(&self) -> Result<(), Errno> {
        self.flash(IoKind::Flush, 0, None).await.map(drop)
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

    async fn write_origin(&self, page: u64, buf: Buf) -> Result<(), Errno> {
        let core = self.core()?;
        let len = Self::page_bytes(&core, page);
        core.stats.add(|c| c.write_back_bytes += len);
        let write = IoKind::Write { fua: false };
        let (result, _) = core.origin_io(write, page * PAGE as u64, len, Some(buf)).await;
        if self.refused.replace(result.is_err()) != result.is_err() {
            self.device.tell(Event::OriginRefuses { errno: result.err() });
        }
        result
    }

    async fn zero_origin(&self, pages: Range<u64>) -> Result<(), Errno> {
        let core = self.core()?;
        let offset = pages.start * PAGE as u64;
        let end = (pages.end * PAGE as u64).min(core.shape.origin_bytes);
        let kind = IoKind::Zero { fua: false, may_unmap: false };
        core.origin_io(kind, offset, end.saturating_sub(offset), None).await.0
    }

    async fn flush_origin(&self) -> Result<(), Errno> {
        self.core()?.flush_origin().await
    }

    fn left(&self, pages: u64) {
        if let Ok(core) = self.core() {
            core.stats.add(|c| c.evictions += pages);
        }
    }

    async fn rest(&self) {
        self.exec.sleep(REST).await;
    }

    fn has_tasks(&self) -> bool {
        true
    }

    async fn changed(&self, seen: u64) {
        if self.changes.get() != seen {
            return;
        }
        let signal = Rc::new(Signal::default());
        self.waiting.borrow_mut().push(Rc::clone(&signal));
        signal.wait(&self.exec).await;
    }

    fn changes(&self) -> u64 {
        self.changes.get()
    }

    fn notify(&self) {
        self.changes.set(self.changes.get() + 1);
        self.waiting.take().iter().for_each(|signal| signal.set(&self.exec));
    }

    fn me(&self) -> u64 {
        1
    }

    fn is_gone(&self, _: u64) -> bool {
        false
    }
}
