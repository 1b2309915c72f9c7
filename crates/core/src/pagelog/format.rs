// SPDX-License-Identifier: MIT OR Apache-2.0
//! Bytes of a log's header, of batch heads and of segments, little-endian, each with a CRC-32C of all of it
//! (its own field zero). Their layout is in docs/format.md.
//!
//! Invariant: what decodes was encoded by the same volume for the same place; anything else is `None`.

use super::geometry::{ENTRY_BYTES, Geometry, HEAD_BYTES};
use crate::buf::{Buf, PAGE};
use crate::checksum::crc32c;

const HEADER_MAGIC: u64 = u64::from_le_bytes(*b"LARDLOGH");
const BATCH_MAGIC: u64 = u64::from_le_bytes(*b"LARDLOGB");
const SEGMENT_MAGIC: u64 = u64::from_le_bytes(*b"LARDLOGS");
/// Where the checksum lies in each of them.
const CRC_AT: usize = 60;

/// What is kept of a block: its word without what only memory knows, and its checksum.
pub type Entry = (u64, u32);

/// The log's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// How many were written before it.
    pub number: u64,
    /// Counts starts of the log.
    pub generation: u64,
    /// Where this generation began to write.
    pub begin: u64,
    /// The front by then.
    pub front: u64,
    /// Segments before this position are durable.
    pub segments: u64,
    /// Set if the log was stopped.
    pub sealed: Option<Seal>,
}

/// A log that was stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seal {
    /// Where its rear is.
    pub rear: u64,
    /// What its segments carry, so that none of an earlier stop counts.
    pub stamp: u64,
}

/// The head of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    pub generation: u64,
    /// Its own position.
    pub start: u64,
    /// The front when it was closed.
    pub front: u64,
    /// All before was durable by then.
    pub durable: u64,
    /// One a page.
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

/// Whether the bytes are whole; looks at a copy, since the field counts as zero.
fn is_whole(buf: &[u8]) -> bool {
    let mut digest = crate::checksum::Digest::default();
    digest.update(&buf[..CRC_AT]);
    digest.update(&[0; 4]);
    digest.update(&buf[CRC_AT + 4..]);
    digest.finish().to_le_bytes() == buf[CRC_AT..CRC_AT + 4]
}

fn put_entries(buf: &mut [u8], entries: impl Iterator<Item = Entry>) {
    for (to, (word, crc)) in buf[HEAD_BYTES..].chunks_exact_mut(ENTRY_BYTES).zip(entries) {
        to[..8].copy_from_slice(&word.to_le_bytes());
        to[8..].copy_from_slice(&crc.to_le_bytes());
    }
}

fn entries(buf: &[u8], count: usize) -> Option<Vec<Entry>> {
    if count > (buf.len() - HEAD_BYTES) / ENTRY_BYTES {
        return None;
    }
    let chunks = buf[HEAD_BYTES..].chunks_exact(ENTRY_BYTES).take(count);
    let entry =
        |c: &[u8]| (word(c, 0), u32::from_le_bytes(c[8..12].try_into().unwrap_or_default()));
    Some(chunks.map(entry).collect())
}

impl Header {
    pub fn encode(&self, log: &Geometry) -> Buf {
        let mut buf = Buf::zeroed(PAGE);
        let (sealed, stamp) = self.sealed.map_or((0, 0), |seal| (seal.rear + 1, seal.stamp));
        let Self { number, generation, begin, front, segments, .. } = *self;
        put_words(
            &mut buf,
            &[HEADER_MAGIC, log.identity(), number, generation, begin, front, segments],
        );
        // Behind the checksum, whose word has no room for it.
        put_words(&mut buf[HEAD_BYTES..], &[sealed, stamp]);
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
            front: at(5),
            segments: at(6),
            sealed: word(buf, HEAD_BYTES / 8)
                .checked_sub(1)
                .map(|rear| Seal { rear, stamp: word(buf, HEAD_BYTES / 8 + 1) }),
        };
        let sound = header.segments.is_multiple_of(log.segment())
            && header.sealed.is_none_or(|seal| seal.rear >= header.front);
        sound.then_some(header)
    }
}

impl Head {
    /// Bytes of the head of a batch.
    pub fn encode(&self, log: &Geometry) -> Buf {
        let mut buf = Buf::zeroed(log.page() as usize);
        let count = self.entries.len() as u64;
        let Self { generation, start, front, durable, .. } = *self;
        put_words(
            &mut buf,
            &[BATCH_MAGIC, log.identity(), generation, start, front, durable, count],
        );
        put_entries(&mut buf, self.entries.iter().copied());
        seal(&mut buf);
        buf
    }

    pub fn decode(buf: &[u8], log: &Geometry) -> Option<Self> {
        if word(buf, 0) != BATCH_MAGIC || word(buf, 1) != log.identity() || !is_whole(buf) {
            return None;
        }
        let count = word(buf, 6);
        let entries = entries(buf, usize::try_from(count).ok()?)?;
        let (generation, start) = (word(buf, 2), word(buf, 3));
        Some(Self { generation, start, front: word(buf, 4), durable: word(buf, 5), entries })
    }
}

/// Bytes of the segment that covers the positions from `first` on. One of a stop carries its stamp; else 0.
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

/// What the segment says of the positions from `first` on, fewer than it covers where a stop wrote it; and the
/// stamp.
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
    fn what_is_written_is_read_and_a_flipped_bit_is_noticed() {
        let header = Header {
            number: 9,
            generation: 3,
            begin: 100,
            front: 50,
            segments: 512,
            sealed: Some(Seal { rear: 700, stamp: 5 }),
        };
        let head = Head {
            generation: 3,
            start: 640,
            front: 5,
            durable: 600,
            entries: vec![(1 << 40, 2), (3, u32::MAX)],
        };
        let list: Vec<Entry> = (0..LOG.segment()).map(|i| (i * 3, i as u32)).collect();
        let mut bytes = header.encode(&LOG);
        assert_eq!(Header::decode(&bytes, &LOG), Some(header));
        bytes[70] ^= 1;
        assert_eq!(Header::decode(&bytes, &LOG), None);
        let mut bytes = head.encode(&LOG);
        assert_eq!(Head::decode(&bytes, &LOG), Some(head));
        assert_eq!(Head::decode(&bytes, &Geometry { volume: 8, ..LOG }), None);
        bytes[4095] ^= 128;
        assert_eq!(Head::decode(&bytes, &LOG), None);
        let mut bytes = encode_segment(512, 8, list.iter().copied(), &LOG);
        assert_eq!(decode_segment(&bytes, 512, &LOG), Some((list, 8)));
        assert_eq!(decode_segment(&bytes, 256, &LOG), None);
        bytes[100] ^= 1;
        assert_eq!(decode_segment(&bytes, 512, &LOG), None);
    }
}
