// SPDX-License-Identifier: MIT OR Apache-2.0
//! Log records, the blocks that hold them, and their effect on a payload.
//!
//! A block, little-endian: magic (u32), CRC-32C of the block with this field zero (u32),
//! generation (u64), sequence (u64), sequence of the first block of its batch (u64), the CRC of
//! the block before it (u32), bytes of records (u16), zero (u16), the volume (u64); then the
//! records.
//!
//! Why a chain of CRCs: a torn batch can leave later blocks of the same generation; a block whose chain is broken is not
//! part of this log.

use super::layout::Layout;
use crate::bytes::{u32_at, u64_at};
use crate::checksum::crc32c;
use crate::mutant;

const MAGIC: u32 = u32::from_le_bytes(*b"LLog");
pub(super) const HEADER: usize = 48;
const STATE: u8 = 1;
const TOUCH: u8 = 2;
const DROP: u8 = 3;

/// A record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// The slot holds the unit, or single pages ([`SINGLES`](super::entry::SINGLES)), with exactly these valid; they are durable on both devices, and none is dirty
    /// (a unit that was admitted dirty has a touched record in the same block).
    State {
        /// The slot.
        slot: u32,
        /// The shard's own number of the unit.
        unit: u32,
        /// A bit per page; empty in a write-back cache, whose units are wholly valid.
        bits: Box<[u8]>,
    },
    /// These regions of the slot's unit are about to be written: their pages are invalid or, under write-back, dirty.
    Touch {
        /// The slot.
        slot: u32,
        /// A bit per region.
        mask: u64,
    },
    /// The slot is free.
    Drop {
        /// The slot.
        slot: u32,
    },
}

impl Record {
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::State { bits, .. } => 9 + bits.len(),
            Self::Touch { .. } => 13,
            Self::Drop { .. } => 5,
        }
    }

    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::State { slot, unit, bits } => {
                out.push(STATE);
                out.extend(slot.to_le_bytes());
                out.extend(unit.to_le_bytes());
                out.extend(bits);
            }
            Self::Touch { slot, mask } => {
                out.push(TOUCH);
                out.extend(slot.to_le_bytes());
                out.extend(mask.to_le_bytes());
            }
            Self::Drop { slot } => {
                out.push(DROP);
                out.extend(slot.to_le_bytes());
            }
        }
    }

    fn decode(bytes: &mut &[u8], layout: &Layout) -> Option<Self> {
        let kind = *bytes.first()?;
        let slot = u32_at(bytes, 1)?;
        if slot >= layout.slots {
            return None;
        }
        let record = match kind {
            STATE => {
                // An entry holds the unit plus one.
                let unit = u32_at(bytes, 5).filter(|unit| *unit < u32::MAX)?;
                let bits = bytes.get(9..9 + layout.entry.state_bytes(layout.pages))?;
                Self::State { slot, unit, bits: bits.into() }
            }
            TOUCH => Self::Touch { slot, mask: u64_at(bytes, 5)? },
            DROP => Self::Drop { slot },
            _ => return None,
        };
        *bytes = bytes.get(record.bytes()..)?;
        Some(record)
    }

    /// Applies the record to a payload.
    pub fn apply(&self, payload: &mut [u8], layout: &Layout) {
        let size = layout.entry_bytes();
        let (Self::State { slot, .. } | Self::Touch { slot, .. } | Self::Drop { slot }) = self;
        let at = *slot as usize * size;
        let Some(entry) = payload.get_mut(at..at + size) else { return };
        match self {
            Self::State { unit, bits, .. } => layout.entry.set(entry, *unit, bits),
            Self::Touch { mask, .. } => layout.entry.touch(entry, *mask, layout.pages),
            Self::Drop { .. } => entry.fill(0),
        }
    }
}

/// The end of a log, where the next block is appended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogEnd {
    /// The volume.
    pub volume: u64,
    /// The generation.
    pub generation: u64,
    /// Sequence of the next block, which is also its index in the log.
    pub sequence: u64,
    /// CRC of the block before it.
    pub before: u32,
}

impl LogEnd {
    /// The end of an empty log of this generation, volume and shard.
    #[must_use]
    pub fn first(volume: u64, generation: u64, layout: &Layout) -> Self {
        let mut seed = volume.to_le_bytes().to_vec();
        seed.extend(generation.to_le_bytes());
        seed.extend(layout.base.to_le_bytes());
        Self { volume, generation, sequence: 0, before: crc32c(&seed) }
    }
}

/// The first records that must be in one block: a unit that is logged as dirty has two, and is not clean between them.
fn inseparable(records: &[Record]) -> &[Record] {
    let together = match records {
        [Record::State { slot, .. }, Record::Touch { slot: touched, .. }, ..] => slot == touched,
        _ => false,
    };
    let both = together && !mutant::is_active("state-apart-from-dirty");
    &records[..records.len().min(1 + usize::from(both))]
}

