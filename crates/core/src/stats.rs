// SPDX-License-Identifier: MIT OR Apache-2.0
//! Cumulative counters of a shard's work. The [desk](crate::desk) counts client requests.

use std::cell::Cell;

/// A snapshot of the counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Counters {
    /// Bytes read from flash.
    pub flash_read_bytes: u64,
    /// Bytes written to flash.
    pub flash_write_bytes: u64,
    /// Bytes read from the origin.
    pub origin_read_bytes: u64,
    /// Bytes written to the origin.
    pub origin_write_bytes: u64,
    /// Reads sent to the origin.
    pub origin_reads: u64,
    /// Reads that were answered from the memory of another read of the origin.
    pub read_joins: u64,
    /// Writes that were answered with another write of the same range.
    pub write_joins: u64,
    /// Reads that hit and were served by the origin.
    pub balanced_reads: u64,
    /// Reads that hit and were served from the tier of RAM.
    pub ram_reads: u64,
    /// Reads that missed and bypassed the cache, because they belong to a sequential stream that does not return.
    pub read_bypasses: u64,
    /// Units populated.
    pub populations: u64,
    /// Units evicted.
    pub evictions: u64,
    /// Periodic updates that ended.
    pub updates: u64,
    /// Bytes of dirty data copied to the origin.
    pub write_back_bytes: u64,
    /// Bytes read from the origin for population.
    pub population_bytes: u64,
    /// Flash writes, or appends to a page log, skipped because the write-through pool was empty (SCE 3.6).
    pub write_arounds: u64,
    /// Errors of the flash device.
    pub flash_errors: u64,
    /// Flash operations that did not finish in time.
    pub flash_timeouts: u64,
    /// Errors of the origin.
    pub origin_errors: u64,
    /// Pages read from flash that did not match their checksum.
    pub damaged_pages: u64,
}

impl std::ops::AddAssign for Counters {
    fn add_assign(&mut self, other: Self) {
        self.flash_read_bytes += other.flash_read_bytes;
        self.flash_write_bytes += other.flash_write_bytes;
        self.origin_read_bytes += other.origin_read_bytes;
        self.origin_write_bytes += other.origin_write_bytes;
        self.origin_reads += other.origin_reads;
        self.read_joins += other.read_joins;
        self.write_joins += other.write_joins;
        self.balanced_reads += other.balanced_reads;
        self.ram_reads += other.ram_reads;
        self.read_bypasses += other.read_bypasses;
        self.populations += other.populations;
        self.evictions += other.evictions;
        self.updates += other.updates;
        self.write_back_bytes += other.write_back_bytes;
        self.population_bytes += other.population_bytes;
        self.write_arounds += other.write_arounds;
        self.flash_errors += other.flash_errors;
        self.flash_timeouts += other.flash_timeouts;
        self.origin_errors += other.origin_errors;
        self.damaged_pages += other.damaged_pages;
    }
}

/// The counters of a running shard.
#[derive(Default)]
pub(crate) struct Stats(Cell<Counters>);

impl Stats {
    pub(crate) fn get(&self) -> Counters {
        self.0.get()
    }

    pub(crate) fn add(&self, change: impl FnOnce(&mut Counters)) {
        let mut counters = self.0.get();
        change(&mut counters);
        self.0.set(counters);
    }
}
