// SPDX-License-Identifier: MIT OR Apache-2.0
//! Operations on one attached flash device. Every operation on flash goes through this file.
//!
//! An operation ends with the device's answer, or when its time limit expires; then its buffer and its guards stay with it
//! until the device has answered. Errors and overdue operations lower the device's health; the owner decides the
//! consequence, which depends on whether flash holds dirty data.

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::rc::{Rc, Weak};

use larder_policy::balance::{Load, Meter};

use super::attached::Attached;
use super::guards::{Guards, InFlight};
use super::ram::Ram;
use super::retries::Retries;
use super::sums::Sums;
use crate::buf::Buf;
use crate::config::{Contents, Limits, LimitsInUse};
use crate::event::{Event, Events};
use crate::exec::{DevId, Ended, Exec, IoKind, Nanos, SECOND};
use crate::mutant;
use crate::request::Errno;
use crate::stats::Stats;

/// Handles the failure of a flash device.
pub(crate) trait Owner {
    /// The device failed too often, does not answer, or its metadata cannot be written.
    fn failed(&self, device: &Rc<Attached>, why: String);
}

/// The kind of data of an operation.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// Cached data, or pages of a log: after too many errors a device with copies has failed.
    Data,
    /// Metadata and flushes: the caller handles errors.
    Metadata,
}

/// One operation.
pub(crate) struct FlashOp {
    pub role: Role,
    pub kind: IoKind,
    /// First byte on the device.
    pub offset: u64,
    pub len: u64,
    pub buf: Option<Buf>,
    /// First byte within the buffer.
    pub at: usize,
    /// Place on the volume of the first byte, which its checksum includes; 0 for what has no checksum.
    pub of: u64,
}

impl FlashOp {
    /// A flush.
    pub(crate) fn flush() -> Self {
        let (role, kind) = (Role::Metadata, IoKind::Flush);
        Self { role, kind, offset: 0, len: 0, buf: None, at: 0, of: 0 }
    }

    /// Reads into all of a buffer, or writes all of it.
    pub(crate) fn whole(role: Role, kind: IoKind, offset: u64, buf: Buf) -> Self {
        Self { role, kind, offset, len: buf.len() as u64, buf: Some(buf), at: 0, of: 0 }
    }

    /// Reads into all of a buffer, or writes all of it: pages of a volume, the first byte of which is at `of`.
    pub(crate) fn data(kind: IoKind, (offset, of): (u64, u64), buf: Buf) -> Self {
        Self { of, ..Self::whole(Role::Data, kind, offset, buf) }
    }
}

/// The failure of an operation.
#[derive(Debug)]
pub(crate) enum FlashError {
    /// The device returned an error, or is closed; with the buffer.
    Failed(Errno, Option<Buf>),
    /// The time limit expired; the buffer stays with the operation.
    Overdue,
    /// The device answered with other bytes than it was given, as far as that is known; with them.
    Mismatch(Mismatch, Buf),
}

/// What it means that bytes do not match their checksum.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Mismatch {
    /// These pages of the read are wrong, the first one being 0.
    Damage(Vec<u32>),
    /// A change of them was in flight: they may be right.
    Raced,
}

impl FlashError {
    pub(crate) fn errno(&self) -> Errno {
        match self {
            Self::Failed(errno, _) => *errno,
            Self::Overdue => Errno::ETIMEDOUT,
            Self::Mismatch(..) => Errno::EIO,
        }
    }

    /// The buffer, unless it is still in the kernel.
    pub(crate) fn into_buf(self) -> Option<Buf> {
        match self {
            Self::Failed(_, buf) => buf,
            Self::Overdue => None,
            Self::Mismatch(_, buf) => Some(buf),
        }
    }
}

/// An attached flash device.
pub(crate) struct Flash {
    device: Rc<Attached>,
    pub(super) exec: Exec<InFlight>,
    pub(super) stats: Rc<Stats>,
    pub(super) limits: LimitsInUse,
    /// How long failed operations of a device with copies are repeated.
    pub(super) patience: Nanos,
    pub(super) retries: Retries,
    owner: Weak<dyn Owner>,
    /// Measures reads of cached data, if the cache balances them.
    meter: Option<RefCell<Meter>>,
    /// Copies of pages in memory.
    ram: Option<Ram>,
    /// Checksums of cached data.
    sums: Option<Sums>,
}

