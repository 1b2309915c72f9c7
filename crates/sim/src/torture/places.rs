// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where things lie on the flash of a history: behind the place of the label, and as tightly as they can.

use larder_core::config::Choices;
use larder_core::format::label::LABELS_END;
use larder_core::format::{Frame, LogsPlan, Plan, UnitsPlan};
use larder_core::shape::Shape;

/// Bytes of a journal's log: the smallest that there is, so that it fills.
const LOG_BYTES: u64 = 16 << 10;

/// Sizes that were drawn.
pub(super) struct Sizes {
    pub shape: Shape,
    pub slots: u64,
    pub block_bytes: u32,
    /// Blocks of each shard's page log.
    pub blocks: u32,
}

/// A cache of units.
pub(super) fn units(sizes: &Sizes, choices: &Choices) -> Plan {
    let &Sizes { shape, slots, block_bytes, .. } = sizes;
    let frame = Frame::packed(LABELS_END);
    Plan::Units(UnitsPlan::of(frame, shape, slots, block_bytes, choices, LOG_BYTES))
}

/// Page logs that survive a crash.
pub(super) fn lasting_logs(sizes: &Sizes, choices: &Choices) -> Plan {
    Plan::Logs(LogsPlan { survives_crash: true, ..logs(sizes, choices) })
}

/// Page logs that a crash ends.
pub(super) fn passing_logs(sizes: &Sizes, choices: &Choices) -> Plan {
    Plan::Logs(logs(sizes, choices))
}

/// One for each shard.
fn logs(sizes: &Sizes, choices: &Choices) -> LogsPlan {
    let &Sizes { shape, blocks, .. } = sizes;
    let (at, batch_pages) = (LABELS_END, choices.on_exit().batch_pages);
    let formatted_for = shape.origin_bytes;
    LogsPlan { at, shape, formatted_for, blocks, batch_pages, survives_crash: false }
}
