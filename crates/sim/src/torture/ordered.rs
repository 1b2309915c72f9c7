// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether the origin alone is an older state of the volume, as a power loss leaves it (rule 21).
//!
//! What recovery finds after a crash is the past of the next life: a write of that life is ordered behind all of it. An origin that
//! has no write of a life is judged by the life before.

use super::history::{Judged, Violation};
use super::moment::Moment;
use super::owners::Owners;
use crate::oracle::Value;
use crate::store::Image;
use crate::world::ORIGIN;

/// Judges what a power cut left of the origin.
pub(super) fn judge_origin(moment: &Moment<'_>, left: &Image) -> Judged<()> {
    let Some(origin) = moment.world.store(ORIGIN) else { return Ok(()) };
    let alone = Owners::none(moment.setup);
    let found = |sector| {
        let value = alone.value(sector, (origin, left), (origin, left))?;
        Ok(value.map(|value| (sector, value)))
    };
    let touched = moment.oracle.touched();
    let mut found: Vec<(u64, Value)> =
        touched.filter_map(|s| found(s).transpose()).collect::<Judged<_>>()?;
    let lives = moment.earlier.iter().chain([moment.oracle]);
    for life in lives.rev() {
        let judged = life.in_order(&found);
        if judged.map_err(|w| Violation::of("21: the origin has a write before earlier ones", w))? {
            break;
        }
        // A zero does not show of which life it is.
        found.retain(|(sector, value)| *value != Value::Zero || !life.zeroes(*sector));
    }
    Ok(())
}
