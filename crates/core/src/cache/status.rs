// SPDX-License-Identifier: MIT OR Apache-2.0
//! The state of a shard's cache, for its driver.

use crate::exec::DevId;

/// The state of a shard's cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheStatus {
    /// The flash device.
    pub dev: DevId,
    /// Slots, or blocks of a page log.
    pub units_total: u64,
    /// Slots in use, or valid pages.
    pub units_used: u64,
    /// Slots or pages with dirty data.
    pub units_dirty: u64,
    /// Slots whose unit the journal has logged or enqueued.
    pub units_logged: u64,
    /// The metadata's generation, and blocks in its log; 0 without metadata.
    pub reached: (u64, u64),
    /// Bytes of memory of bitmaps.
    pub bitmap_bytes: u64,
    /// Whether it is bypassed because an operation is overdue.
    pub suspended: bool,
}
