// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sizes of a volume, and how units and slots are shared out among its shards.

use crate::buf::PAGE;
use crate::pages::{self, Pages};
use crate::request::Request;

/// Sizes of a volume, and which of its shards this one is.
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
    /// Units that this shard owns.
    #[must_use]
    pub fn units(&self) -> u64 {
        let units = self.origin_bytes.div_ceil(self.unit_bytes);
        units.saturating_sub(u64::from(self.shard)).div_ceil(u64::from(self.shards))
    }

    /// This shard's slots, of `total` on the device.
    #[must_use]
    pub fn slots_of(&self, total: u64) -> u32 {
        let own = total.saturating_sub(u64::from(self.shard)).div_ceil(u64::from(self.shards));
        own.min(self.units()) as u32
    }

    /// Pages in a unit.
    #[must_use]
    pub fn pages_per_unit(&self) -> u32 {
        (self.unit_bytes / PAGE as u64) as u32
    }

    /// First byte on the volume of the shard's own unit number.
    #[must_use]
    pub fn unit_offset(&self, own: u32) -> u64 {
        (u64::from(own) * u64::from(self.shards) + u64::from(self.shard)) * self.unit_bytes
    }

    /// Pages of the unit that exist: fewer than usual at the end of the volume.
    #[must_use]
    pub fn pages_of(&self, own: u32) -> u32 {
        let bytes = self.origin_bytes.saturating_sub(self.unit_offset(own)).min(self.unit_bytes);
        bytes.div_ceil(PAGE as u64) as u32
    }

    /// Where a request of this shard lies, in all the forms that the paths need.
    pub(crate) fn place(&self, request: &Request) -> Place {
        let shards = u64::from(self.shards);
        let unit = request.offset / self.unit_bytes;
        let within = request.offset % self.unit_bytes;
        debug_assert!(within + request.len <= self.unit_bytes && request.len > 0);
        debug_assert_eq!(unit % shards, u64::from(self.shard));
        Place {
            unit: (unit / shards) as u32,
            within,
            offset: request.offset,
            len: request.len,
            pages: pages::touched(within, request.len),
        }
    }

    /// The most units a shard may own: the map has 4-byte entries.
    pub const MOST_UNITS: u64 = u32::MAX as u64 - 3;
}
