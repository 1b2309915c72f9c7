// SPDX-License-Identifier: MIT OR Apache-2.0
//! Log records, the blocks that hold them, and what they do to a payload.
//!
//! A block, little-endian: magic (u32), CRC-32C of the block with this field zero (u32),
//! generation (u64), sequence (u64), sequence of the first block of its batch (u64), the CRC of
//! the block before it (u32), bytes of records (u16), zero (u16), the volume (u64); then the
//! records.
//!
//! Why a chain of CRCs: a batch that a crash tore can leave later blocks of the same generation
//! behind; a block that does not follow from the one before it is not part of this log.

use super::layout::Layout;
use crate::bytes::{u32_at, u64_at};
use crate::checksum::crc32c;
use crate::mutant;

const MAGIC: u32 = u32::from_le_bytes(*b"LLog");
const HEADER: usize = 48;
const STATE: u8 = 1;
const TOUCH: u8 = 2;
const DROP: u8 = 3;

/// What the log says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// The slot holds the unit with exactly these pages valid; both devices hold them durably, so
    /// nothing of it is dirty.
    State {
        /// The slot.
        slot: u32,
        /// The shard's own number of the unit.
        unit: u32,
        /// A bit per page; of a write-back cache nothing, since all of them are.
        bits: Box<[u8]>,
    },
    /// These regions of the slot's unit are about to be written: their pages are not valid, or,
    /// under write-back, dirty.
    Touch {
        /// The slot.
        slot: u32,
        /// A bit per region.
        mask: u64,
    },
    /// The slot holds nothing any more.
    Drop {
        /// The slot.
        slot: u32,
    },
}

impl Record {
    fn bytes(&self) -> usize {
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

    /// Does to a payload what the record says.
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

/// Where a log stands: what the next block must follow from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tail {
    /// The volume.
    pub volume: u64,
    /// The generation.
    pub generation: u64,
    /// Sequence of the next block, which is also its place in the log.
    pub sequence: u64,
    /// CRC of the block before it.
    pub before: u32,
}

impl Tail {
    /// The beginning of a log of this generation on this volume, in this shard's area.
    #[must_use]
    pub fn first(volume: u64, generation: u64, layout: &Layout) -> Self {
        let mut seed = volume.to_le_bytes().to_vec();
        seed.extend(generation.to_le_bytes());
        seed.extend(layout.base.to_le_bytes());
        Self { volume, generation, sequence: 0, before: crc32c(&seed) }
    }
}

/// Packs as many of the records as fit into `most` blocks; the bytes, and how many went in.
pub fn pack(records: &[Record], layout: &Layout, most: u32, tail: &mut Tail) -> (Vec<u8>, usize) {
    let block = layout.block_bytes as usize;
    let (mut out, mut taken, first) = (Vec::new(), 0, tail.sequence);
    while taken < records.len() && out.len() < most as usize * block {
        let mut body = Vec::with_capacity(block);
        while let Some(record) = records.get(taken)
            && HEADER + body.len() + record.bytes() <= block
        {
            record.encode(&mut body);
            taken += 1;
        }
        let mut bytes = vec![0; block];
        bytes[..4].copy_from_slice(&MAGIC.to_le_bytes());
        bytes[8..16].copy_from_slice(&tail.generation.to_le_bytes());
        bytes[16..24].copy_from_slice(&tail.sequence.to_le_bytes());
        bytes[24..32].copy_from_slice(&first.to_le_bytes());
        bytes[32..36].copy_from_slice(&tail.before.to_le_bytes());
        bytes[36..38].copy_from_slice(&(body.len() as u16).to_le_bytes());
        bytes[40..48].copy_from_slice(&tail.volume.to_le_bytes());
        bytes[HEADER..HEADER + body.len()].copy_from_slice(&body);
        let crc = crc32c(&bytes);
        bytes[4..8].copy_from_slice(&crc.to_le_bytes());
        (tail.before, tail.sequence) = (crc, tail.sequence + 1);
        out.extend(bytes);
    }
    (out, taken)
}

/// A block that a log may hold.
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
    /// Understands a block of this volume and generation.
    #[must_use]
    pub fn decode(bytes: &[u8], tail: &Tail, layout: &Layout) -> Option<Self> {
        let any_generation = mutant::is_active("stale-log");
        let own = (u64_at(bytes, 8)? == tail.generation || any_generation)
            && u64_at(bytes, 40)? == tail.volume;
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

    /// The records, if the block is the one that the log goes on with; moves the tail on.
    pub fn follow(self, tail: &mut Tail) -> Option<Vec<Record>> {
        let follows = self.before == tail.before || mutant::is_active("stale-log");
        if self.sequence != tail.sequence || !follows {
            return None;
        }
        (tail.before, tail.sequence) = (self.crc, tail.sequence + 1);
        Some(self.records)
    }
}

#[cfg(test)]
mod tests {
    use super::super::entry::Entry;
    use super::*;

    /// Found by fuzzing: an entry holds the unit plus one, which this unit has no room for.
    #[test]
    fn a_unit_that_no_entry_can_hold_is_no_record() {
        let layout = Layout {
            base: 0,
            block_bytes: 512,
            slots: 4,
            pages: 16,
            payload_bytes: 4096,
            log_blocks: 8,
            entry: Entry::Valid,
            factors: 0,
        };
        let understood = |unit: u32| {
            let mut tail = Tail::first(1, 1, &layout);
            let record = Record::State { slot: 1, unit, bits: Box::new([0xff; 2]) };
            let (bytes, _) = pack(&[record], &layout, 1, &mut tail);
            Block::decode(&bytes, &Tail::first(1, 1, &layout), &layout).is_some()
        };
        assert!(understood(u32::MAX - 1));
        assert!(!understood(u32::MAX));
    }
}
