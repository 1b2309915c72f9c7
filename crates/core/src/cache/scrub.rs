// SPDX-License-Identifier: MIT OR Apache-2.0
//! A scrub: what flash has of a range is read back and compared with its checksums.
//!
//! What no client reads for a long time may rot, and would be found when the origin is gone. Clean data is written again from the
//! origin; dirty data that does not match is reported as lost, and stays so until it is written again.
//!
//! Invariant: a scrub reads by the same path as every reader (`flash/verified.rs`); it has no view of its own of what is
//! damaged.

use std::ops::Range;
use std::rc::Rc;

use super::{Cache, Current};
use crate::buf::PAGE;
use crate::pages::Pages;
use crate::request::Errno;
use crate::shape::Shape;

/// A page that did not match its checksum.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damaged {
    /// Its place on the volume, or in the space of several.
    pub range: Range<u64>,
    /// It belongs to a dirty region: no other device counts as having its data.
    pub lost: bool,
}

impl Damaged {
    pub(super) fn of(shape: &Shape, unit: u32, page: Pages, lost: bool) -> Self {
        let start = shape.unit_offset(unit) + u64::from(page.start) * PAGE as u64;
        Self { range: start..(start + PAGE as u64).min(shape.origin_bytes), lost }
    }
}

impl Current {
    /// Reads what flash has of this shard's part of ranges.
    ///
    /// # Errors
    /// No flash is attached (`ENODEV`), it has no checksums (`EOPNOTSUPP`), a detach or a stop has begun (`ECANCELED`), an origin does
    /// not answer (`ETIMEDOUT`), or the device fails as a whole.
    pub(crate) async fn scrub(
        self: Rc<Self>,
        ranges: Vec<Range<u64>>,
    ) -> Result<Vec<Damaged>, Errno> {
        let mut found = Vec::new();
        for (unit, pages) in ranges.iter().flat_map(|range| self.parts(range)) {
            let _turn = self.turn().await?;
            found.extend(self.scrub_unit(unit, pages).await?);
        }
        Ok(found)
    }

    async fn scrub_unit(&self, unit: u32, pages: Pages) -> Result<Vec<Damaged>, Errno> {
        let origins = &self.cx.origins;
        let volumes = origins.volumes_of([unit].into_iter());
        let done = match self.get() {
            Cache::Clean(clean) if clean.units.flash.sums().is_some() => {
                let scrubs = clean.scrub(unit, pages);
                origins.overdue.in_time("population-waits-for-hung", volumes, scrubs).await
            }
            Cache::WriteBack(cache) if cache.units.flash.sums().is_some() => {
                let scrubs = cache.scrub(unit, pages);
                origins.overdue.in_time("exchange-waits-for-hung", volumes, scrubs).await
            }
            Cache::PassThrough => return Err(Errno::ENODEV),
            Cache::Clean(_) | Cache::WriteBack(_) | Cache::Log(_) => return Err(Errno::EOPNOTSUPP),
        };
        done.unwrap_or(Err(Errno::ETIMEDOUT))
    }
}
