// SPDX-License-Identifier: MIT OR Apache-2.0
//! Recovery: reads the state of every slot from flash (design rules 8 and 9).
//!
//! 1. Of the halves with a complete header of this volume, the one with the newer generation is used. Before a half is
//!    written, its header marks it as incomplete, so that no later checkpoint reuses the generation, and the blocks, of one
//!    that a crash interrupted. A header has two copies, of which the newer is used: without it recovery would not read the
//!    log that invalidates pages. It contains its own place, so that a misplaced write is not used.
//! 2. Its payload is the state at its checkpoint; the records of its log are applied in order.
//! 3. If its payload is damaged, the older payload, the whole older log and then the newer log give the same state: all
//!    records enqueued while the newer payload was written went to both logs.
//! 4. A log ends at the first block that does not continue the chain. If a later batch exists, a block is damaged in both
//!    copies and the regions that it touched are unknown: the metadata is damaged.
//!
//! 5. A mixed slot's pages are listed in its directory, in the slot itself. If that is damaged, none of its pages is valid.
//!
//! Recovery writes nothing, so it can be interrupted and repeated. The caller flushes the device before it attaches the
//! result: the last block may have been read from a volatile write cache.

use std::collections::BTreeMap;

use super::layout::{HEADER_BYTES, Layout};
use super::record::{Block, LogEnd};
use crate::bytes::{u32_at, u64_at};
use crate::cache::units::directory::{self, Single};
use crate::cache::units::warm::{Content, Held};
use crate::checksum::crc32c;
use crate::mutant;
use crate::request::Errno;

const MAGIC: [u8; 8] = *b"LARDRMET";
/// The version of the format.
pub const VERSION: u32 = 1;

/// The recovered state of a shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recovered {
    /// The current half.
    pub half: u8,
    /// The end of its log.
    pub end: LogEnd,
    /// The newest generation written.
    pub newest: u64,
    /// The header of the current half, if only one copy of it is intact: both are written again before the log gets records.
    pub lone_header: Option<Header>,
    /// An entry per slot, see [`Layout`].
    pub payload: Vec<u8>,
    /// The directories of mixed slots; an empty one is damaged.
    pub directories: BTreeMap<u32, Vec<Single>>,
}

/// A valid page of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ValidPage {
    /// The shard's own number of its unit.
    pub unit: u32,
    /// The page of the unit.
    pub page: u32,
    /// Its place in the slot, in pages.
    pub place: u32,
}

impl Recovered {
    /// The slots in use.
    pub(crate) fn held<'a>(&'a self, layout: &Layout) -> impl Iterator<Item = Held<'a>> + use<'a> {
        let layout = *layout;
        let entries = self.payload.chunks_exact(layout.entry_bytes());
        (0..layout.slots)
            .zip(entries)
            .filter_map(move |(slot, entry)| layout.entry.held(slot, entry, self.directory(slot)))
    }

    fn directory(&self, slot: u32) -> &[Single] {
        self.directories.get(&slot).map(Vec::as_slice).unwrap_or_default()
    }

    fn of_slot(&self, slot: u32, layout: &Layout) -> Option<Held<'_>> {
        let at = slot as usize * layout.entry_bytes();
        let entry = self.payload.get(at..at + layout.entry_bytes())?;
        layout.entry.held(slot, entry, self.directory(slot))
    }

    /// Whether the slot is in use.
    #[must_use]
    pub fn is_used(&self, slot: u32, layout: &Layout) -> bool {
        self.of_slot(slot, layout).is_some()
    }

    /// The valid pages of the slot; none of a slot that is not in use.
    #[must_use]
    pub fn pages(&self, slot: u32, layout: &Layout) -> Vec<ValidPage> {
        let Some(held) = self.of_slot(slot, layout) else { return Vec::new() };
        let valid = |place: &u32| {
            held.valid.is_none_or(|bits| bits[*place as usize / 8] >> (place % 8) & 1 == 1)
        };
        let places = (0..layout.pages).filter(valid);
        let page = |place: u32| match held.content {
            Content::Unit(unit) => Some(ValidPage { unit, page: place, place }),
            Content::Singles(singles) => {
                let single = singles.get(place as usize).filter(|single| single.is_there())?;
                Some(ValidPage { unit: single.unit, page: single.page, place })
            }
        };
        places.filter_map(page).collect()
    }

    /// The slot's unit (the shard's own number), if it holds one.
    #[must_use]
    pub fn unit(&self, slot: u32, layout: &Layout) -> Option<u32> {
        match self.of_slot(slot, layout)?.content {
            Content::Unit(unit) => Some(unit),
            Content::Singles(_) => None,
        }
    }

    /// The dirty regions of the slot's unit.
    #[must_use]
    pub fn dirty(&self, slot: u32, layout: &Layout) -> u64 {
        self.of_slot(slot, layout).map_or(0, |held| held.dirty)
    }

    /// The log's generation, and its blocks.
    #[must_use]
    pub fn reached(&self) -> (u64, u64) {
        (self.end.generation, self.end.sequence)
    }

    /// The reference factors of the origin's units, if the layout has them.
    pub fn factors(&self, layout: &Layout) -> impl Iterator<Item = u16> {
        let bytes = self.payload.get(layout.factors_at()..).unwrap_or_default();
        let factors = bytes.chunks_exact(2).map(|b| u16::from_le_bytes([b[0], b[1]]));
        factors.take(layout.factors as usize)
    }
}