/// An operation that has begun.
enum Started<'a, P> {
    Plain(P),
    /// Boxed, so that others do not take its memory.
    Verified(Pin<Box<dyn Future<Output = Result<Option<Buf>, FlashError>> + 'a>>),
}

/// The start of an operation that is not measured.
const UNMEASURED: Nanos = Nanos::MAX;

impl Flash {
    /// Attaches a device.
    pub(crate) fn new(
        dev: DevId,
        (exec, stats, events): (&Exec<InFlight>, &Rc<Stats>, &Events),
        limits: &LimitsInUse,
        contents: Contents,
        owner: Weak<dyn Owner>,
    ) -> Self {
        let device = Attached::new(dev, contents, events.clone());
        let (exec, stats) = (exec.clone(), Rc::clone(stats));
        Self {
            device,
            exec,
            stats,
            limits: Rc::clone(limits),
            patience: 0,
            retries: Retries::default(),
            owner,
            meter: None,
            ram: None,
            sums: None,
        }
    }

    /// The same device, whose reads of cached data are measured.
    pub(crate) fn measured(self, measured: bool) -> Self {
        Self { meter: measured.then(RefCell::default), ..self }
    }

    /// The same device, under a tier of RAM of so many bytes.
    pub(crate) fn under_ram(self, bytes: u64) -> Self {
        Self { ram: Ram::new(bytes), ..self }
    }

    /// The same device, whose cached data is verified.
    pub(crate) fn verified_by(self, sums: Option<Sums>) -> Self {
        Self { sums, ..self }
    }

    /// The checksums of its cached data.
    pub(crate) fn sums(&self) -> Option<&Sums> {
        self.sums.as_ref()
    }

    /// The tier of RAM.
    #[inline]
    pub(crate) fn ram(&self) -> Option<&Ram> {
        self.ram.as_ref()
    }

    /// The load of reads of cached data, if they are measured.
    #[inline]
    pub(crate) fn load(&self) -> Option<Load> {
        self.meter.as_ref().map(|meter| meter.borrow().load())
    }

    pub(crate) fn device(&self) -> &Rc<Attached> {
        &self.device
    }

    /// Whether the device is closed: detached or failed.
    pub(crate) fn closed(&self) -> bool {
        self.device.closed()
    }

    /// Whether no operation is overdue. May be true for a closed device: see [`closed`](Self::closed).
    pub(crate) fn usable(&self) -> bool {
        self.device.health.usable()
    }

    /// An operation; the future returns its result. Cached data is verified if the device has checksums.
    #[inline(always)] // as `plain`
    pub(crate) fn io(
        &self,
        op: FlashOp,
        guards: Guards,
    ) -> impl Future<Output = Result<Option<Buf>, FlashError>> {
        let concerns = op.role == Role::Data || op.kind == IoKind::Flush;
        let started = match &self.sums {
            Some(sums) if concerns => Started::Verified(Box::pin(self.verified(sums, op, guards))),
            _ => Started::Plain(self.plain(op, guards)),
        };
        async move {
            match started {
                Started::Plain(plain) => plain.await,
                Started::Verified(verified) => verified.await,
            }
        }
    }

