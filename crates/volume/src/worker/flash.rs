// SPDX-License-Identifier: MIT OR Apache-2.0
//! A worker's part in attaching and failing flash devices, and in flushes of the origin for other workers.
//!
//! Invariant: a worker never attaches a device that failed, whichever of the two messages arrives first.

use std::ops::Range;

use larder_core::desk::Desk;
use larder_core::event::Event;
use larder_core::exec::DevId;
use larder_core::format::FlashPlan;
use larder_core::journal::recover::Recovered;
use larder_core::pagelog::{Geometry, Seat};
use larder_core::request::{Errno, Kind};
use larder_core::volumes::VolumeSet;
use larder_io::Device;

use super::{Caller, FLUSH_WORKER, Opened, Report, WORKER_SHIFT, Worker};
use crate::recent::Asked;

impl Worker {
    /// Reports doubt about the origin, and failed flushes of flash by any worker, to the shard.
    pub(super) fn follow_doubt(&mut self) {
        for (volume, part) in (0..).zip(self.parts.iter()) {
            if part.doubt.is_raised() {
                self.shard.distrust_origin(volume);
            }
        }
        while let Some(dev) = self.driver.failed_flush() {
            self.shard.flash_flush_failed(dev);
        }
    }

    /// Reports an event of the shard to the volume.
    pub(super) fn report(&self, event: Event) {
        if let Event::OriginFlushFailed { volume, .. } = event {
            self.parts[volume as usize].doubt.flush_failed();
        }
        // The volume may be dropped already at the end.
        let _ = self.reports.send(Report { worker: self.index, event });
    }

    /// Begins to cache on a device, unless it failed meanwhile. Returns whether the shard refuses it: its metadata
    /// contradicts itself and may describe dirty data.
    pub fn attach(
        &mut self,
        flash: FlashPlan,
        device: Device,
        (recovered, stale): (Option<&Recovered>, VolumeSet),
    ) -> bool {
        let dev = flash.dev;
        if !self.takes(dev, device) {
            return false;
        }
        self.shard.attach_without(flash, recovered, stale);
        !self.shard.uses(dev)
    }

    /// Begins to open a page log on a device, unless it failed meanwhile.
    pub fn attach_log(
        &mut self,
        dev: DevId,
        (place, ignored): ((Geometry, Seat), Vec<Range<u64>>),
        device: Device,
    ) {
        if self.takes(dev, device) {
            self.shard.attach_log(dev, place, ignored);
        }
    }

    /// Takes a device, unless it failed meanwhile.
    fn takes(&mut self, dev: DevId, device: Device) -> bool {
        if self.dead.contains(&dev) {
            let event = Event::FlashReleased { dev };
            drop(self.reports.send(Report { worker: self.index, event }));
            return false;
        }
        self.driver.attach(dev, device);
        true
    }

    /// A device failed. If it has a journal, the state file durably marks it as out of use. It is not used again.
    pub fn give_up(&mut self, dev: DevId) {
        self.dead.push(dev);
        if self.shard.uses(dev) {
            self.shard.detach();
        }
        self.shard.fenced();
    }

    /// Flushes the origin for another worker, through the shard that remembers a failed flush.
    pub fn flush_origin(
        &mut self,
        volume: u32,
        done: impl FnOnce(Result<(), Errno>) + Send + 'static,
    ) {
        debug_assert_eq!(self.index, FLUSH_WORKER);
        let caller = Caller::Call(Box::new(|result| done(result.map(drop))));
        let asked = Asked { at: self.clock, kind: Kind::Flush, offset: 0, len: 0 };
        let number = self.desk.open(Opened { volume, asked, caller }, Kind::Flush, 0, 1);
        let tag = Desk::<Caller>::tag(number, 0) | u64::from(self.index) << WORKER_SHIFT;
        self.shard.flush_origin(volume, tag);
    }
}
