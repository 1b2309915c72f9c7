// SPDX-License-Identifier: MIT OR Apache-2.0
//! Operations that are repeated while they fail: nothing else has the data of a device that may be dirty.
//!
//! The owner sets how long ([`Flash::patient`]); without it an operation has one attempt. Each wait is twice as long as the
//! one before, up to an eighth of the whole time and half a second. That a device that may be dirty fails several times in a
//! row is reported, and that it works again.

use std::cell::Cell;

use super::device::{Flash, FlashError, FlashOp, Role};
use super::guards::Guards;
use crate::bad_reads::BadReads;
use crate::buf::{Buf, PAGE};
use crate::config::Contents;
use crate::event::Event;
use crate::exec::{IoKind, MILLISECOND, Nanos};
use crate::request::Errno;

/// Delay before the first retry.
const REST: Nanos = 10 * MILLISECOND;
const LONGEST_REST: Nanos = 500 * MILLISECOND;
/// Consecutive failed operations after which the operator learns of them.
const REPORTED: u32 = 3;

/// Why data cannot be read.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Unreadable {
    /// The device fails.
    Device(Errno),
    /// The device works, but not at this place.
    Place(Errno),
}

impl Unreadable {
    pub(crate) fn errno(self) -> Errno {
        let (Self::Device(errno) | Self::Place(errno)) = self;
        errno
    }
}

/// How long operations of a device are repeated, and how many failed.
#[derive(Default)]
pub(super) struct Retries {
    patience: Nanos,
    hurries: Cell<bool>,
    /// Consecutive failed reads, and consecutive failed other operations.
    failures: [Cell<u32>; 2],
}

impl Retries {
    pub(super) fn lasting(patience: Nanos) -> Self {
        Self { patience, ..Self::default() }
    }

    fn fails(&self) -> bool {
        self.failures.iter().any(|failures| failures.get() >= REPORTED)
    }
}

impl Flash {
    /// The same device, whose failed operations are repeated for this long.
    pub(crate) fn patient(mut self, patience: Nanos) -> Self {
        self.retries = Retries::lasting(patience);
        self
    }

    /// Operations that fail are not repeated from now on.
    pub(crate) fn hurry(&self) {
        self.retries.hurries.set(true);
    }

    /// Whether an operation that failed this many times is not repeated.
    pub(crate) fn gives_up(&self, failures: u64) -> bool {
        let patience = if self.retries.hurries.get() { 0 } else { self.retries.patience };
        failures.saturating_mul(LONGEST_REST) >= patience
            && (1..=failures).map(|n| self.delay(n)).sum::<Nanos>() >= patience
    }

    /// Waits before a retry, after this number of failures.
    pub(crate) async fn rest(&self, failures: u64) {
        self.exec.sleep(self.delay(failures)).await;
    }

    fn delay(&self, failures: u64) -> Nanos {
        let most = (self.retries.patience / 8).clamp(REST, LONGEST_REST);
        (REST << failures.saturating_sub(1).min(16)).min(most)
    }

    /// Repeats an operation until it succeeds, the time is over, or the device is closed.
    pub(crate) async fn insist(
        &self,
        op: FlashOp,
        guards: impl Fn() -> Guards,
    ) -> Result<Option<Buf>, FlashError> {
        let FlashOp { role, kind, offset, len, mut buf, at } = op;
        let needs_buf = buf.is_some();
        let mut failures = 0;
        loop {
            let op = FlashOp { role, kind, offset, len, buf, at };
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

    /// Repeats a read of cached data; a place that cannot be read while the rest of the device can is given up soon.
    pub(crate) async fn insist_read(
        &self,
        offset: u64,
        mut buf: Buf,
        guards: impl Fn() -> Guards,
    ) -> Result<Buf, Unreadable> {
        let mut bad = BadReads::default();
        loop {
            let len = buf.len();
            let op = FlashOp::whole(Role::Data, IoKind::Read, offset, buf);
            let errno = match self.io(op, guards()).await {
                Ok(found) => return found.ok_or(Unreadable::Device(Errno::EIO)),
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
        let (device, before) = (self.device(), self.retries.fails());
        let failures = &self.retries.failures[usize::from(kind != IoKind::Read)];
        failures.set(failures.get().saturating_add(1));
        if !before && self.retries.fails() && !device.closed() {
            device.emit(Event::FlashErrors { dev: device.dev, why: errno.to_string() });
        }
    }

    /// Reports that operations succeed again.
    #[inline]
    pub(super) fn report_success(&self, kind: IoKind) {
        let failures = &self.retries.failures[usize::from(kind != IoKind::Read)];
        if failures.get() == 0 {
            return;
        }
        let (device, before) = (self.device(), self.retries.fails());
        failures.set(0);
        if before && !self.retries.fails() && !device.closed() && device.contents == Contents::Dirty
        {
            device.emit(Event::FlashWorks { dev: device.dev });
        }
    }
}
