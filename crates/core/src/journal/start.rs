// SPDX-License-Identifier: MIT OR Apache-2.0
//! A start continues the log of each shard with an empty block, durably, before the state record has the log's new end (design
//! rule 10).
//!
//! So a copy of flash from before the start, as a backup restores it, has less progress than the record, even if the server was
//! killed before it logged anything.
//!
//! Why not a new generation: that takes a checkpoint, which is as large as all metadata.

use super::layout::Layout;
use super::record::{LogEnd, empty_block};
use super::recover::{Header, Recovered};
use crate::checksum::crc32c;
use crate::mutant;

/// Continues the log. Returns the writes, in order, each of which is durable before the next.
pub fn begin(found: &mut Recovered, (layout, volume): (&Layout, u64)) -> Vec<(u64, Vec<u8>)> {
    if mutant::is_active("start-not-logged") {
        return Vec::new();
    }
    let at = found.end.sequence as u32;
    if at >= layout.log_blocks {
        return rewritten(found, (layout, volume));
    }
    let block = empty_block(layout, &mut found.end);
    let copies = [0, 1].map(|copy| layout.log_block(found.half, copy, at));
    copies.into_iter().zip([block.clone(), block]).collect()
}

/// Both halves get the payload that was recovered and an empty log, one after the other, each as by a checkpoint: marked as
/// incomplete, payload, complete. Returns the writes, in order, each of which is durable before the next.
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