/// Why no state can be recovered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unusable {
    /// There is no complete checkpoint of this volume.
    Nothing,
    /// A checkpoint or the log is damaged.
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
    /// The generation whose log this one's continues.
    pub follows: u64,
    /// CRC-32C of the payload; none while the half is being written.
    pub payload_crc: Option<u32>,
}

impl Header {
    /// Its bytes, for byte `at` of the device.
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
        // The last generation has no successor, so it is rejected.
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

/// The writes, in order, that format a shard's area for an empty cache of this volume. The caller makes them durable before
/// the volume's label. Recovery ignores halves of other volumes.
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

/// Recovers one shard's state.
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
            let end = LogEnd::first(volume, older.generation, layout);
            replay(layout, older_half, end, state, read)?;
        }
        payload = state;
    }
    let Some(mut payload) = payload else { return Err(Unusable::Damaged) };
    let end = LogEnd::first(volume, newest.generation, layout);
    let end = replay(layout, half, end, &mut payload, read)?;
    let directories = read_directories(layout, volume, &payload, read)?;
    if mutant::is_active("clean-lines-dropped") && layout.entry.is_expendable() {
        payload.fill(0);
    }
    Ok(Recovered { half, end, newest: newest_written, lone_header, payload, directories })
}

/// The directories of all mixed slots.
fn read_directories(
    layout: &Layout,
    volume: u64,
    payload: &[u8],
    read: Read<'_>,
) -> Result<BTreeMap<u32, Vec<Single>>, Unusable> {
    let mut directories = BTreeMap::new();
    for (slot, entry) in (0..layout.slots).zip(payload.chunks_exact(layout.entry_bytes())) {
        if layout.entry.is_mixed(entry) {
            let (at, len) = layout.directory(slot);
            let bytes = read(at, len).map_err(Unusable::Device)?;
            let found = directory::decode(&bytes, volume, slot, layout.pages);
            directories.insert(slot, found.unwrap_or_default());
        }
    }
    Ok(directories)
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

/// Applies a log to a payload; returns the end of the log.
fn replay(
    layout: &Layout,
    half: u8,
    end: LogEnd,
    payload: &mut [u8],
    read: Read<'_>,
) -> Result<LogEnd, Unusable> {
    let len = u64::from(layout.log_blocks) * layout.block_bytes;
    let mut copies = Vec::new();
    for copy in [0, 1] {
        copies.push(read(layout.log_block(half, copy, 0), len).map_err(Unusable::Device)?);
    }
    let block = layout.block_bytes as usize;
    let at = |copy: usize, index: usize| {
        let bytes = copies[copy].get(index * block..(index + 1) * block)?;
        Block::decode(bytes, &end, layout)
    };
    let (mut next, mut all) = (end, Vec::new());
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

    /// A checkpoint increments the newest generation.
    #[test]
    fn the_last_generation_is_rejected() {
        let layout = Layout {
            base: 0,
            block_bytes: 512,
            slots: 4,
            pages: 16,
            payload_bytes: 4096,
            log_blocks: 32,
            entry: Entry::Valid,
            factors: 0,
            slots_at: 0,
            slot_stride: 0,
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
