// SPDX-License-Identifier: MIT OR Apache-2.0
//! Slots that a start does not use any more: recovered metadata without them (design rule 19).
//!
//! Both halves are written again, one after the other, each as a checkpoint is: marked as incomplete, payload, complete. So a crash
//! in between leaves the metadata as it was, or without the slots; and if the newer payload rots, the older one gives the same.
//!
//! Why not drop records when the engine starts: as many as slots were given back may not fit into a log, and each write would have
//! to wait for those of its unit.

use super::layout::Layout;
use super::record::LogEnd;
use super::recover::{Header, Recovered};
use crate::checksum::crc32c;
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

/// The writes after which both halves have the payload that was recovered, and their logs are empty.
pub(super) fn rewritten(
    found: &mut Recovered,
    (layout, volume): (&Layout, u64),
) -> Vec<(u64, Vec<u8>)> {
    let payload_crc = Some(crc32c(&found.payload));
    let mut writes = Vec::new();
    for half in [1 - found.half, found.half] {
        let header = Header {
            volume,
            generation: found.newest + 1,
            follows: found.end.generation,
            payload_crc: None,
        };
        let copies = [0, 1].map(|copy| layout.header(half, copy));
        let headers = |header: &Header| copies.map(|at| (at, header.encode(layout, at)));
        writes.extend(headers(&header));
        writes.push((layout.payload(half), found.payload.clone()));
        writes.extend(headers(&Header { payload_crc, ..header }));
        found.newest += 1;
        found.end = LogEnd::first(volume, found.newest, layout);
    }
    found.lone_header = None;
    writes
}
