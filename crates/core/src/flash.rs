// SPDX-License-Identifier: MIT OR Apache-2.0
//! Operations on flash: bounded in time, and never trusted more than they deserve.
//!
//! A caller gets `Ok(buf)` or `Err`: `Err(Some(buf))` when the memory came back, `Err(None)` when
//! it is still in the kernel. What an operation holds ([`Hold`]: the slot's pin, the claim on its
//! pages, the kept bytes) stays with it until the device has really answered, however late
//! (design rule 5).

use std::cell::Cell;
use std::rc::{Rc, Weak};

use crate::attached::Attached;
use crate::buf::Buf;
use crate::cache::{Cache, SlotPin};
use crate::claims::Claim;
use crate::event::Event;
use crate::exec::{Ended, Guard, IoKind, Nanos};
use crate::mutant;
use crate::request::Errno;
use crate::shard::Core;

/// What a flash operation holds until the device has answered.
pub(crate) struct Hold {
    device: Rc<Attached>,
    /// Its slot stays as it is.
    _pin: Option<SlotPin>,
    _claim: Option<Rc<Claim>>,
    _kept: Option<Kept>,
    _region: Option<Rc<()>>,
    /// How a device answered that was overdue.
    answer: Option<Answer>,
}

/// How a device answered that was overdue, once it has.
pub(crate) type Answer = Rc<Cell<Option<Result<(), Errno>>>>;

impl Hold {
    /// What an operation on the device holds.
    pub(crate) fn of_device(device: &Rc<Attached>) -> Self {
        let device = Rc::clone(device);
        Self { device, _pin: None, _claim: None, _kept: None, _region: None, answer: None }
    }

    /// As above, for whoever waits for the answer although it is late.
    pub(crate) fn with_answer(device: &Rc<Attached>) -> (Self, Answer) {
        let answer = Answer::default();
        (Self { answer: Some(Rc::clone(&answer)), ..Self::of_device(device) }, answer)
    }

    /// What an operation on a slot holds.
    pub(crate) fn of_pin(pin: SlotPin) -> Self {
        let device = Rc::clone(&pin.cache.device);
        Self { _pin: Some(pin), ..Self::of_device(&device) }
    }
}

impl Guard for Hold {
    fn late(&self, result: Result<(), Errno>) {
        if let Some(answer) = &self.answer {
            answer.set(Some(result));
        }
        if self.device.health.answered() && !self.device.closed() {
            self.device.tell(Event::FlashResumed { dev: self.device.dev });
        }
    }
}

/// Bytes of client data that may be kept for flash writes after the client was answered.
#[derive(Clone)]
pub(crate) struct WriteThroughPool(Rc<Cell<u64>>);

/// Some of the pool's bytes, given back when dropped.
pub(crate) struct Kept {
    pool: WriteThroughPool,
    bytes: u64,
}

impl WriteThroughPool {
    pub(crate) fn new(bytes: u64) -> Self {
        Self(Rc::new(Cell::new(bytes)))
    }

    pub(crate) fn take(&self, bytes: u64) -> Option<Kept> {
        self.0.set(self.0.get().checked_sub(bytes)?);
        Some(Kept { pool: self.clone(), bytes })
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.pool.0.set(self.pool.0.get() + self.bytes);
    }
}

impl Core {
    /// What an operation on the metadata holds; `region`: one that is being made is still written.
    pub(crate) fn hold(&self, cache: &Rc<Cache>, region: Option<Rc<()>>) -> Hold {
        Hold { _region: region, ..Hold::of_device(&cache.device) }
    }

    pub(crate) async fn flash_read(
        &self,
        pin: SlotPin,
        within: u64,
        len: u64,
        buf: Buf,
    ) -> Result<Buf, Option<Buf>> {
        self.stats.add(|c| c.flash_read_bytes += len);
        self.flash_io(pin, IoKind::Read, within, len, buf, 0, None, None).await
    }

