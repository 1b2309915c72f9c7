// SPDX-License-Identifier: MIT OR Apache-2.0
//! A flash of a clean mode that failed is attached again once it works, cold: its content is out of use.
//!
//! The device is probed with a read and a write of its label's place after 2 seconds, then more and more rarely. A flash
//! that fails again soon after it returned is probed as rarely as before, so that a device that works only for moments does
//! not cost the clients anything. A detach, an attach or a stop ends it.
//!
//! The device stays open, so that no other program uses it meanwhile. A device that is gone is closed: it may return as
//! another one under its name, and `larder attach` opens that.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use larder_core::format::Wishes;
use larder_core::request::Errno;

use super::cache::{Cache, spawn};
use super::error::VolumeError;
use super::flash::FlashDevice;
use super::lock::lock;
use super::returned::{LONGEST_REST, Returned};

/// How often the thread checks whether the volume has ended.
const TURN: Duration = Duration::from_millis(100);
/// How long a volume may take to leave a flash that has just returned, and is all but empty.
const LEAVE_BOUND: Duration = Duration::from_secs(10);

impl Cache {
    /// Begins to try the device that failed and was released.
    pub(super) fn retry_flash(self: &Arc<Self>) {
        let rest = lock(&self.state).returned.first_rest();
        let volume = Arc::downgrade(self);
        if let Err(error) = spawn("larder-retry", move || retry(&volume, rest)) {
            tracing::warn!("flash is not tried again: {error}");
        }
    }

    /// Closes the device that failed and is tried again; returns whether there was one. The state is `pass-through` then.
    pub(super) fn forget_failed(&self) -> bool {
        let mut state = lock(&self.state);
        let failed = state.failed.is_some();
        if failed {
            state.forgive();
        }
        failed
    }

    /// The device that failed is closed, so that it can be opened again: the caller is about to attach a device.
    pub fn end_retries(&self) {
        let _change = lock(&self.change);
        lock(&self.state).failed = None;
    }

    /// Tries the device once; returns whether to try again.
    fn try_flash(&self, rest: Duration) -> bool {
        let _change = lock(&self.change);
        let failed = lock(&self.state).failed.clone();
        let Some((flash, volume)) = failed.filter(|_| !self.has_stopped()) else { return false };
        let name = flash.device.name().to_owned();
        match flash.is_labelled(volume) {
            Ok(true) => {}
            Ok(false) => {
                tracing::warn!("flash {name} holds other data now, and is not tried again");
                lock(&self.state).failed = None;
                return false;
            }
            Err(error) => return self.is_tried_again(&name, &error),
        }
        // Before: it may fail again at once.
        lock(&self.state).returned = Returned::now(rest);
        // Its label is that of this volume: no other data is overwritten.
        let wishes = Wishes { formats: false, ..flash.wishes };
        let tried =
            flash.probe().and_then(|()| self.attach_locked(FlashDevice { wishes, ..flash }));
        match tried {
            Ok(()) => {
                tracing::info!("flash {name} works again, and is used from cold");
                self.leave_again();
                false
            }
            Err(error) => self.is_tried_again(&name, &error),
        }
    }

    /// The volumes that an operator had taken out of the cache leave the flash that returned.
    fn leave_again(&self) {
        let outside = lock(&self.state).outside.clone();
        for volume in outside {
            let left = self.leave(volume, LEAVE_BOUND);
            if let Err(error) = left.and_then(|()| self.note_use(volume, false)) {
                let name = &self.parts[volume as usize].name;
                tracing::warn!("volume '{name}' is in its cache again, with the flash: {error}");
                lock(&self.state).outside.remove(&volume);
            }
        }
    }

    /// Whether a device is tried again after this error. Not if it is gone: then it is closed.
    fn is_tried_again(&self, name: &str, error: &VolumeError) -> bool {
        let gone = matches!(error, VolumeError::Device { errno: Errno::ENXIO | Errno::ENODEV, .. });
        if gone {
            tracing::warn!("flash {name} is gone, and is not tried again; attach another device");
            lock(&self.state).failed = None;
        } else {
            tracing::debug!("flash {name} is tried again later: {error}");
        }
        !gone
    }
}

fn retry(volume: &Weak<Cache>, mut rest: Duration) {
    loop {
        let until = Instant::now() + rest;
        while Instant::now() < until {
            std::thread::sleep(TURN);
            if volume.upgrade().is_none_or(|volume| volume.has_stopped()) {
                return;
            }
        }
        let Some(volume) = volume.upgrade() else { return };
        if !volume.try_flash(rest) {
            return;
        }
        rest = (2 * rest).min(LONGEST_REST);
    }
}
