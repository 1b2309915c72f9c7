// SPDX-License-Identifier: MIT OR Apache-2.0
//! Recovery: from the bytes on flash to what every slot holds (design rules 8 and 9).
//!
//! 1. Of the two halves whose headers belong to this volume and are complete, the one with the
//!    newer generation counts. A header is written before its half as incomplete, so that a
//!    checkpoint that a crash cut short never lends its generation, and the blocks it left, to
//!    another. It is there twice, since without it the log that takes pages back would not be
//!    read; the newer copy counts. It names its own place, so a stray write is not taken for it.
//! 2. Its payload is the state at its checkpoint; the records of its log are applied in order.
//! 3. If its payload is damaged, the older half's payload, the whole of the older log and then
//!    the newer log say the same: everything logged while the newer payload was written went to
//!    both logs.
//! 4. A log ends at the first block that does not follow. If a later batch is there nevertheless,
//!    a block in the middle is lost in both copies, and what it touched is unknown: damaged.
//!
//! Recovery writes nothing, so a crash in it changes nothing, and doing it again finds the same.
//! Whoever attaches the result flushes the flash device first: the last block may have been read
//! from a cache that the next power cut empties.

use super::layout::{HEADER_BYTES, Layout};
use super::record::{Block, Tail};
use crate::bytes::{u32_at, u64_at};
use crate::cache::units::warm::Held;
use crate::checksum::crc32c;
use crate::mutant;
use crate::request::Errno;

const MAGIC: [u8; 8] = *b"LARDRMET";
/// The version of the format.
pub const VERSION: u32 = 1;

/// What a shard's metadata says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recovered {
    /// The half in force.
    pub half: u8,
    /// Where its log goes on.
    pub tail: Tail,
    /// The newest generation that anything was ever written for.
    pub newest: u64,
    /// The header of the half in force, where a crash left but one copy of it: to be written again
    /// before the log goes on, or that copy would be the only one for as long as the log lasts.
    pub lone_header: Option<Header>,
    /// An entry per slot, see [`Layout`].
    pub payload: Vec<u8>,
}

impl Recovered {
    /// What each slot in use holds.
    pub(crate) fn held<'a>(&'a self, layout: &Layout) -> impl Iterator<Item = Held<'a>> + use<'a> {
        let layout = *layout;
        let entries = self.payload.chunks_exact(layout.entry_bytes());
        (0..layout.slots)
            .zip(entries)
            .filter_map(move |(slot, entry)| layout.entry.held(slot, entry))
    }

    fn of_slot(&self, slot: u32, layout: &Layout) -> Option<Held<'_>> {
        let at = slot as usize * layout.entry_bytes();
        layout.entry.held(slot, self.payload.get(at..at + layout.entry_bytes())?)
    }

    /// The slot's unit (the shard's own number) and its valid pages, if it holds one.
    #[must_use]
    pub fn slot(&self, slot: u32, layout: &Layout) -> Option<(u32, Vec<u32>)> {
        let held = self.of_slot(slot, layout)?;
        let valid = |page: &u32| {
            held.valid.is_none_or(|bits| bits[*page as usize / 8] >> (page % 8) & 1 == 1)
        };
        Some((held.unit, (0..layout.pages).filter(valid).collect()))
    }

    /// The slot's unit (the shard's own number), if it holds one.
    #[must_use]
    pub fn unit(&self, slot: u32, layout: &Layout) -> Option<u32> {
        self.of_slot(slot, layout).map(|held| held.unit)
    }

    /// The dirty regions of the slot's unit.
    #[must_use]
    pub fn dirty(&self, slot: u32, layout: &Layout) -> u64 {
        self.of_slot(slot, layout).map_or(0, |held| held.dirty)
    }

    /// How far the log had come: its generation, and blocks of it.
    #[must_use]
    pub fn reached(&self) -> (u64, u64) {
        (self.tail.generation, self.tail.sequence)
    }

    /// The reference factors of the origin's units, where they are kept.
    pub fn factors(&self, layout: &Layout) -> impl Iterator<Item = u16> {
        let bytes = self.payload.get(layout.factors_at()..).unwrap_or_default();
        let factors = bytes.chunks_exact(2).map(|b| u16::from_le_bytes([b[0], b[1]]));
        factors.take(layout.factors as usize)
    }
}