    /// Starts an operation that is not verified.
    ///
    /// Why no `async` function, and why always inline: the arguments and the future would be moved through every calling
    /// future of a hit; each move takes several nanoseconds (`larder bench hit-path`).
    #[inline(always)]
    pub(super) fn plain(
        &self,
        op: FlashOp,
        mut guards: Guards,
    ) -> impl Future<Output = Result<Option<Buf>, FlashError>> {
        let FlashOp { role, kind, offset, len, buf, at, .. } = op;
        self.stats.add(|c| match kind {
            IoKind::Read => c.flash_read_bytes += len,
            IoKind::Write { .. } => c.flash_write_bytes += len,
            _ => {}
        });
        // The mutant releases the guards at a timeout, while the kernel still uses the buffer.
        let forgotten = mutant::is_active("timeout-forgets")
            .then(|| (guards.pin.take(), guards.claim.take(), guards.share.take()));
        let held = InFlight { device: Rc::clone(&self.device), guards };
        // Operations on dirty data have no time limit: only flash can answer.
        let copies = self.device.contents == Contents::Copies;
        let bound = copies.then(|| self.limits.get().flash_timeout);
        let began = self.meter.as_ref().filter(|_| kind == IoKind::Read && role == Role::Data);
        let began = began.map_or(UNMEASURED, |meter| {
            meter.borrow_mut().began();
            self.exec.now()
        });
        let ram = self.ram.as_ref().filter(|_| kind != IoKind::Read);
        let change = ram.map(|ram| (ram, ram.change_begins(offset, len)));
        let io = self.exec.io(self.device.dev, kind, offset, len, buf, at, Some(held), bound);
        async move {
            let ended = io.await;
            drop(forgotten);
            if let Some((ram, change)) = change {
                ram.change_ended(change);
            }
            if began != UNMEASURED
                && let Some(meter) = &self.meter
            {
                let now = self.exec.now();
                let took = matches!(ended, Ended::Done(Ok(()), _)).then_some(now - began);
                meter.borrow_mut().ended(len, took, now);
            }
            match ended {
                Ended::Done(Ok(()), buf) => {
                    self.report_success(kind);
                    Ok(buf)
                }
                Ended::Done(Err(errno), buf) => {
                    self.failed(role, errno, kind);
                    Err(FlashError::Failed(errno, buf))
                }
                Ended::TimedOut => {
                    self.overdue(bound.unwrap_or_default());
                    Err(FlashError::Overdue)
                }
            }
        }
    }

    /// Flushes the device.
    pub(crate) async fn flush(&self) -> Result<(), Errno> {
        self.io(FlashOp::flush(), Guards::default()).await.map(drop).map_err(|e| e.errno())
    }

    fn failed(&self, role: Role, errno: Errno, kind: IoKind) {
        self.stats.add(|c| c.flash_errors += 1);
        let Limits { flash_errors, flash_error_window, .. } = self.limits.get();
        if self.device.contents == Contents::Dirty {
            self.report_failure(kind, errno);
        } else if role == Role::Data
            && self.device.health.failed(errno, self.exec.now(), flash_errors, flash_error_window)
        {
            let what = if kind == IoKind::Read { "reads" } else { "writes" };
            self.fail(format!("{what} fail: {errno}"));
        }
    }

    /// Reports the device to its owner as failed.
    pub(crate) fn fail(&self, why: String) {
        if let Some(owner) = self.owner.upgrade() {
            owner.failed(&self.device, why);
        }
    }

    /// An operation has no answer after this time.
    fn overdue(&self, after: Nanos) {
        self.stats.add(|c| c.flash_timeouts += 1);
        let device = &self.device;
        if mutant::is_active("timeout-forgets") || !device.health.overdue() || device.closed() {
            return;
        }
        device.emit(Event::FlashSuspended { dev: device.dev });
        self.exec.spawn(watch_silence(
            self.exec.clone(),
            Rc::downgrade(device),
            Weak::clone(&self.owner),
            (device.health.silence(), self.exec.now() - after),
            Rc::clone(&self.limits),
        ));
    }
}

/// Fails the device if it does not answer any overdue operation in time.
async fn watch_silence(
    exec: Exec<InFlight>,
    device: Weak<Attached>,
    owner: Weak<dyn Owner>,
    (silence, began): (Option<u64>, Nanos),
    limits: LimitsInUse,
) {
    // The limit may change meanwhile.
    while let left @ 1.. = (began + limits.get().flash_dead_after).saturating_sub(exec.now()) {
        exec.sleep(left.min(SECOND)).await;
    }
    let (Some(device), Some(owner)) = (device.upgrade(), owner.upgrade()) else { return };
    if device.health.silence().is_some_and(|now| Some(now) == silence) {
        let seconds = (exec.now() - began) as f64 / 1e9;
        owner.failed(&device, format!("an operation has no answer after {seconds} seconds"));
    }
}
