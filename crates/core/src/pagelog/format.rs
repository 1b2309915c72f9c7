// SPDX-License-Identifier: MIT OR Apache-2.0
//! Bytes of log headers, batch headers and segments, little-endian, each with a CRC-32C of all its bytes (its own field
//! zero). docs/format.md has their layout.
//!
//! Invariant: only bytes that the same volume encoded for the same place decode; others give `None`.

use super::geometry::{ENTRIES_AT, ENTRY_BYTES, Geometry};
use super::words::{PAGES_MOST, POSITIONS_MOST};
use crate::buf::{Buf, PAGE};
use crate::checksum::crc32c;

const HEADER_MAGIC: u64 = u64::from_le_bytes(*b"LARDLOGH");
const BATCH_MAGIC: u64 = u64::from_le_bytes(*b"LARDLOGB");
const SEGMENT_MAGIC: u64 = u64::from_le_bytes(*b"LARDLOGS");
/// First byte of the checksum in each of them.
const CRC_AT: usize = 60;
/// First byte of the epoch in a batch header, behind the most entries that it can have.
const EPOCH_AT: usize = PAGE - 8;

/// The entry of a block: the first word of its slot, without flags that are not durable, and its checksum.
pub type Entry = (u64, u32);

/// The log header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Number of headers written before it.
    pub number: u64,
    /// Number of starts of the log.
    pub generation: u64,
    /// First position of this generation.
    pub begin: u64,
    /// The tail when it was written.
    pub tail: u64,
    /// Segments before this position are durable.
    pub segments: u64,
    /// Set if the log was stopped.
    pub sealed: Option<Seal>,
    /// The origin durably has every change before this position; set under policy `Ordered` only.
    pub replayed: Option<u64>,
}

/// The seal of a log that was stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seal {
    /// The head.
    pub head: u64,
    /// Stamp of its segments, so that no segment of an earlier stop is used.
    pub stamp: u64,
}

/// The header of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchHeader {
    pub generation: u64,
    /// Its own position.
    pub start: u64,
    /// The tail when it was closed.
    pub tail: u64,
    /// Positions before were durable when it was written.
    pub durable: u64,
    /// The epoch of its pages; 0 unless the policy is `Ordered`.
    pub epoch: u64,
    /// One entry a page.
    pub entries: Vec<Entry>,
}

fn put_words(buf: &mut [u8], words: &[u64]) {
    for (chunk, word) in buf.chunks_exact_mut(8).zip(words) {
        chunk.copy_from_slice(&word.to_le_bytes());
    }
}

fn word(buf: &[u8], index: usize) -> u64 {
    let bytes: [u8; 8] = buf[index * 8..index * 8 + 8].try_into().unwrap_or_default();
    u64::from_le_bytes(bytes)
}

fn seal(buf: &mut [u8]) {
    buf[CRC_AT..CRC_AT + 4].fill(0);
    let crc = crc32c(buf);
    buf[CRC_AT..CRC_AT + 4].copy_from_slice(&crc.to_le_bytes());
}

/// Whether the checksum matches; its own field counts as zero.
fn is_whole(buf: &[u8]) -> bool {
    let mut digest = crate::checksum::Digest::default();
    digest.update(&buf[..CRC_AT]);
    digest.update(&[0; 4]);
    digest.update(&buf[CRC_AT + 4..]);
    digest.finish().to_le_bytes() == buf[CRC_AT..CRC_AT + 4]
}

fn is_possible(position: u64) -> bool {
    position < POSITIONS_MOST
}

fn put_entries(buf: &mut [u8], entries: impl Iterator<Item = Entry>) {
    for (to, (word, crc)) in buf[ENTRIES_AT..].chunks_exact_mut(ENTRY_BYTES).zip(entries) {
        to[..8].copy_from_slice(&word.to_le_bytes());
        to[8..].copy_from_slice(&crc.to_le_bytes());
    }
}

fn entries(buf: &[u8], count: usize) -> Option<Vec<Entry>> {
    if count > (buf.len() - ENTRIES_AT) / ENTRY_BYTES {
        return None;
    }
    let chunks = buf[ENTRIES_AT..].chunks_exact(ENTRY_BYTES).take(count);
    let entry =
        |c: &[u8]| (word(c, 0), u32::from_le_bytes(c[8..12].try_into().unwrap_or_default()));
    Some(chunks.map(entry).collect())
}

impl Header {
    pub fn encode(&self, log: &Geometry) -> Buf {
        let mut buf = Buf::zeroed(PAGE);
        let (sealed, stamp) = self.sealed.map_or((0, 0), |seal| (seal.head + 1, seal.stamp));
        let Self { number, generation, begin, tail, segments, .. } = *self;
        put_words(
            &mut buf,
            &[HEADER_MAGIC, log.identity(), number, generation, begin, tail, segments],
        );
        // After the checksum, whose word has no room for it.
        let replayed = self.replayed.map_or(0, |position| position + 1);
        put_words(&mut buf[ENTRIES_AT..], &[sealed, stamp, replayed]);
        seal(&mut buf);
        buf
    }

