// SPDX-License-Identifier: MIT OR Apache-2.0
//! Judges what a client read.
//!
//! While clients are active a read is compared with the history. After a crash the origin is the truth, or, where flash
//! may hold the only copy, again the history, to which the contents of both devices were added.

use larder_core::buf::SECTOR;
use larder_core::exec::Nanos;

use super::history::{Judged, Seen, Violation};
use crate::oracle::{Oracle, value};
use crate::world::{ORIGIN, World};

/// Bytes that a client read.
pub(super) struct Answer<'a> {
    pub offset: u64,
    pub bytes: &'a [u8],
    pub start: Nanos,
    pub end: Nanos,
}

/// What they are compared with.
pub(super) struct Reads<'a> {
    pub oracle: &'a mut Oracle,
    pub world: &'a World,
    pub seen: &'a mut Seen,
    /// Whether bytes that rot of cached data caused are excused: nothing detects them.
    pub excuses_rot: bool,
}

/// How a read is judged.
pub(super) type Judge = fn(&mut Reads<'_>, &Answer<'_>) -> Judged<()>;

impl Reads<'_> {
    fn is_rotten(&self, sector: &[u8]) -> bool {
        self.excuses_rot && self.world.served_rotten(sector)
    }
}

/// Compares a read with the history.
pub(super) fn against_history(reads: &mut Reads<'_>, answer: &Answer<'_>) -> Judged<()> {
    let Answer { offset, bytes, start, end } = *answer;
    for (chunk, sector) in bytes.chunks(SECTOR).zip(offset / SECTOR as u64..) {
        if let Some(word) = chunk.get(16..24) {
            reads.seen.mix(word.iter().fold(0, |sum, b| sum << 8 | u64::from(*b)));
        }
        if reads.is_rotten(chunk) {
            let right = reads.oracle.could_be(sector, chunk, start, end);
            reads.seen.undetected += u64::from(!right);
            continue;
        }
        let read = reads.oracle.read_sector(sector, chunk, start, end);
        read.map_err(|found| Violation::of("3: a read is not linearisable", found))?;
    }
    Ok(())
}

/// Compares a read after a crash with the origin.
pub(super) fn against_origin(reads: &mut Reads<'_>, answer: &Answer<'_>) -> Judged<()> {
    let mut truth = vec![0; answer.bytes.len()];
    if let Some(store) = reads.world.store(ORIGIN) {
        store.read(answer.offset, &mut truth);
    }
    let pairs = answer.bytes.chunks(SECTOR).zip(truth.chunks(SECTOR));
    let pairs = pairs.zip(answer.offset / SECTOR as u64..);
    for ((ours, theirs), sector) in pairs.filter(|((a, b), _)| a != b) {
        if reads.is_rotten(ours) {
            reads.seen.undetected += 1;
            continue;
        }
        let of = |bytes| value(sector, bytes);
        let what = format!("flash returns {:?}, the origin {:?}", of(ours), of(theirs));
        return Err(Violation::new("9: a stale page after a crash", Some(sector), what));
    }
    Ok(())
}
