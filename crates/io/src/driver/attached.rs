// SPDX-License-Identifier: MIT OR Apache-2.0
//! A device as a driver has attached it.
//!
//! Invariants: a driver joins the model and the connections of a device once. It leaves both after the device is detached
//! and the driver's last operation on it has ended.

use crate::clock::exact_timers;
use crate::device::Device;
use crate::waker::Waker;

/// An attached device; the entry exists until its last operation has ended.
pub(super) struct Attached {
    pub(super) device: Device,
    pub(super) in_flight: u32,
    pub(super) detached: bool,
    /// This driver's number in the device's model.
    pub(super) member: u32,
    /// This driver's number in the NBD device.
    pub(super) remote: u32,
    /// Failures of flushes that this driver has reported.
    pub(super) failures: u64,
}

impl Attached {
    /// Attaches a device. Its faults, model and connections wake the driver through `waker`.
    pub(super) fn new(device: Device, waker: &Waker) -> Self {
        if let Some(fault) = device.fault() {
            fault.subscribe(waker.clone());
        }
        let member = device.slow().map_or(0, |slow| {
            exact_timers();
            slow.join(waker.clone())
        });
        let remote = device.nbd().map_or(0, |nbd| nbd.join(waker.clone()));
        let failures = device.flushes().failures();
        Self { device, in_flight: 0, detached: false, member, remote, failures }
    }

    /// Whether the device is detached and its last operation has ended.
    pub(super) fn is_over(&self) -> bool {
        self.detached && self.in_flight == 0
    }

    pub(super) fn leave(&self) {
        if let Some(slow) = self.device.slow() {
            slow.leave(self.member);
        }
        if let Some(nbd) = self.device.nbd() {
            nbd.leave(self.remote);
        }
    }
}
