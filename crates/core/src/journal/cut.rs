// SPDX-License-Identifier: MIT OR Apache-2.0
//! Slots that a start does not use any more: recovered metadata without them (design rule 19).
//!
//! Both halves are written again (`start.rs`). So a crash in between leaves the metadata as it was, or without the slots; and if
//! the newer payload rots, the older one gives the same.
//!
//! Why not drop records when the engine starts: as many as slots were given back may not fit into a log, and each write would have
//! to wait for those of its unit.

use super::layout::Layout;
use super::recover::Recovered;
use super::start::rewritten;
use crate::mutant;

/// Leaves out the slots from `slots` on, none of which has dirty data. Returns the writes that make it durable, in order, each of
/// which is durable before the next; none if nothing was there.
pub fn cut(
    found: &mut Recovered,
    (layout, volume): (&Layout, u64),
    slots: u32,
) -> Vec<(u64, Vec<u8>)> {
    if !(slots..layout.slots).any(|slot| found.is_used(slot, layout)) {
        return Vec::new();
    }
    let entries = layout.factors_at();
    let kept = slots as usize * layout.entry_bytes();
    found.payload[kept..entries].fill(0);
    found.directories.retain(|slot, _| *slot < slots);
    if mutant::is_active("cut-not-durable") {
        return Vec::new();
    }
    rewritten(found, (layout, volume))
}