    #[allow(clippy::too_many_arguments)] // one operation, spelled out
    pub(crate) async fn flash_write(
        &self,
        pin: SlotPin,
        within: u64,
        len: u64,
        buf: Buf,
        at: usize,
        claim: Rc<Claim>,
        kept: Option<Kept>,
    ) -> Result<Buf, Option<Buf>> {
        self.stats.add(|c| c.flash_write_bytes += len);
        if let Some(journal) = pin.cache.journal()
            && journal.settled(pin.slot(), &self.exec).await.is_err()
        {
            return Err(Some(buf));
        }
        let kind = IoKind::Write { fua: false };
        self.flash_io(pin, kind, within, len, buf, at, Some(claim), kept).await
    }

    #[allow(clippy::too_many_arguments)]
    async fn flash_io(
        &self,
        pin: SlotPin,
        kind: IoKind,
        within: u64,
        len: u64,
        buf: Buf,
        at: usize,
        claim: Option<Rc<Claim>>,
        kept: Option<Kept>,
    ) -> Result<Buf, Option<Buf>> {
        let cache = Rc::clone(&pin.cache);
        if cache.closed() {
            return Err(Some(buf));
        }
        let (dev, offset) = (cache.flash.dev, pin.flash_offset(within));
        let mut hold = Hold { _claim: claim, _kept: kept, ..Hold::of_pin(pin) };
        // The mutant forgets at a timeout what the kernel still uses.
        let forgotten = mutant::is_active("timeout-forgets")
            .then(|| (hold._pin.take(), hold._claim.take(), hold._kept.take()));
        let bound = self.flash_bound();
        let io = self.exec.io(dev, kind, offset, len, Some(buf), at, Some(hold), bound);
        let ended = io.await;
        drop(forgotten);
        match ended {
            Ended::Done(Ok(()), Some(buf)) => Ok(buf),
            Ended::Done(Ok(()), None) => Err(None),
            Ended::Done(Err(errno), buf) => {
                self.flash_failed(&cache.device, errno, kind);
                Err(buf)
            }
            Ended::TimedOut => {
                self.flash_overdue(&cache.device);
                Err(None)
            }
        }
    }

    pub(crate) fn flash_failed(&self, device: &Rc<Attached>, errno: Errno, kind: IoKind) {
        self.stats.add(|c| c.flash_errors += 1);
        let (most, window) = (self.limits.flash_errors, self.limits.flash_error_window);
        if device.health.failed(errno, self.exec.now(), most, window) {
            let what = if kind == IoKind::Read { "reads" } else { "writes" };
            self.give_up(device, format!("{what} fail: {errno}"));
        }
    }

    /// How long an operation on flash may take: as long as it does where flash alone has the data.
    pub(crate) fn flash_bound(&self) -> Option<Nanos> {
        (!self.choices.write.flash_owns()).then_some(self.limits.flash_timeout)
    }

    pub(crate) fn flash_overdue(&self, device: &Rc<Attached>) {
        self.stats.add(|c| c.flash_timeouts += 1);
        if mutant::is_active("timeout-forgets") || !device.health.overdue() || device.closed() {
            return;
        }
        device.tell(Event::FlashSuspended { dev: device.dev });
        let patience = self.limits.flash_dead_after.saturating_sub(self.limits.flash_timeout);
        let seconds = self.limits.flash_dead_after as f64 / 1e9;
        if let Some(me) = self.me.upgrade() {
            self.exec.spawn(me.watch_silence(
                Rc::downgrade(device),
                device.health.silence(),
                patience,
                seconds,
            ));
        }
    }

    /// Gives the device up when the silence that is going on does not end.
    async fn watch_silence(
        self: Rc<Self>,
        device: Weak<Attached>,
        silence: Option<u64>,
        patience: u64,
        seconds: f64,
    ) {
        self.exec.sleep(patience).await;
        let Some(device) = device.upgrade() else { return };
        if device.health.silence().is_some_and(|now| Some(now) == silence) {
            self.give_up(&device, format!("an operation is unanswered after {seconds} seconds"));
        }
    }
}