/// Packs as many records as fit into `most` blocks; returns the bytes and the number of records.
pub fn pack(records: &[Record], layout: &Layout, most: u32, end: &mut LogEnd) -> (Vec<u8>, usize) {
    let block = layout.block_bytes as usize;
    let (mut out, mut taken, first) = (Vec::new(), 0, end.sequence);
    while taken < records.len() && out.len() < most as usize * block {
        let mut body = Vec::with_capacity(block);
        loop {
            let next = inseparable(&records[taken..]);
            let bytes: usize = next.iter().map(Record::bytes).sum();
            if next.is_empty() || HEADER + body.len() + bytes > block {
                break;
            }
            next.iter().for_each(|record| record.encode(&mut body));
            taken += next.len();
        }
        out.extend(next_block(&body, layout, first, end));
    }
    (out, taken)
}

/// A block without records; advances the end.
pub(super) fn empty_block(layout: &Layout, end: &mut LogEnd) -> Vec<u8> {
    next_block(&[], layout, end.sequence, end)
}

/// The next block, of a batch that begins with the block `first`; advances the end.
fn next_block(body: &[u8], layout: &Layout, first: u64, end: &mut LogEnd) -> Vec<u8> {
    let mut bytes = vec![0; layout.block_bytes as usize];
    bytes[..4].copy_from_slice(&MAGIC.to_le_bytes());
    bytes[8..16].copy_from_slice(&end.generation.to_le_bytes());
    bytes[16..24].copy_from_slice(&end.sequence.to_le_bytes());
    bytes[24..32].copy_from_slice(&first.to_le_bytes());
    bytes[32..36].copy_from_slice(&end.before.to_le_bytes());
    bytes[36..38].copy_from_slice(&(body.len() as u16).to_le_bytes());
    bytes[40..48].copy_from_slice(&end.volume.to_le_bytes());
    bytes[HEADER..HEADER + body.len()].copy_from_slice(body);
    let crc = crc32c(&bytes);
    bytes[4..8].copy_from_slice(&crc.to_le_bytes());
    (end.before, end.sequence) = (crc, end.sequence + 1);
    bytes
}

/// A block that was read.
pub struct Block {
    /// Its sequence.
    pub sequence: u64,
    /// Sequence of the first block of its batch.
    pub batch: u64,
    before: u32,
    crc: u32,
    records: Vec<Record>,
}

impl Block {
    /// Decodes a block of this volume and generation.
    #[must_use]
    pub fn decode(bytes: &[u8], end: &LogEnd, layout: &Layout) -> Option<Self> {
        let any_generation = mutant::is_active("stale-log");
        let own = (u64_at(bytes, 8)? == end.generation || any_generation)
            && u64_at(bytes, 40)? == end.volume;
        if u32_at(bytes, 0)? != MAGIC || !own {
            return None;
        }
        let crc = u32_at(bytes, 4)?;
        let mut zeroed = bytes.to_vec();
        zeroed[4..8].fill(0);
        if crc32c(&zeroed) != crc && !mutant::is_active("block-unchecked") {
            return None;
        }
        let used = usize::from(u16::from_le_bytes([*bytes.get(36)?, *bytes.get(37)?]));
        let mut rest = bytes.get(HEADER..HEADER + used)?;
        let mut records = Vec::new();
        while !rest.is_empty() {
            records.push(Record::decode(&mut rest, layout)?);
        }
        let (sequence, batch) = (u64_at(bytes, 16)?, u64_at(bytes, 24)?);
        Some(Self { sequence, batch, before: u32_at(bytes, 32)?, crc, records })
    }

    /// The records, if this is the next block of the log; advances the end.
    pub fn follow(self, end: &mut LogEnd) -> Option<Vec<Record>> {
        let follows = self.before == end.before || mutant::is_active("stale-log");
        if self.sequence != end.sequence || !follows {
            return None;
        }
        (end.before, end.sequence) = (self.crc, end.sequence + 1);
        Some(self.records)
    }
}

#[cfg(test)]
mod tests {
    use super::super::entry::Entry;
    use super::*;

    /// Found by fuzzing: an entry holds the unit plus one, which overflows.
    #[test]
    fn a_record_with_the_largest_unit_number_is_rejected() {
        let layout = Layout {
            base: 0,
            block_bytes: 512,
            slots: 4,
            pages: 16,
            payload_bytes: 4096,
            log_blocks: 8,
            entry: Entry::Valid,
            factors: 0,
            slots_at: 0,
            slot_stride: 0,
        };
        let accepted = |unit: u32| {
            let mut end = LogEnd::first(1, 1, &layout);
            let record = Record::State { slot: 1, unit, bits: Box::new([0xff; 2]) };
            let (bytes, _) = pack(&[record], &layout, 1, &mut end);
            Block::decode(&bytes, &LogEnd::first(1, 1, &layout), &layout).is_some()
        };
        assert!(accepted(u32::MAX - 1));
        assert!(!accepted(u32::MAX));
    }
}