/// Why there is nothing to go on with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unusable {
    /// No checkpoint of this volume was ever completed.
    Nothing,
    /// What a checkpoint or the log said is lost.
    Damaged,
    /// The device failed.
    Device(Errno),
}

/// A half's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The volume.
    pub volume: u64,
    /// The generation.
    pub generation: u64,
    /// The generation whose log goes on in this one's.
    pub follows: u64,
    /// CRC-32C of the payload; none while the half is being written.
    pub payload_crc: Option<u32>,
}

impl Header {
    /// Its bytes, for this place on the device.
    #[must_use]
    pub fn encode(&self, layout: &Layout, at: u64) -> Vec<u8> {
        let mut bytes = vec![0; HEADER_BYTES as usize];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.volume.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.generation.to_le_bytes());
        bytes[32..36].copy_from_slice(&layout.slots.to_le_bytes());
        bytes[36..40].copy_from_slice(&layout.pages.to_le_bytes());
        bytes[40..44].copy_from_slice(&layout.log_blocks.to_le_bytes());
        bytes[44..48].copy_from_slice(&self.payload_crc.unwrap_or(0).to_le_bytes());
        bytes[48..56].copy_from_slice(&self.follows.to_le_bytes());
        bytes[56] = u8::from(self.payload_crc.is_some());
        bytes[57] = layout.entry.code();
        bytes[60..64].copy_from_slice(&layout.factors.to_le_bytes());
        bytes[64..72].copy_from_slice(&at.to_le_bytes());
        let crc = crc32c(&bytes);
        bytes[12..16].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8], volume: u64, layout: &Layout, at: u64) -> Option<Self> {
        if bytes.get(..8)? != MAGIC || u32_at(bytes, 8)? != VERSION {
            return None;
        }
        let mut zeroed = bytes.to_vec();
        zeroed[12..16].fill(0);
        let header = Self {
            volume: u64_at(bytes, 16)?,
            generation: u64_at(bytes, 24)?,
            follows: u64_at(bytes, 48)?,
            payload_crc: (*bytes.get(56)? == 1).then_some(u32_at(bytes, 44)?),
        };
        // A generation that none can follow is none.
        let fits = header.generation < u64::MAX
            && u32_at(bytes, 32)? == layout.slots
            && u32_at(bytes, 36)? == layout.pages
            && u32_at(bytes, 40)? == layout.log_blocks
            && *bytes.get(57)? == layout.entry.code()
            && u32_at(bytes, 60)? == layout.factors
            && (u64_at(bytes, 64)? == at || mutant::is_active("header-anywhere"));
        let own = header.volume == volume || mutant::is_active("any-volume");
        (crc32c(&zeroed) == u32_at(bytes, 12)? && own && fits).then_some(header)
    }
}

/// What makes a shard's area that of an empty cache of this volume, in order; to be durable before the
/// volume's label is. Whatever a half holds of another volume does not count.
#[must_use]
pub fn format(layout: &Layout, volume: u64) -> Vec<(u64, Vec<u8>)> {
    let payload = vec![0; layout.payload_bytes as usize];
    let payload_crc = Some(crc32c(&payload));
    let header = Header { volume, generation: 1, follows: 0, payload_crc };
    let mut writes = vec![(layout.payload(0), payload)];
    for at in [0, 1].map(|copy| layout.header(0, copy)) {
        writes.push((at, header.encode(layout, at)));
    }
    writes
}

/// Reads a range of the flash device.
pub type Read<'a> = &'a mut dyn FnMut(u64, u64) -> Result<Vec<u8>, Errno>;

