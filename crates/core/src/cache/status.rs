// SPDX-License-Identifier: MIT OR Apache-2.0
//! The state of a shard's cache, for its driver.

use super::log::LogState;
use super::units::unit_cache::UnitCache;
use super::{Cache, Current};
use crate::exec::{DevId, Nanos};
use crate::journal::{Journal, Log};

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
    /// For how long the oldest change has waited for its replay, under the write policy `ordered`.
    pub behind: Nanos,
    /// Slots whose unit a rule keeps.
    pub units_kept: u64,
    /// Slots whose unit the journal has logged or enqueued.
    pub units_logged: u64,
    /// The metadata's generation, and blocks in its log; 0 without metadata.
    pub reached: (u64, u64),
    /// Bytes of memory of bitmaps.
    pub bitmap_bytes: u64,
    /// Whether it is bypassed because an operation is overdue.
    pub suspended: bool,
}

impl Current {
    /// The cache's state, if it is in use.
    pub(crate) fn status(&self) -> Option<CacheStatus> {
        match &*self.cache.borrow() {
            Cache::Clean(clean) => Some(status(&clean.units, 0)),
            Cache::WriteBack(cache) => Some(status(&cache.units, cache.units_dirty())),
            Cache::Log(LogState::Open(open)) => {
                let (log, device) = (open.status(), open.device());
                Some(CacheStatus {
                    dev: device.dev,
                    units_total: log.blocks,
                    units_used: log.valid,
                    units_dirty: log.dirty,
                    behind: open.behind(),
                    units_kept: 0,
                    units_logged: log.valid,
                    reached: log.reached,
                    bitmap_bytes: 0,
                    suspended: !device.health.usable(),
                })
            }
            Cache::PassThrough | Cache::Log(_) => None,
        }
    }
}

fn status<J: Journal>(units: &UnitCache<J>, units_dirty: u64) -> CacheStatus {
    let journal = units.journal.as_ref();
    CacheStatus {
        dev: units.flash.device().dev,
        units_total: u64::from(units.table.limit() + units.table.beyond()),
        units_used: u64::from(units.table.used()),
        units_dirty,
        behind: 0,
        units_kept: u64::from(units.table.kept()),
        units_logged: journal.map_or(0, |journal| journal.base().mapping.logged_count()),
        reached: units.log().map_or((0, 0), Log::reached),
        bitmap_bytes: units.table.bitmap_bytes(),
        suspended: !units.flash.usable(),
    }
}
