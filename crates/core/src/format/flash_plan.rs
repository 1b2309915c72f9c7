// SPDX-License-Identifier: MIT OR Apache-2.0
//! Slots and metadata on a flash device, for the engine.

use super::label::Keeps;
use crate::exec::DevId;
use crate::shape::Shape;

/// A flash device of slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlashPlan {
    /// The driver's number of the device.
    pub dev: DevId,
    /// First byte of slot 0.
    pub base: u64,
    /// Slots in use, over all shards.
    pub slots: u64,
    /// Slots that metadata and checksums have room for: as many, or more.
    pub room: u64,
    /// Offsets and lengths of operations are multiples of this many bytes.
    pub block_bytes: u32,
    /// The place of the metadata; `None` in a volatile cache.
    pub journal: Option<MetadataPlan>,
    /// The place of the checksums of cached pages, if it has any.
    pub sums: Option<SumsPlan>,
}

impl FlashPlan {
    /// The volume that the metadata belongs to; 0 without.
    pub(crate) fn volume(&self) -> u64 {
        self.journal.map_or(0, |journal| journal.volume)
    }

    /// The shape that a shard had when flash was formatted: metadata and checksums have room for its units.
    pub(crate) fn formatted(&self, shape: &Shape) -> Shape {
        shape.of_origin(self.journal.map_or(shape.origin_bytes, |journal| journal.origin_bytes))
    }
}

/// The place of the metadata of all shards on a flash device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetadataPlan {
    /// Its first byte.
    pub base: u64,
    /// The volume that it belongs to; a new one with every formatting.
    pub volume: u64,
    /// Bytes of the origin when flash was formatted. It may have grown since.
    pub origin_bytes: u64,
    /// Bytes of one shard's log: there are two, with two copies each.
    pub log_bytes: u64,
    /// Its optional content.
    pub keeps: Keeps,
}

/// The place of the checksums of all shards on a flash device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SumsPlan {
    /// Its first byte.
    pub base: u64,
    /// The volume that they belong to; a new one with every formatting.
    pub volume: u64,
    /// Copies of each block of them.
    pub copies: u32,
}