/// Recovers one shard's state, see the module.
///
/// # Errors
/// Why there is none.
pub fn recover(layout: &Layout, volume: u64, read: Read<'_>) -> Result<Recovered, Unusable> {
    let mut found = Vec::new();
    for half in [0, 1] {
        let mut copies = [None, None];
        for copy in [0, 1] {
            let at = layout.header(half, copy);
            let bytes = read(at, HEADER_BYTES).map_err(Unusable::Device)?;
            copies[usize::from(copy)] = Header::decode(&bytes, volume, layout, at);
        }
        let age = |h: &Header| (h.generation, h.payload_crc.is_some());
        let newest = copies.into_iter().flatten().max_by_key(age);
        found.extend(newest.map(|h| (half, h, copies[0] != copies[1])));
    }
    let newest_written = found.iter().map(|(_, h, _)| h.generation).max().unwrap_or(0);
    found.retain(|(_, h, _)| h.payload_crc.is_some());
    found.sort_by_key(|(_, h, _)| std::cmp::Reverse(h.generation));
    let Some(&(half, newest, is_alone)) = found.first() else { return Err(Unusable::Nothing) };
    let lone_header = Some(newest).filter(|_| is_alone);
    let mut payload = read_payload(layout, half, &newest, read)?;
    if payload.is_none() {
        let older = found.get(1).filter(|(_, h, _)| h.generation == newest.follows);
        let Some(&(older_half, older, _)) = older else { return Err(Unusable::Damaged) };
        let mut state = read_payload(layout, older_half, &older, read)?;
        if let Some(state) = &mut state {
            let tail = Tail::first(volume, older.generation, layout);
            replay(layout, older_half, tail, state, read)?;
        }
        payload = state;
    }
    let Some(mut payload) = payload else { return Err(Unusable::Damaged) };
    let tail = Tail::first(volume, newest.generation, layout);
    let tail = replay(layout, half, tail, &mut payload, read)?;
    if mutant::is_active("clean-lines-dropped") && layout.entry.is_expendable() {
        payload.fill(0);
    }
    Ok(Recovered { half, tail, newest: newest_written, lone_header, payload })
}

/// The payload, unless it is damaged.
fn read_payload(
    layout: &Layout,
    half: u8,
    header: &Header,
    read: Read<'_>,
) -> Result<Option<Vec<u8>>, Unusable> {
    let bytes = read(layout.payload(half), layout.payload_bytes).map_err(Unusable::Device)?;
    let whole = Some(crc32c(&bytes)) == header.payload_crc;
    Ok((whole || mutant::is_active("payload-unchecked")).then_some(bytes))
}

/// Applies a log to a payload; where the log ends.
fn replay(
    layout: &Layout,
    half: u8,
    tail: Tail,
    payload: &mut [u8],
    read: Read<'_>,
) -> Result<Tail, Unusable> {
    let len = u64::from(layout.log_blocks) * layout.block_bytes;
    let mut copies = Vec::new();
    for copy in [0, 1] {
        copies.push(read(layout.log_block(half, copy, 0), len).map_err(Unusable::Device)?);
    }
    let block = layout.block_bytes as usize;
    let at = |copy: usize, index: usize| {
        let bytes = copies[copy].get(index * block..(index + 1) * block)?;
        Block::decode(bytes, &tail, layout)
    };
    let (mut next, mut all) = (tail, Vec::new());
    for index in 0..layout.log_blocks as usize {
        let records = [0, 1].into_iter().find_map(|copy| at(copy, index)?.follow(&mut next));
        let Some(records) = records else { break };
        all.extend(records);
    }
    if mutant::is_active("last-record-undone") {
        all.pop();
    }
    all.iter().for_each(|record| record.apply(payload, layout));
    let lost = next.sequence;
    let later = |index: usize| (0..2).filter_map(move |copy| at(copy, index));
    let mut after = (lost as usize..layout.log_blocks as usize).flat_map(later);
    if after.any(|b| b.sequence > lost && b.batch > lost) {
        return Err(Unusable::Damaged);
    }
    Ok(next)
}

#[cfg(test)]
mod tests {
    use super::super::entry::Entry;
    use super::*;

    /// A checkpoint counts one up from the newest.
    #[test]
    fn a_generation_that_none_can_follow_is_none() {
        let layout = Layout {
            base: 0,
            block_bytes: 512,
            slots: 4,
            pages: 16,
            payload_bytes: 4096,
            log_blocks: 32,
            entry: Entry::Valid,
            factors: 0,
        };
        let found = |generation: u64| {
            let mut flash = vec![0; layout.log_block(1, 1, layout.log_blocks) as usize];
            let payload_crc = Some(crc32c(&[0; 4096]));
            let header = Header { volume: 7, generation, follows: 1, payload_crc };
            let bytes = header.encode(&layout, 0);
            flash[..bytes.len()].copy_from_slice(&bytes);
            let mut read = |at: u64, len: u64| Ok(flash[at as usize..(at + len) as usize].to_vec());
            recover(&layout, 7, &mut read).map(|recovered| recovered.newest)
        };
        assert_eq!(found(u64::MAX - 1), Ok(u64::MAX - 1));
        assert_eq!(found(u64::MAX), Err(Unusable::Nothing));
    }
}
