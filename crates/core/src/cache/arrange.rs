// SPDX-License-Identifier: MIT OR Apache-2.0
//! What commands do with ranges of a volume: units are warmed or evicted, and what flash has is counted.
//!
//! **Warm**: each unit of the range gets a slot, a free one if there is one, else of a unit that the replacement policy chooses, and is
//! copied from the origin at the pace of population. It then counts as any other unit: the next ones may displace it. What cannot be
//! copied is left out. **Evict**: dirty data is copied to the origin, which is flushed, and the units leave; recovery does not find
//! them once the command has ended. Clients continue, so a unit that is read meanwhile may come back.
//!
//! Invariants: a range is extended to whole units; where single pages are admitted, less than half of a unit is warmed as these.
//! Clears and this wait for each other, because a detach relies on the units that a clear evicted being gone; exchanges of an update
//! continue. After a detach or a stop nothing begins.
//!
//! A page log is warmed as by reads, if it admits what is read. Pages leave a log in the order in which they were appended, and not
//! by a command.

use std::ops::Range;
use std::rc::Rc;

use super::detaching::Arranging;
use super::{Cache, Current, LogState};
use crate::buf::PAGE;
use crate::exec::{MILLISECOND, each};
use crate::pages::{Pages, touched};
use crate::request::Errno;

/// Units of a shard that are warmed at the same time.
const TOGETHER: usize = 4;

/// What is done with a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrangement {
    /// Units are copied to flash.
    Warm,
    /// Units leave flash.
    Evict,
}

impl Current {
    /// Warms or evicts this shard's units of ranges, in their order.
    ///
    /// # Errors
    /// No flash is attached (`ENODEV`), this kind of cache cannot do it (`EOPNOTSUPP`), a detach or a stop has begun
    /// (`ECANCELED`), an origin is overdue (`ETIMEDOUT`), or a device fails.
    pub(crate) async fn arrange(
        self: Rc<Self>,
        what: Arrangement,
        ranges: Vec<Range<u64>>,
    ) -> Result<(), Errno> {
        match what {
            Arrangement::Warm => self.warm(&ranges).await,
            Arrangement::Evict => {
                for range in &ranges {
                    self.evict(range).await?;
                }
                Ok(())
            }
        }
    }

    /// Begins a list of ranges to warm, which may come in several calls: none of it is evicted for the rest.
    pub(crate) fn begin_list(&self) {
        match self.get() {
            Cache::Clean(clean) => clean.units.begin_list(),
            Cache::WriteBack(cache) => cache.units.begin_list(),
            Cache::Log(_) | Cache::PassThrough => {}
        }
    }

    /// Waits while a clear is in progress.
    pub(super) async fn turn(&self) -> Result<Arranging<'_>, Errno> {
        loop {
            if self.detaching.stopped.get() {
                return Err(Errno::ECANCELED);
            }
            match self.detaching.arranges() {
                Some(turn) => return Ok(turn),
                None => self.cx.exec.sleep(MILLISECOND).await,
            }
        }
    }

    async fn warm(&self, ranges: &[Range<u64>]) -> Result<(), Errno> {
        let units: Vec<(u32, Pages)> = ranges.iter().flat_map(|range| self.parts(range)).collect();
        for some in units.chunks(TOGETHER) {
            let _turn = self.turn().await?;
            let warms = some.iter().map(|(unit, pages)| self.warm_unit(*unit, pages.clone()));
            let warmed = each(warms.collect()).await;
            warmed.into_iter().collect::<Result<(), Errno>>()?;
        }
        Ok(())
    }

    /// This shard's part of a range: its units, and the pages of each.
    pub(super) fn parts(&self, range: &Range<u64>) -> impl Iterator<Item = (u32, Pages)> + use<> {
        let (shape, range) = (self.cx.shape, range.clone());
        shape.units_touching(&range).map(move |unit| {
            let at = shape.unit_offset(unit);
            let start = range.start.max(at) - at;
            let end = range.end.min(at + shape.unit_bytes) - at;
            (unit, touched(start, end - start))
        })
    }

    pub(super) async fn warm_unit(&self, unit: u32, pages: Pages) -> Result<(), Errno> {
        let origins = &self.cx.origins;
        let volumes = origins.volumes_of([unit].into_iter());
        let done = match self.get() {
            Cache::Clean(clean) => {
                let warms = async move { clean.warm(unit, pages).await };
                origins.overdue.in_time("population-waits-for-hung", volumes, warms).await
            }
            Cache::WriteBack(cache) => {
                let warms = async move { cache.warm(unit).await };
                origins.overdue.in_time("exchange-waits-for-hung", volumes, warms).await
            }
            Cache::Log(LogState::Open(open)) => {
                let warms = async move { open.warm(unit, pages).await };
                return origins
                    .overdue
                    .in_time("population-waits-for-hung", volumes, warms)
                    .await
                    .unwrap_or(Err(Errno::ETIMEDOUT));
            }
            Cache::Log(_) | Cache::PassThrough => return Err(Errno::ENODEV),
        };
        done.ok_or(Errno::ETIMEDOUT)
    }

    pub(super) async fn evict(&self, range: &Range<u64>) -> Result<(), Errno> {
        let units: Vec<u32> = self.cx.shape.units_touching(range).collect();
        let (Some(first), Some(last)) = (units.first(), units.last()) else { return Ok(()) };
        let _turn = self.turn().await?;
        // The units of a shard in a range have consecutive numbers.
        let units = *first..last + 1;
        match self.get() {
            Cache::Clean(clean) => clean.remove_units(units).await,
            Cache::WriteBack(cache) => cache.remove_units(units).await,
            Cache::PassThrough => Err(Errno::ENODEV),
            Cache::Log(_) => Err(Errno::EOPNOTSUPP),
        }
    }

    /// Bytes of this shard's part of a range that flash has.
    pub(crate) fn cached(&self, range: &Range<u64>) -> u64 {
        let (shape, page) = (&self.cx.shape, PAGE as u64);
        let cache = self.get();
        let valid = |unit: u32, pages: &Pages| match &cache {
            Cache::Clean(clean) => clean.units.table.valid_in(unit, pages),
            Cache::WriteBack(cache) => cache.units.table.valid_in(unit, pages),
            Cache::Log(LogState::Open(open)) => {
                let first = shape.unit_offset(unit) / page;
                pages.clone().filter(|at| open.log.has(first + u64::from(*at))).count() as u64
            }
            Cache::Log(_) | Cache::PassThrough => 0,
        };
        self.parts(range).map(|(unit, pages)| valid(unit, &pages)).sum::<u64>() * page
    }
}
