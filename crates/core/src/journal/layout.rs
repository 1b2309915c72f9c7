// SPDX-License-Identifier: MIT OR Apache-2.0
//! The place of one shard's metadata on flash.
//!
//! Two halves, each `header | header copy | payload | log | log copy`. A payload has one entry per slot (`entry.rs`); under
//! periodic update the reference factor of each origin unit follows (u16). The areas of all shards are consecutive, each as
//! large as the largest shard needs.

use super::entry::Entry;
use crate::buf::PAGE;
use crate::cache::units::directory;
use crate::format::{FlashPlan, Keeps};
use crate::pages::Regions;
use crate::shape::Shape;

/// Bytes of a copy of a half's header.
pub const HEADER_BYTES: u64 = 4096;
/// Bytes of a reference factor.
const FACTOR_BYTES: u64 = 2;
/// Payload and log are whole multiples of this.
const ALIGN: u64 = 4096;
/// The smallest log that a setting may choose.
const LOG_LEAST_SETTING: u64 = 16 << 10;

/// One log of all shards together takes this fraction of the device ...
const LOG_SHARE: u64 = 512;
/// ... and the log of a shard is within these bounds. It must hold all records between two checkpoints.
const LOG_LEAST: u64 = 64 << 10;
pub(crate) const LOG_MOST: u64 = 16 << 20;

/// Bytes of the log of each of `workers` shards on a flash device of `flash_bytes`.
#[must_use]
pub fn log_bytes(flash_bytes: u64, keeps: Keeps, workers: u32) -> u64 {
    let all = (flash_bytes / LOG_SHARE).min(keeps.logs_most());
    let each = all / u64::from(workers.max(1));
    each.next_multiple_of(LOG_LEAST).clamp(LOG_LEAST, LOG_MOST)
}

/// The place of one shard's metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// First byte of the shard's area.
    pub base: u64,
    /// Bytes of a log block.
    pub block_bytes: u64,
    /// Slots of the shard that the payload has room for.
    pub slots: u32,
    /// Pages of a unit.
    pub pages: u32,
    /// Bytes of a payload, rounded up.
    pub payload_bytes: u64,
    /// Blocks of a log.
    pub log_blocks: u32,
    /// The kind of the entries.
    pub entry: Entry,
    /// Reference factors in the payload.
    pub factors: u32,
    /// First byte of the shard's slot 0.
    pub slots_at: u64,
    /// Bytes from a slot of the shard to the next.
    pub slot_stride: u64,
}

impl Layout {
    /// The layout of `shape`'s shard; `None` if the cache is volatile.
    #[must_use]
    pub fn of(shape: &Shape, flash: &FlashPlan) -> Option<Self> {
        let journal = flash.journal?;
        let shape = flash.formatted(shape);
        let (slots, pages) = (shape.slots_of(flash.room), shape.pages_per_unit());
        let block_bytes = u64::from(flash.block_bytes).max(512);
        // Every shard's area is as large as that of the first, which has the most slots.
        let first = shape.of_shard(0);
        let keeps = journal.keeps;
        let (payload_bytes, log_bytes) =
            Self::sizes(&first, first.slots_of(flash.room), journal.log_bytes, keeps);
        let area = Self::area_bytes(payload_bytes, log_bytes);
        Some(Self {
            base: journal.base + u64::from(shape.shard) * area,
            block_bytes,
            slots,
            pages,
            payload_bytes,
            log_blocks: (log_bytes / block_bytes) as u32,
            entry: keeps.entry(),
            factors: keeps.factors(shape.units()) as u32,
            slots_at: flash.base + u64::from(shape.shard) * shape.unit_bytes,
            slot_stride: u64::from(shape.shards) * shape.unit_bytes,
        })
    }

    /// Bytes that the metadata of all shards take, for a cache of `slots` slots.
    #[must_use]
    pub fn total_bytes(shape: &Shape, slots: u64, log_bytes: u64, keeps: Keeps) -> u64 {
        let first = shape.of_shard(0);
        let (payload, log) = Self::sizes(&first, first.slots_of(slots), log_bytes, keeps);
        Self::area_bytes(payload, log) * u64::from(shape.shards)
    }

    fn sizes(shape: &Shape, slots: u32, log_bytes: u64, keeps: Keeps) -> (u64, u64) {
        let entry = keeps.entry().bytes(shape.pages_per_unit()) as u64;
        let payload = u64::from(slots) * entry + keeps.factors(shape.units()) * FACTOR_BYTES;
        (payload.next_multiple_of(ALIGN), log_bytes.max(LOG_LEAST_SETTING).next_multiple_of(ALIGN))
    }

    fn area_bytes(payload: u64, log: u64) -> u64 {
        2 * (2 * HEADER_BYTES + payload + 2 * log)
    }

    fn log_bytes(&self) -> u64 {
        u64::from(self.log_blocks) * self.block_bytes
    }

    /// First byte of the first or second copy of a half's header.
    #[must_use]
    pub fn header(&self, half: u8, copy: u8) -> u64 {
        let log = self.log_bytes().next_multiple_of(ALIGN);
        let half = u64::from(half) * Self::area_bytes(self.payload_bytes, log) / 2;
        self.base + half + u64::from(copy) * HEADER_BYTES
    }

    /// First byte of a half's payload.
    #[must_use]
    pub fn payload(&self, half: u8) -> u64 {
        self.header(half, 0) + 2 * HEADER_BYTES
    }

    /// First byte of a block in the first or second copy of a half's log.
    #[must_use]
    pub fn log_block(&self, half: u8, copy: u8, block: u32) -> u64 {
        let log = self.log_bytes().next_multiple_of(ALIGN);
        self.payload(half)
            + self.payload_bytes
            + u64::from(copy) * log
            + u64::from(block) * self.block_bytes
    }

    /// First byte and length of the directory of a mixed slot.
    #[must_use]
    pub fn directory(&self, slot: u32) -> (u64, u64) {
        let (pages, page) = (directory::pages_within(self.pages), PAGE as u64);
        let slot = self.slots_at + u64::from(slot) * self.slot_stride;
        (slot + u64::from(pages.start) * page, pages.len() as u64 * page)
    }

    /// Pages of one region of a touched record.
    #[must_use]
    pub fn touch_pages(&self) -> u32 {
        Regions::of(self.pages).pages_each
    }

    /// Bytes of a slot's entry in a payload.
    #[must_use]
    pub fn entry_bytes(&self) -> usize {
        self.entry.bytes(self.pages)
    }

    /// First byte of the reference factors within a payload.
    #[must_use]
    pub fn factors_at(&self) -> usize {
        self.slots as usize * self.entry_bytes()
    }
}
