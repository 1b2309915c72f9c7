// SPDX-License-Identifier: MIT OR Apache-2.0
//! Logs whose checksums match and whose numbers no log has: recovery refuses them, or costs no more than a log of this size.

use std::cell::Cell;

use super::format::{BatchHeader, Entry, Header, Seal, encode_segment};
use super::words::{Kind, POSITIONS_MOST, slot_word};
use super::*;
use crate::buf::Buf;

/// Pages of the origin.
const PAGES: u64 = 1_000;
const HEADER: Entry = (0, 0);

/// A log, and what of it is not zero on flash.
struct Flash {
    log: Geometry,
    parts: Vec<(u64, Buf)>,
    /// Bytes that were read.
    read: Cell<u64>,
}

/// The only range of pages that a start makes zero again.
fn redo(found: &Found) -> (u64, u64) {
    assert_eq!(found.redo.len(), 1);
    (found.redo[0].start, found.redo[0].end)
}

fn tombstone(page: u64, count: u32) -> Entry {
    (slot_word(Kind::Tombstone, page, 0), count)
}

impl Flash {
    fn new(header: Header) -> Self {
        let log = Geometry { base: 0, blocks: 0, page_bytes: 4096, batch_pages: 4, volume: 7 };
        let log = log.grown_to(8 << 20).expect("it fits");
        Self { log, parts: vec![(log.header(0), header.encode(&log))], read: Cell::new(0) }
    }

    /// A log that was stopped with these entries.
    fn sealed(entries: &[Entry]) -> Self {
        let head = entries.len() as u64;
        let segment = Self::new(EMPTY).log.segment();
        let (segments, sealed) = (head / segment * segment, Some(Seal { head, stamp: 5 }));
        let mut flash = Self::new(Header { segments, sealed, ..EMPTY });
        let log = flash.log;
        for (place, part) in entries.chunks(log.segment() as usize).enumerate() {
            let first = place as u64 * log.segment();
            let bytes = encode_segment(first, 5, part.iter().copied(), &log);
            flash.parts.push((log.segment_at(first), bytes));
        }
        flash
    }

    /// Adds a batch at its position, in both copies.
    fn batch(mut self, batch: &BatchHeader, at: u64) -> Self {
        let bytes = batch.encode(&self.log);
        for copy in [0, 1] {
            self.parts.push((self.log.block(at + copy), Buf::copy_of(&bytes)));
        }
        self
    }

    fn found(&self, pages: u64) -> Result<Found, OpenError> {
        let read = |offset: u64, mut buf: Buf| {
            buf.fill(0);
            self.read.set(self.read.get() + buf.len() as u64);
            let range = offset..offset + buf.len() as u64;
            for (at, part) in self.parts.iter().filter(|(at, _)| range.contains(at)) {
                let at = (at - offset) as usize;
                let len = part.len().min(buf.len() - at);
                buf[at..at + len].copy_from_slice(&part[..len]);
            }
            Ok(buf)
        };
        let settings = LogSettings { policy: LogPolicy::Full, second_chance: true };
        Ok(Inspection::new(self.log, settings, pages, read)?.found)
    }
}

const EMPTY: Header = Header {
    number: 0,
    generation: 0,
    begin: 0,
    tail: 0,
    segments: 0,
    sealed: None,
    replayed: None,
};

#[test]
fn a_tombstone_of_more_pages_than_the_origin_has_is_damage() {
    let pages = |first, count| Flash::sealed(&[HEADER, HEADER, tombstone(first, count)]);
    assert_eq!(pages(10, 990).found(PAGES).map(|found| redo(&found)), Ok((10, 1_000)));
    assert!(pages(10, 991).found(PAGES).is_err());
    assert!(pages(10, u32::MAX).found(PAGES).is_err());
    assert!(pages(PAGES_MOST - 1, u32::MAX).found(PAGES_MOST).is_err());
    let page = |page| Flash::sealed(&[HEADER, HEADER, (slot_word(Kind::Page, page, 0), 0)]);
    assert!(page(999).found(PAGES).is_ok() && page(1_000).found(PAGES).is_err());
}