    pub fn decode(buf: &[u8], log: &Geometry) -> Option<Self> {
        if word(buf, 0) != HEADER_MAGIC || word(buf, 1) != log.identity() || !is_whole(buf) {
            return None;
        }
        let at = |i| word(buf, i);
        let header = Self {
            number: at(2),
            generation: at(3),
            begin: at(4),
            tail: at(5),
            segments: at(6),
            sealed: word(buf, ENTRIES_AT / 8)
                .checked_sub(1)
                .map(|head| Seal { head, stamp: word(buf, ENTRIES_AT / 8 + 1) }),
            replayed: word(buf, ENTRIES_AT / 8 + 2).checked_sub(1),
        };
        let Self { number, generation, begin, tail, segments, .. } = header;
        let possible = [number, generation, begin, tail, segments].into_iter().all(is_possible);
        let sealed = |head: u64| {
            is_possible(head) && begin.max(segments) <= head && log.may_span(tail, segments, head)
        };
        let sound = possible
            && segments.is_multiple_of(log.segment())
            && header.replayed.is_none_or(is_possible)
            && header.sealed.is_none_or(|seal| sealed(seal.head));
        sound.then_some(header)
    }
}

impl BatchHeader {
    /// Its bytes.
    pub fn encode(&self, log: &Geometry) -> Buf {
        let mut buf = Buf::zeroed(log.page() as usize);
        let count = self.entries.len() as u64;
        let Self { generation, start, tail, durable, epoch, .. } = *self;
        put_words(
            &mut buf,
            &[BATCH_MAGIC, log.identity(), generation, start, tail, durable, count],
        );
        put_entries(&mut buf, self.entries.iter().copied());
        put_words(&mut buf[EPOCH_AT..], &[epoch]);
        seal(&mut buf);
        buf
    }

    pub fn decode(buf: &[u8], log: &Geometry) -> Option<Self> {
        if word(buf, 0) != BATCH_MAGIC || word(buf, 1) != log.identity() || !is_whole(buf) {
            return None;
        }
        let count = word(buf, 6);
        let entries = entries(buf, usize::try_from(count).ok()?)?;
        let [generation, start, tail, durable] = [2, 3, 4, 5].map(|i| word(buf, i));
        let epoch = word(buf, EPOCH_AT / 8);
        let sound = [generation, start, durable].into_iter().all(is_possible)
            && tail <= start
            && epoch < PAGES_MOST;
        sound.then_some(Self { generation, start, tail, durable, epoch, entries })
    }
}

/// Bytes of the segment of the positions from `first` on. `stamp`: of a seal, else 0.
pub fn encode_segment(
    first: u64,
    stamp: u64,
    entries: impl ExactSizeIterator<Item = Entry>,
    log: &Geometry,
) -> Buf {
    let mut buf = Buf::zeroed(log.segment_bytes() as usize);
    put_words(&mut buf, &[SEGMENT_MAGIC, log.identity(), first, entries.len() as u64, stamp]);
    put_entries(&mut buf, entries);
    seal(&mut buf);
    buf
}

/// The entries of the segment of the positions from `first` on, and its stamp. A segment of a seal may be filled in part.
pub fn decode_segment(buf: &[u8], first: u64, log: &Geometry) -> Option<(Vec<Entry>, u64)> {
    let magic = [SEGMENT_MAGIC, log.identity(), first];
    let right = magic.iter().enumerate().all(|(i, expected)| word(buf, i) == *expected);
    let filled = word(buf, 3);
    if !right || filled > log.segment() || !is_whole(buf) {
        return None;
    }
    Some((entries(buf, filled as usize)?, word(buf, 4)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: Geometry =
        Geometry { base: 0, blocks: 2_048, page_bytes: 4096, batch_pages: 64, volume: 7 };

    #[test]
    fn encoded_bytes_decode_and_a_flipped_bit_is_detected() {
        let header = Header {
            number: 9,
            generation: 3,
            begin: 100,
            tail: 50,
            segments: 512,
            sealed: Some(Seal { head: 700, stamp: 5 }),
            replayed: Some(620),
        };
        let batch = BatchHeader {
            generation: 3,
            start: 640,
            tail: 5,
            durable: 600,
            epoch: 12,
            entries: vec![(1 << 40, 2), (3, u32::MAX)],
        };
        let list: Vec<Entry> = (0..LOG.segment()).map(|i| (i * 3, i as u32)).collect();
        let mut bytes = header.encode(&LOG);
        assert_eq!(Header::decode(&bytes, &LOG), Some(header));
        bytes[70] ^= 1;
        assert_eq!(Header::decode(&bytes, &LOG), None);
        let mut bytes = batch.encode(&LOG);
        assert_eq!(BatchHeader::decode(&bytes, &LOG), Some(batch));
        assert_eq!(BatchHeader::decode(&bytes, &Geometry { volume: 8, ..LOG }), None);
        bytes[4095] ^= 128;
        assert_eq!(BatchHeader::decode(&bytes, &LOG), None);
        let mut bytes = encode_segment(512, 8, list.iter().copied(), &LOG);
        assert_eq!(decode_segment(&bytes, 512, &LOG), Some((list, 8)));
        assert_eq!(decode_segment(&bytes, 256, &LOG), None);
        bytes[100] ^= 1;
        assert_eq!(decode_segment(&bytes, 512, &LOG), None);
    }
}
