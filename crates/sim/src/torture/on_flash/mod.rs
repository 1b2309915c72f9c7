// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a cache keeps on flash: how a start recovers it, and what must hold of it after a power cut.
//!
//! | what is kept | file |
//! | --- | --- |
//! | units in slots, with or without a journal | `units.rs` |
//! | pages in logs | `logs.rs` |

mod logs;
mod units;

use std::ops::Range;

use larder_core::format::Plan;
use larder_core::journal::recover::Recovered;

use super::history::Judged;
use super::moment::Moment;
use super::owners::Owners;
use crate::device::SimDevice;
use crate::store::{Content, Image};
use crate::world::World;

/// What is recovered of each shard before the engine starts.
pub(super) type Found = Vec<Option<Recovered>>;

/// What a cache keeps on flash, see the module.
pub(super) trait OnFlash {
    /// Attaches the flash device of a volume, whose logs ignore some pages; how many shards are warm.
    fn attach(
        &self,
        world: &mut World,
        flash: SimDevice,
        volume: (u64, &[Vec<Range<u64>>]),
        found: &Found,
    ) -> usize;

    /// Judges what a power cut left of the origin and of flash; units that flash owns are added to `owners`.
    fn judge(
        &self,
        moment: &mut Moment<'_>,
        left: (&Image, &Image),
        owners: &mut Owners,
    ) -> Judged<()>;

    /// Where one copy of the metadata lies, and what has another elsewhere.
    fn one_copy(&self, copy: u8) -> Vec<Range<u64>>;

    /// Where cached data lies.
    fn data(&self) -> Vec<Range<u64>>;

    /// Where one copy of the checksums of cached pages lies.
    fn sums(&self, copy: u8) -> Vec<Range<u64>>;
}

/// What a cache keeps on a flash that is planned so.
pub(super) fn on_flash(plan: &Plan) -> &dyn OnFlash {
    match plan {
        Plan::Units(units) => units,
        Plan::Logs(logs) => logs,
    }
}

/// A sector of the origin as it is on flash.
fn as_written(sector: u64, content: Content) -> Content {
    match content {
        Content::First => Content::Of { sector: sector as u32, write: 0 },
        other => other,
    }
}
