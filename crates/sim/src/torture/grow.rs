// SPDX-License-Identifier: MIT OR Apache-2.0
//! The origin grows between lives. Flash keeps the places that it got when the origin was smaller.
//!
//! Requests that would reach beyond the end of a life's volume move below it, so that every life has as many.

use larder_core::buf::SECTOR;
use larder_core::shape::Shape;
use larder_core::volumes::Volumes;

use super::grown::any_size;
use super::life::Life;
use super::setup::Setup;

impl Life<'_> {
    /// The origin has more bytes from now on, if flash allows that.
    pub(super) fn grow(&mut self) {
        let Setup { shape, plan, .. } = self.setup;
        if self.origin_bytes == shape.origin_bytes {
            return;
        }
        let least = self.origin_bytes.div_ceil(shape.unit_bytes);
        let bytes = any_size(least, shape, &mut self.rng);
        if bytes > self.origin_bytes && plan.serves(self.origin_bytes, bytes) {
            self.seen.grown += 1;
            self.origin_bytes = bytes;
        }
    }

    /// What the engine serves in this life.
    pub(super) fn space(&self) -> (Shape, Volumes) {
        let Setup { shape, volumes, .. } = self.setup;
        match self.origin_bytes == shape.origin_bytes {
            true => (*shape, volumes.clone()),
            false => (shape.of_origin(self.origin_bytes), Volumes::one(self.origin_bytes)),
        }
    }

    /// Where a request goes in this life.
    pub(super) fn within(&self, offset: u64, len: u64) -> (u64, u64) {
        let len = len.min(self.origin_bytes);
        let room = self.origin_bytes - len;
        (if offset <= room { offset } else { offset % (room + SECTOR as u64) }, len)
    }
}
