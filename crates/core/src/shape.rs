// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sizes of a volume, and the distribution of units and slots over its shards.
//!
//! A *stripe* is a run of consecutive units that one shard owns; stripes go to the shards in turn. A piece of a request lies
//! in one stripe, so one shard serves it, unit by unit (`runs.rs`). A stripe is 1 MiB or one unit, whichever is larger: a shard
//! then serves most requests whole, and their parts merge on the origin (`merge.rs`); a sequential stream is still spread over
//! the shards. With a journal and several shards a stripe is always one unit: metadata on flash contains a shard's own
//! numbers of units, and a flash that was formatted earlier must keep them.

use std::ops::Range;

use crate::buf::PAGE;
use crate::pages::{self, Pages};
use crate::request::{MAX_PIECE_BYTES, Piece, Request, pieces};

/// Sizes of a volume, and the number of this shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Bytes of the origin, a multiple of 512.
    pub origin_bytes: u64,
    /// Bytes of a unit, a power of two.
    pub unit_bytes: u64,
    /// Shards of the volume.
    pub shards: u32,
    /// This shard, from 0.
    pub shard: u32,
    /// Units of a stripe.
    pub stripe_units: u32,
}

/// A request's place on the volume.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    /// The shard's own number of the unit.
    pub unit: u32,
    /// First byte within the unit.
    pub within: u64,
    /// First byte on the volume.
    pub offset: u64,
    pub len: u64,
    pub pages: Pages,
}

impl Place {
    /// First byte on the volume, and bytes.
    pub(crate) fn range(&self) -> (u64, u64) {
        (self.offset, self.len)
    }
}

impl Shape {
    /// Shard 0 of a volume with `shards` shards and stripes of one unit.
    #[must_use]
    pub const fn new(origin_bytes: u64, unit_bytes: u64, shards: u32) -> Self {
        Self { origin_bytes, unit_bytes, shards, shard: 0, stripe_units: 1 }
    }

    /// Another shard of the same volume.
    #[must_use]
    pub const fn of_shard(self, shard: u32) -> Self {
        Self { shard, ..self }
    }

    /// The same shard when the volume had another size.
    #[must_use]
    pub const fn of_origin(self, origin_bytes: u64) -> Self {
        Self { origin_bytes, ..self }
    }

    /// The same volume with stripes of `stripe_units` units.
    #[must_use]
    pub const fn striped(self, stripe_units: u32) -> Self {
        Self { stripe_units, ..self }
    }

    /// The same volume with stripes of at least [`MAX_PIECE_BYTES`].
    #[must_use]
    pub const fn wide(self) -> Self {
        let units = MAX_PIECE_BYTES / self.unit_bytes;
        self.striped(if units > 1 { units as u32 } else { 1 })
    }

    /// Bytes of a stripe.
    #[must_use]
    pub fn stripe_bytes(&self) -> u64 {
        self.unit_bytes * u64::from(self.stripe_units)
    }

    /// The shard that owns the byte at an offset.
    #[must_use]
    pub fn shard_at(&self, offset: u64) -> u32 {
        (offset / self.stripe_bytes() % u64::from(self.shards)) as u32
    }

    /// Cuts a request's range into pieces, each of which lies in one stripe.
    pub fn pieces(&self, offset: u64, len: u64) -> impl Iterator<Item = Piece> + use<> {
        pieces(offset, len, self.stripe_bytes())
    }

    /// The number of [`pieces`](Self::pieces) of a request that is not empty, without a loop. Stripes are a power of two, or
    /// whole pieces.
    #[must_use]
    pub fn count(&self, offset: u64, len: u64) -> u64 {
        let step = self.stripe_bytes().min(MAX_PIECE_BYTES);
        debug_assert!(len > 0 && MAX_PIECE_BYTES.is_multiple_of(step));
        (offset + len - 1) / step - offset / step + 1
    }

    /// Units that this shard owns.
    #[must_use]
    pub fn units(&self) -> u64 {
        let (stripe, shards) = (u64::from(self.stripe_units), u64::from(self.shards));
        let units = self.origin_bytes.div_ceil(self.unit_bytes);
        let own = (units / stripe).saturating_sub(u64::from(self.shard)).div_ceil(shards);
        let last_is_own = units / stripe % shards == u64::from(self.shard);
        own * stripe + if last_is_own { units % stripe } else { 0 }
    }

    /// This shard's slots, of `total` on the device.
    #[must_use]
    pub fn slots_of(&self, total: u64) -> u32 {
        let own = total.saturating_sub(u64::from(self.shard)).div_ceil(u64::from(self.shards));
        own.min(self.units()) as u32
    }

    /// Pages of the volume; the last may be short.
    #[must_use]
    pub const fn pages(&self) -> u64 {
        self.origin_bytes.div_ceil(PAGE as u64)
    }

    /// Pages in a unit.
    #[must_use]
    pub fn pages_per_unit(&self) -> u32 {
        (self.unit_bytes / PAGE as u64) as u32
    }

