// SPDX-License-Identifier: MIT OR Apache-2.0
//! Repeats failed operations on a device that may hold dirty data, since no other device has it.
//!
//! If the device may be dirty, retries last for `flash_dead_after`. If it holds copies, the owner sets how long ([`Flash::patient`]);
//! by default an operation has one attempt. The time counts the waits between
//! attempts, not the attempts. Each wait is twice as long as the one before, up to an eighth of the whole time and half a
//! second. That a device that may be dirty fails several times in a row is reported, and that it works again.

use super::device::{Flash, FlashError, FlashOp, Mismatch, Role};
use super::guards::Guards;
use super::retries::Retries;
use crate::bad_reads::BadReads;
use crate::buf::{Buf, PAGE};
use crate::config::Contents;
use crate::event::Event;
use crate::exec::{IoKind, Nanos};
use crate::request::Errno;

/// Why data cannot be read.
#[derive(Debug)]
pub(crate) enum Unreadable {
    /// The device fails.
    Device(Errno),
    /// The device works, but not at this place.
    Place(Errno),
    /// The bytes do not match their checksum.
    Mismatch(Mismatch, Buf),
}

impl Unreadable {
    pub(crate) fn errno(self) -> Errno {
        match self {
            Self::Device(errno) | Self::Place(errno) => errno,
            Self::Mismatch(..) => Errno::EIO,
        }
    }
}

impl Flash {
    /// The same device, whose failed operations are repeated for this long if it holds copies.
    pub(crate) fn patient(mut self, with_copies: Nanos) -> Self {
        self.patience = with_copies;
        self
    }

    /// How long failed operations are repeated.
    fn patience(&self) -> Nanos {
        match self.device().contents {
            Contents::Dirty => self.limits.get().flash_dead_after,
            Contents::Copies => self.patience,
        }
    }

    /// Operations that fail are not repeated from now on.
    pub(crate) fn hurry(&self) {
        self.retries.hurry();
    }

    /// Whether an operation that failed this many times is not repeated.
    pub(crate) fn gives_up(&self, failures: u64) -> bool {
        self.retries.gives_up(failures, self.patience())
    }

    /// Whether its operations fail at the moment.
    pub(crate) fn is_failing(&self) -> bool {
        self.retries.fails()
    }

    /// Waits before a retry, after this number of failures.
    pub(crate) async fn rest(&self, failures: u64) {
        self.exec.sleep(Retries::delay(failures, self.patience())).await;
    }

    /// Repeats an operation until it succeeds, the time is over, or the device is closed.
    pub(crate) async fn insist(
        &self,
        op: FlashOp,
        guards: impl Fn() -> Guards,
    ) -> Result<Option<Buf>, FlashError> {
        let FlashOp { role, kind, offset, len, mut buf, at, of } = op;
        let needs_buf = buf.is_some();
        let mut failures = 0;
        loop {
            let op = FlashOp { role, kind, offset, len, buf, at, of };
            let (errno, back) = match self.io(op, guards()).await {
                Err(FlashError::Failed(errno, back)) => (errno, back),
                ended => return ended,
            };
            failures += 1;
            if self.closed() || self.gives_up(failures) || needs_buf && back.is_none() {
                return Err(FlashError::Failed(errno, back));
            }
            buf = back;
            self.rest(failures).await;
        }
    }

    /// Repeats a read of cached data; a place that cannot be read while the rest of the device can fails soon. `places`: on the
    /// device, and on the volume.
    pub(crate) async fn insist_read(
        &self,
        places: (u64, u64),
        mut buf: Buf,
        guards: impl Fn() -> Guards,
    ) -> Result<Buf, Unreadable> {
        let mut bad = BadReads::default();
        loop {
            let len = buf.len();
            let op = FlashOp::data(IoKind::Read, places, buf);
            let errno = match self.io(op, guards()).await {
                Ok(found) => return found.ok_or(Unreadable::Device(Errno::EIO)),
                Err(FlashError::Mismatch(why, bytes)) => {
                    return Err(Unreadable::Mismatch(why, bytes));
                }
                Err(error) => {
                    let errno = error.errno();
                    buf = error.into_buf().unwrap_or_else(|| Buf::with_len(len));
                    errno
                }
            };
            let failures = bad.failed();
            if self.closed() || self.gives_up(failures) {
                return Err(Unreadable::Device(errno));
            }
            self.rest(failures).await;
            let label = FlashOp::whole(Role::Metadata, IoKind::Read, 0, Buf::with_len(PAGE));
            if !bad.may_pass(self.io(label, Guards::default()).await.is_ok()) {
                return Err(Unreadable::Place(errno));
            }
        }
    }

    /// Reports that operations on a device that may be dirty fail.
    pub(super) fn report_failure(&self, kind: IoKind, errno: Errno) {
        let device = self.device();
        if self.retries.failed(kind) && !device.closed() {
            device.emit(Event::FlashErrors { dev: device.dev, why: errno.to_string() });
        }
    }

    /// Reports that operations succeed again.
    #[inline]
    pub(super) fn report_success(&self, kind: IoKind) {
        let device = self.device();
        if self.retries.succeeded(kind) && !device.closed() && device.contents == Contents::Dirty {
            device.emit(Event::FlashWorks { dev: device.dev });
        }
    }
}
