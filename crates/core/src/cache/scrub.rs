// SPDX-License-Identifier: MIT OR Apache-2.0
//! A scrub: what flash has of a range is read back and compared with its checksums.
//!
//! What no client reads for a long time may rot, and would be found when the origin is gone. Clean data is written again from the
//! origin; dirty data that does not match is reported as lost, and stays so until it is written again.
//!
//! Invariant: a scrub reads each page once, by the same path as every reader (`flash/verified.rs`); it has no view of its own of what is
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
    /// No other device has its data.
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
    /// No flash is attached (`ENODEV`), it has no checksums (`EOPNOTSUPP`), a detach or a stop has begun (`ECANCELED`), or the
    /// device fails.
    pub(crate) async fn scrub(
        self: Rc<Self>,
        ranges: Vec<Range<u64>>,
    ) -> Result<Vec<Damaged>, Errno> {
        let mut found = Vec::new();
        for (unit, pages) in ranges.iter().flat_map(|range| self.parts(range)) {
            let _turn = self.turn().await?;
            found.extend(match self.get() {
                Cache::Clean(clean) if clean.units.flash.sums().is_some() => {
                    clean.scrub(unit, pages).await?
                }
                Cache::WriteBack(cache) if cache.units.flash.sums().is_some() => {
                    cache.scrub(unit, pages).await?
                }
                Cache::PassThrough => return Err(Errno::ENODEV),
                Cache::Clean(_) | Cache::WriteBack(_) | Cache::Log(_) => {
                    return Err(Errno::EOPNOTSUPP);
                }
            });
        }
        Ok(found)
    }
}
