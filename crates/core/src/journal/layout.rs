// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where one shard's metadata lies on flash.
//!
//! Two regions, each `header | header again | payload | log | log again`. A payload has one entry per slot: the
//! unit plus one (u32, 0 for none) and a bit per page. The log is a run of blocks, kept twice.
//! The areas of all shards follow each other; all are as large as the largest shard needs.

use crate::cache::Flash;
use crate::shape::Shape;

/// Bytes of a copy of a region's header.
pub const HEADER_BYTES: u64 = 4096;
/// Regions of the pages of a unit that a touched record names, at most.
pub const TOUCH_BITS: u32 = 64;
/// Payload and log are whole multiples of this.
const ALIGN: u64 = 4096;
/// A log holds at least this much, whatever the setting.
const LOG_LEAST: u64 = 16 << 10;

/// The place of one shard's metadata, see the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// First byte of the shard's area.
    pub base: u64,
    /// Bytes of a log block.
    pub block_bytes: u64,
    /// Slots of the shard.
    pub slots: u32,
    /// Pages of a unit.
    pub pages: u32,
    /// Bytes of a payload, rounded up.
    pub payload_bytes: u64,
    /// Blocks of a log.
    pub log_blocks: u32,
}

impl Layout {
    /// The layout of `shape`'s shard; nothing where the cache keeps no metadata.
    #[must_use]
    pub fn of(shape: &Shape, flash: &Flash) -> Option<Self> {
        let journal = flash.journal?;
        let (slots, pages) = (shape.slots_of(flash.slots), shape.pages_per_unit());
        let block_bytes = u64::from(flash.block_bytes).max(512);
        // Every shard's area is as large as that of the first, which has the most slots.
        let most = Shape { shard: 0, ..*shape }.slots_of(flash.slots);
        let (payload_bytes, log_bytes) = Self::sizes(most, pages, journal.log_bytes);
        let area = Self::area_bytes(payload_bytes, log_bytes);
        Some(Self {
            base: journal.base + u64::from(shape.shard) * area,
            block_bytes,
            slots,
            pages,
            payload_bytes,
            log_blocks: (log_bytes / block_bytes) as u32,
        })
    }

    /// Bytes that the metadata of all shards take, for a cache of `slots` slots.
    #[must_use]
    pub fn total_bytes(shape: &Shape, slots: u64, log_bytes: u64) -> u64 {
        let most = Shape { shard: 0, ..*shape }.slots_of(slots);
        let (payload, log) = Self::sizes(most, shape.pages_per_unit(), log_bytes);
        Self::area_bytes(payload, log) * u64::from(shape.shards)
    }

    fn sizes(slots: u32, pages: u32, log_bytes: u64) -> (u64, u64) {
        let payload = u64::from(slots) * entry_bytes(pages) as u64;
        (payload.next_multiple_of(ALIGN), log_bytes.max(LOG_LEAST).next_multiple_of(ALIGN))
    }

    fn area_bytes(payload: u64, log: u64) -> u64 {
        2 * (2 * HEADER_BYTES + payload + 2 * log)
    }

    fn log_bytes(&self) -> u64 {
        u64::from(self.log_blocks) * self.block_bytes
    }

    /// First byte of the first or second copy of a region's header.
    #[must_use]
    pub fn header(&self, region: u8, copy: u8) -> u64 {
        let log = self.log_bytes().next_multiple_of(ALIGN);
        let region = u64::from(region) * Self::area_bytes(self.payload_bytes, log) / 2;
        self.base + region + u64::from(copy) * HEADER_BYTES
    }

    /// First byte of a region's payload.
    #[must_use]
    pub fn payload(&self, region: u8) -> u64 {
        self.header(region, 0) + 2 * HEADER_BYTES
    }

    /// First byte of a block in the first or second copy of a region's log.
    #[must_use]
    pub fn log_block(&self, region: u8, copy: u8, block: u32) -> u64 {
        let log = self.log_bytes().next_multiple_of(ALIGN);
        self.payload(region)
            + self.payload_bytes
            + u64::from(copy) * log
            + u64::from(block) * self.block_bytes
    }

    /// Pages of one region that a touched record names.
    #[must_use]
    pub fn touch_pages(&self) -> u32 {
        self.pages.div_ceil(TOUCH_BITS)
    }

    /// Bytes of a slot's entry in a payload.
    #[must_use]
    pub fn entry_bytes(&self) -> usize {
        entry_bytes(self.pages)
    }
}

fn entry_bytes(pages: u32) -> usize {
    4 + pages.div_ceil(8) as usize
}