    /// The shard's own numbers of its units in a range that begins at a stripe, up to the end of the last stripe.
    pub(crate) fn units_in(&self, bytes: &Range<u64>) -> Range<u32> {
        let (shards, shard) = (u64::from(self.shards), u64::from(self.shard));
        let own = |stripes: u64| stripes.saturating_sub(shard).div_ceil(shards);
        let first = own(bytes.start / self.stripe_bytes()) * u64::from(self.stripe_units);
        let end = own(bytes.end.div_ceil(self.stripe_bytes())) * u64::from(self.stripe_units);
        first as u32..end.min(self.units()) as u32
    }

    /// The shard's own numbers of its units that a range of bytes touches, in their order.
    pub(crate) fn units_touching(&self, bytes: &Range<u64>) -> impl Iterator<Item = u32> + use<> {
        let stripe = self.stripe_bytes();
        let (bytes, shape) = (bytes.clone(), *self);
        let whole = bytes.start / stripe * stripe..bytes.end;
        self.units_in(&whole).filter(move |unit| {
            let at = shape.unit_offset(*unit);
            at < bytes.end && at + shape.unit_bytes > bytes.start
        })
    }

    /// First byte on the volume of the shard's own unit number.
    #[must_use]
    pub fn unit_offset(&self, own: u32) -> u64 {
        let (own, stripe) = (u64::from(own), u64::from(self.stripe_units));
        let stripes = own / stripe * u64::from(self.shards) + u64::from(self.shard);
        (stripes * stripe + own % stripe) * self.unit_bytes
    }

    /// The shard's own number of the unit at an offset that it owns.
    pub(crate) fn own_unit(&self, offset: u64) -> u32 {
        debug_assert_eq!(self.shard_at(offset), self.shard);
        let (unit, stripe) = (offset / self.unit_bytes, u64::from(self.stripe_units));
        (unit / stripe / u64::from(self.shards) * stripe + unit % stripe) as u32
    }

    /// Pages of the unit within the volume: the last unit may be short.
    #[must_use]
    pub fn pages_of(&self, own: u32) -> u32 {
        let bytes = self.origin_bytes.saturating_sub(self.unit_offset(own)).min(self.unit_bytes);
        bytes.div_ceil(PAGE as u64) as u32
    }

    /// The place of a request that lies in one unit of this shard.
    pub(crate) fn place(&self, request: &Request) -> Place {
        let within = request.offset % self.unit_bytes;
        debug_assert!(within + request.len <= self.unit_bytes && request.len > 0);
        Place {
            unit: self.own_unit(request.offset),
            within,
            offset: request.offset,
            len: request.len,
            pages: pages::touched(within, request.len),
        }
    }

    /// The most units a shard may own: the map has 4-byte entries.
    pub const MOST_UNITS: u64 = u32::MAX as u64 - 3;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_unit_has_one_owner_and_one_number_there() {
        for (units, shards, stripe) in [(1, 1, 1), (19, 2, 1), (19, 3, 4), (24, 2, 4), (7, 4, 3)] {
            let shape = Shape::new(units * 4096 - 512, 4096, shards).striped(stripe);
            let mut found = vec![0; units as usize];
            for shard in (0..shards).map(|shard| shape.of_shard(shard)) {
                for own in 0..shard.units() as u32 {
                    let offset = shard.unit_offset(own);
                    assert_eq!(
                        (shape.shard_at(offset), shard.own_unit(offset)),
                        (shard.shard, own)
                    );
                    found[(offset / 4096) as usize] += 1;
                }
            }
            assert_eq!(found, vec![1; units as usize], "{units} units, {shards} shards, {stripe}");
        }
    }

    #[test]
    fn a_range_of_stripes_has_the_units_that_lie_in_it() {
        for (shards, stripe) in [(1, 1), (2, 1), (3, 4)] {
            let shape = Shape::new(40 * 4096, 4096, shards).striped(stripe);
            for (from, to) in [(0_u64, 40_u64), (0, 8), (8, 20), (16, 37), (36, 40)] {
                for shard in (0..shards).map(|shard| shape.of_shard(shard)) {
                    let end = to.next_multiple_of(u64::from(stripe)).min(40);
                    let bytes = from * 4096..to * 4096;
                    let lies = |own: &u32| (from..end).contains(&(shard.unit_offset(*own) / 4096));
                    let wanted: Vec<u32> = (0..shard.units() as u32).filter(lies).collect();
                    assert_eq!(shard.units_in(&bytes).collect::<Vec<_>>(), wanted, "{from} {to}");
                }
            }
        }
    }

    #[test]
    fn the_number_of_pieces_is_that_of_the_loop() {
        let narrow = |unit_bytes| Shape::new(1 << 30, unit_bytes, 2);
        for shape in [narrow(4096), narrow(64 << 10), narrow(64 << 10).wide(), narrow(8 << 20)] {
            for offset in [0, 512, 65_024, (1 << 20) - 512, (8 << 20) - 4096, 3 << 20] {
                for len in [512, 4096, 4608, 64 << 10, 1 << 20, (9 << 20) + 512] {
                    let pieces = shape.pieces(offset, len).count() as u64;
                    assert_eq!(shape.count(offset, len), pieces, "{shape:?} {offset} {len}");
                }
            }
        }
    }
}