#[test]
fn tombstones_of_a_whole_origin_cost_no_more_than_their_entries() {
    let all = tombstone(0, u32::MAX);
    let mut entries = vec![HEADER, HEADER];
    entries.resize(1_900, all);
    let found = Flash::sealed(&entries).found(1 << 40).expect("it is sound");
    assert_eq!(redo(&found), (0, u64::from(u32::MAX)));
}

#[test]
fn a_header_with_positions_that_no_log_reaches_is_refused() {
    let header = Header { sealed: Some(Seal { head: 30, stamp: 5 }), ..EMPTY };
    let found = |header| Flash::new(header).found(PAGES);
    let blocks = u64::from(Flash::new(EMPTY).log.blocks);
    for value in [POSITIONS_MOST, u64::MAX - 1, u64::MAX] {
        for header in [
            Header { number: value, ..header },
            Header { generation: value, ..header },
            Header { begin: value, ..header },
            Header { tail: value, ..header },
            Header { segments: value, ..header },
            Header { begin: value, sealed: None, ..header },
            Header { tail: value, sealed: None, ..header },
        ] {
            assert_eq!(found(header), Err(OpenError::NoHeader), "{header:?}");
        }
    }
    // More positions than slots, and marks behind the head.
    for (begin, tail, head) in [(0, 0, blocks + 1), (31, 0, 30), (0, 5, u64::MAX - 1)] {
        let header = Header { begin, tail, sealed: Some(Seal { head, stamp: 5 }), ..EMPTY };
        assert_eq!(found(header), Err(OpenError::NoHeader), "{header:?}");
    }
}

#[test]
fn a_batch_with_positions_that_contradict_each_other_is_refused() {
    let header = Header { generation: 1, ..EMPTY };
    let batch = BatchHeader {
        generation: 1,
        start: 0,
        tail: 0,
        durable: 0,
        epoch: 0,
        entries: vec![(slot_word(Kind::Lost, 3, 0), 0)],
    };
    let found = |batch: &BatchHeader, at| Flash::new(header).batch(batch, at).found(PAGES);
    assert_eq!(found(&batch, 0).map(|found| found.head), Ok(3));
    assert_eq!(found(&BatchHeader { tail: 1, ..batch.clone() }, 0).map(|f| f.head), Ok(0));
    assert!(found(&BatchHeader { durable: 1 << 40, ..batch.clone() }, 0).is_err());
    // A batch header ahead of the place where it lies.
    let ahead = BatchHeader { start: 9, durable: 9, ..batch };
    assert_eq!(found(&ahead, 5).map(|found| found.head), Ok(0));
    // Found by fuzzing: a tail far ahead of the segments, which a start would have to write one by one.
    let ahead = |tail, segments| Flash::new(Header { tail, segments, ..header }).found(PAGES);
    let segment = Flash::new(header).log.segment();
    assert!(ahead(5_000, 5_000 / segment * segment).is_ok_and(|found| found.tail == found.head));
    assert!(matches!(ahead(5_000, segment), Err(OpenError::Range { .. })));
}

#[test]
fn chains_that_join_each_other_cost_no_more_than_one() {
    let segment = Flash::new(EMPTY).log.segment();
    // The last segment is damaged, and no chain reaches its end.
    let header = Header { generation: 1, segments: 8 * segment, ..EMPTY };
    let mut flash = Flash::new(header);
    // Each batch with an entry joins the chain of those without.
    for start in 0..8 * segment - 4 {
        let entries = if start % 2 == 0 { vec![] } else { vec![(slot_word(Kind::Lost, 3, 0), 0)] };
        let batch = BatchHeader { generation: 1, start, tail: 0, durable: 0, epoch: 0, entries };
        flash.parts.push((flash.log.block(start), batch.encode(&flash.log)));
    }
    assert!(matches!(flash.found(PAGES), Err(OpenError::Missing { .. })));
    let (read, log) = (flash.read.get(), flash.log.bytes());
    assert!(read <= 4 * log, "{read} bytes were read of a log of {log}");
}
