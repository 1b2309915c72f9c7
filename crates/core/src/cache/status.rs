// SPDX-License-Identifier: MIT OR Apache-2.0
//! The state of a shard's cache, as its driver sees it.

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
    /// Slots whose unit the journal has logged, or is about to.
    pub units_logged: u64,
    /// How far the metadata has come: its generation, and blocks of that log; 0 without one.
    pub reached: (u64, u64),
    /// Bytes of memory that bitmaps take at the moment.
    pub bitmap_bytes: u64,
    /// Whether it is bypassed because an operation is overdue.
    pub suspended: bool,
}
