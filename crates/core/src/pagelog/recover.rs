// SPDX-License-Identifier: MIT OR Apache-2.0
//! Recovery of a log from flash, after a stop or a crash (FaCE 5.2; rules L3, L4, L7).
//!
//! 1. The newest intact log header contains the end of the durable segments, and the generation with its first position.
//! 2. The last of those segments contains the start of a batch. From there the chain of batch headers is followed to its end,
//!    at most two segments. The newest batch header contains the tail.
//! 3. A batch beyond the durable mark is valid only if every page matches its checksum: a torn batch ends the log.
//! 4. Segments describe the positions between the tail and the chain. If one is damaged, the chain is followed from the first
//!    batch header that is still on flash.
//! 5. The segments of a sealed log describe all positions, with valid and dirty pages; steps 2 to 4 are skipped.
//! 6. The slots are replayed in order of position. Valid pages are dirty and unreferenced, unless the log was sealed. The origin
//!    has what a log under `Ordered` replayed to it, and the entries behind that mark record which pages are dirty.
//!
//! Recovery writes nothing, so it can be repeated.

use std::collections::BTreeSet;
use std::ops::{Deref, Range};
use std::sync::atomic::AtomicU64;

use super::error::OpenError;
use super::format::{BatchHeader, Entry, Header, decode_segment};
use super::geometry::{BATCH_HEADERS, Geometry};
use super::host::{Host, insist};
use super::words::{
    BUFFERS, DIRTY, EPOCHS_MOST, Kind, REPLAYED, VALID, Words, kind_of, page_of, slot_word,
};
use crate::buf::{Buf, PAGE};
use crate::checksum::crc32c;
use crate::mutant;
use crate::ranges;

/// A recovered log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The newest log header.
    pub(super) header: Header,
    /// The tail.
    pub tail: u64,
    /// The head.
    pub head: u64,
    /// Whether its pages are used.
    pub warm: bool,
    /// Pages of tombstones: the start makes the origin zero there again.
    pub redo: Vec<Range<u64>>,
    /// Blocks beyond the head that are dropped, because the first batch of them is torn or corrupt.
    pub torn: u64,
    /// Bytes that were read.
    pub read_bytes: u64,
}

impl Found {
    /// The progress of the log, as [`LogStatus::reached`](super::LogStatus::reached). An earlier copy has less.
    #[must_use]
    pub fn reached(&self) -> (u64, u64) {
        (self.header.generation, self.head)
    }
}

/// A log on flash that is being read.
pub(super) struct Reader<'a, H, M> {
    pub host: &'a H,
    pub words: &'a Words<M>,
    pub log: &'a Geometry,
    pub read_bytes: u64,
    pub torn: u64,
    /// See [`Host::ignores`]; in order.
    pub ignored: Vec<Range<u64>>,
}

/// The parts of a range that are not in another one.
fn outside(pages: Range<u64>, other: &Range<u64>) -> impl Iterator<Item = Range<u64>> + use<> {
    let before = pages.start..pages.end.min(other.start);
    let after = pages.start.max(other.end)..pages.end;
    [before, after].into_iter().filter(|part| !part.is_empty())
}

/// A batch of the chain.
struct Link {
    /// The end of the batch before; the end of the ring may lie between.
    after: u64,
    start: u64,
    durable: u64,
    epoch: u64,
    entries: Vec<Entry>,
}

/// Consecutive batches.
struct Chain {
    links: Vec<Link>,
    end: u64,
    tail: u64,
    durable: u64,
}

/// Whether a copy of a batch header belongs at a position. The other copies may be damaged.
fn is_copy_at(batch: &BatchHeader, position: u64) -> bool {
    (batch.start..batch.start + u64::from(BATCH_HEADERS)).contains(&position)
}

impl<H: Host, M: Deref<Target = [AtomicU64]>> Reader<'_, H, M> {
    /// Reads a sealed log into its memory, which is all zero; `None` if it is not sealed, or a segment is damaged.
    pub async fn sealed(&mut self, header: Header) -> Result<Option<Found>, OpenError> {
        let Some(seal) = header.sealed else { return Ok(None) };
        if self.load_segments(&header, header.tail..seal.head).await? {
            return Ok(Some(self.warm(header, header.tail, seal.head)));
        }
        (0..self.log.blocks).for_each(|slot| self.words.set_slot(slot, 0));
        Ok(None)
    }

    /// Recovers a log after a crash, into memory that is all zero.
    pub async fn replay(&mut self, header: Header) -> Result<Found, OpenError> {
        let mut chain = match self.batch_behind_segments(&header).await? {
            Some(start) => self.follow(&header, start, &BTreeSet::new()).await?,
            None => self.whole_chain(&header).await?,
        };
        self.check_beyond(&header, &chain).await?;
        if header.sealed.is_none() && !mutant::is_active("page-log-torn-batch") {
            self.cut_torn(&mut chain).await?;
        }
        let least = Self::least(&header);
        if chain.end < least.max(chain.durable) {
            let (end, least) = (chain.end, least.max(chain.durable));
            return Err(OpenError::Missing { end, durable: least });
        }
        if !self.log.may_span(chain.tail, header.segments, chain.end) {
            return Err(OpenError::Range { tail: chain.tail, end: chain.end });
        }
        let first = chain.links.first().map_or(chain.end, |link| link.start);
        if chain.tail < first && !self.load_segments(&header, chain.tail..first).await? {
            let whole = self.whole_chain(&header).await?;
            let from = whole.links.first().map_or(whole.end, |link| link.start);
            if from > self.log.batch_start(chain.tail) || whole.end < first {
                return Err(OpenError::Missing { end: whole.end, durable: first });
            }
            let before = whole.links.iter().filter(|link| link.start < first);
            before.for_each(|link| self.load(&header, link));
        }
        chain.links.iter().for_each(|link| self.load(&header, link));
        Ok(self.warm(header, chain.tail, chain.end))
    }

    /// The log with its recovered pages.
    fn warm(&self, header: Header, tail: u64, head: u64) -> Found {
        self.words.rebuild(tail..head);
        let redo = self.redo(header.replayed.unwrap_or(0).max(tail)..head);
        let (torn, read_bytes) = (self.torn, self.read_bytes);
        Found { header, tail, head, warm: true, redo, torn, read_bytes }
    }

    /// An empty log: its pages are dropped. It begins after all positions that were ever used.
    pub fn cold(&self, header: Header) -> Found {
        let used = header.tail.max(header.segments).max(header.begin);
        let next = used + 3 * u64::from(self.log.blocks);
        let head = next.next_multiple_of(self.log.segment());
        Found {
            header,
            tail: head,
            head,
            warm: false,
            redo: Vec::new(),
            torn: 0,
            read_bytes: self.read_bytes,
        }
    }

    async fn read(&mut self, offset: u64, len: u64) -> Result<Buf, OpenError> {
        self.read_bytes += len;
        let attempt = async || self.host.read_flash(offset, Buf::with_len(len as usize)).await;
        insist(self.host, attempt).await.map_err(|errno| OpenError::Device { offset, errno })
    }

    pub async fn header(&mut self) -> Result<Header, OpenError> {
        let mut newest: Option<Header> = None;
        for place in 0..2 {
            let bytes = self.read(self.log.header(place), PAGE as u64).await?;
            let header = Header::decode(&bytes, self.log);
            if header.is_some_and(|h| newest.is_none_or(|n| n.number < h.number)) {
                newest = header;
            }
        }
        newest.ok_or(OpenError::NoHeader)
    }

    /// The start of a batch from which the chain covers all positions without a segment; `None` if the last segment is
    /// damaged.
    async fn batch_behind_segments(&mut self, header: &Header) -> Result<Option<u64>, OpenError> {
        let segment = self.log.segment();
        if header.segments < segment || header.segments <= header.tail {
            return Ok(Some(header.tail));
        }
        let first = header.segments - segment;
        let bytes = self.read(self.log.segment_at(first), self.log.segment_bytes()).await?;
        let entries = decode_segment(&bytes, first, self.log);
        let entries = entries.filter(|(e, _)| e.len() as u64 == segment);
        let Some((entries, _)) = entries else { return Ok(None) };
        // The last batch that begins in it; the first entry may be the second copy of a header.
        let is_header = |i: &usize| kind_of(entries[*i].0) == Kind::Header;
        let starts = |i: &usize| is_header(i) && !is_header(&(i - 1));
        let start = (1..entries.len()).rev().find(starts).map_or(0, |i| first + i as u64);
        Ok(Some(start.max(header.tail)))
    }

    /// The chain from the first batch that is not overwritten; earlier ones are evicted. The chain of a batch header from an
    /// older lap ends before the durable positions.
    async fn whole_chain(&mut self, header: &Header) -> Result<Chain, OpenError> {
        let mut start = header.tail;
        let mut seen = BTreeSet::new();
        let mut longest = self.follow(header, start, &seen).await?;
        seen.extend(longest.links.iter().map(|link| link.start));
        while longest.end < Self::least(header) && start < header.tail + u64::from(self.log.blocks)
        {
            start += 1;
            let bytes = self.read(self.log.block(start), self.log.page()).await?;
            let batch =
                BatchHeader::decode(&bytes, self.log).filter(|h| self.counts(header, h, h.start));
            if let Some(batch) = batch.filter(|h| h.start >= header.tail && is_copy_at(h, start)) {
                let chain = self.follow(header, batch.start, &seen).await?;
                seen.extend(chain.links.iter().map(|link| link.start));
                if chain.end > longest.end {
                    longest = chain;
                }
            }
        }
        Ok(longest)
    }

    /// The log header states that positions before this are durable.
    fn least(header: &Header) -> u64 {
        let sealed = header.sealed.map_or(0, |seal| seal.head);
        header.segments.max(header.begin).max(sealed).max(header.replayed.unwrap_or(0))
    }

    /// Follows the chain of batch headers from a batch's position, until it joins a chain with one of the batches `seen`,
    /// which then ends later. So each batch is read once, whatever headers a damaged log has.
    async fn follow(
        &mut self,
        header: &Header,
        from: u64,
        seen: &BTreeSet<u64>,
    ) -> Result<Chain, OpenError> {
        let mut chain = Chain { links: Vec::new(), end: from, tail: header.tail, durable: 0 };
        while chain.end - from <= u64::from(self.log.blocks) {
            let start = self.log.batch_start(chain.end);
            if seen.contains(&start) {
                break;
            }
            let Some(batch) = self.batch_header(header, start).await? else { break };
            chain.tail = chain.tail.max(batch.tail);
            chain.durable = chain.durable.max(batch.durable);
            let (after, durable) = (chain.end, batch.durable);
            chain.end = start + u64::from(BATCH_HEADERS) + batch.entries.len() as u64;
            let BatchHeader { epoch, entries, .. } = batch;
            chain.links.push(Link { after, start, durable, epoch, entries });
        }
        Ok(chain)
    }

    /// The valid batch header at a position, from either copy. After a crash one copy may belong to an earlier generation,
    /// whose batch ended the log and was being overwritten.
    async fn batch_header(
        &mut self,
        header: &Header,
        start: u64,
    ) -> Result<Option<BatchHeader>, OpenError> {
        let bytes =
            self.read(self.log.block(start), u64::from(BATCH_HEADERS) * self.log.page()).await?;
        let batches = bytes
            .chunks_exact(self.log.page() as usize)
            .filter_map(|copy| BatchHeader::decode(copy, self.log));
        let mut batches = batches.filter(|batch| self.counts(header, batch, start));
        if mutant::is_active("page-log-older-batch-header") {
            return Ok(batches.next());
        }
        Ok(batches.max_by_key(|batch| batch.generation))
    }

    /// Rule L3: its own place, its own generation.
    fn counts(&self, header: &Header, batch: &BatchHeader, start: u64) -> bool {
        let generation = match start >= header.begin {
            true => batch.generation == header.generation,
            false => batch.generation < header.generation,
        };
        let range = self.log.batch_range(start);
        let fits = range.start + u64::from(BATCH_HEADERS) + batch.entries.len() as u64 <= range.end;
        // The mutant accepts any lap, as a head found by page LSN alone would.
        let here = batch.start == start || mutant::is_active("page-log-any-lap");
        generation && here && fits && self.exist(&batch.entries)
    }

    /// Whether the origin has all pages of these entries.
    fn exist(&self, entries: &[Entry]) -> bool {
        let pages = self.host.pages();
        entries.iter().all(|(word, crc)| {
            let count = match kind_of(*word) {
                // Its page is an epoch.
                Kind::Header => return true,
                Kind::Page | Kind::Lost => 1,
                Kind::Tombstone => u64::from(*crc),
            };
            page_of(*word) + count <= pages
        })
    }

    /// Fails if a batch header beyond the end of the chain states that more was durable (rule L7).
    async fn check_beyond(&mut self, header: &Header, chain: &Chain) -> Result<(), OpenError> {
        let ahead = BUFFERS as u64 * u64::from(self.log.batch_blocks());
        for start in chain.end + 1..=chain.end + ahead {
            let bytes = self.read(self.log.block(start), self.log.page()).await?;
            let batch =
                BatchHeader::decode(&bytes, self.log).filter(|h| self.counts(header, h, h.start));
            let beyond = batch.filter(|h| h.start > chain.end && is_copy_at(h, start));
            if let Some(durable) = beyond.map(|h| h.durable).filter(|d| *d > chain.end) {
                return Err(OpenError::Missing { end: chain.end, durable });
            }
        }
        Ok(())
    }

    /// Ends the chain at the first batch beyond the durable mark with a page that does not match its checksum.
    async fn cut_torn(&mut self, chain: &mut Chain) -> Result<(), OpenError> {
        for i in 0..chain.links.len() {
            let link = &chain.links[i];
            let (start, count, link_after) = (link.start, link.entries.len(), link.after);
            if start < chain.durable {
                continue;
            }
            let first = start + u64::from(BATCH_HEADERS);
            let bytes = self.read(self.log.block(first), count as u64 * self.log.page()).await?;
            let pages = bytes.chunks_exact(self.log.page() as usize).zip(&chain.links[i].entries);
            let whole = pages
                .into_iter()
                .all(|(page, (word, crc))| kind_of(*word) != Kind::Page || crc32c(page) == *crc);
            if !whole {
                self.torn = chain.end.saturating_sub(link_after);
                chain.end = link_after;
                chain.links.truncate(i);
                chain.durable = chain.links.iter().map(|l| l.durable).max().unwrap_or(0);
                break;
            }
        }
        Ok(())
    }

    /// Loads the entries of these positions from segments; returns whether all segments are intact.
    async fn load_segments(
        &mut self,
        header: &Header,
        range: Range<u64>,
    ) -> Result<bool, OpenError> {
        let segment = self.log.segment();
        let mut first = range.start / segment * segment;
        if header.sealed.is_none() && range.end > header.segments {
            return Ok(false);
        }
        while first < range.end {
            let bytes = self.read(self.log.segment_at(first), self.log.segment_bytes()).await?;
            let needed = segment.min(range.end - first);
            let entries = decode_segment(&bytes, first, self.log);
            let stamped = |stamp| header.sealed.is_none_or(|seal| seal.stamp == stamp);
            let entries = entries.filter(|(e, stamp)| e.len() as u64 >= needed && stamped(*stamp));
            let entries = entries.filter(|(e, _)| self.exist(e));
            let Some((entries, _)) = entries else { return Ok(false) };
            for (position, entry) in (first..).zip(entries) {
                if range.contains(&position) {
                    self.set(header, position, entry);
                }
            }
            first += segment;
        }
        Ok(true)
    }

    fn load(&self, header: &Header, link: &Link) {
        // The entries of a batch are older than any seal.
        let header = &Header { sealed: None, ..*header };
        let first = link.start + u64::from(BATCH_HEADERS);
        let of_epoch = (slot_word(Kind::Header, link.epoch, 0), 0);
        (link.after.min(link.start)..first).for_each(|p| self.set(header, p, of_epoch));
        (first..).zip(&link.entries).for_each(|(p, entry)| self.set(header, p, *entry));
    }

    /// Fills a slot. Only a sealed log records valid and dirty pages, and one under `Ordered` dirty ones; in others every page
    /// counts as both.
    fn set(&self, header: &Header, position: u64, (word, crc): Entry) {
        let sealed = header.sealed.is_some();
        let slot = self.log.slot(position);
        let kind = kind_of(word);
        let ignored = self.ignores(page_of(word));
        let mutant = |name, flag| if mutant::is_active(name) { flag } else { 0 };
        let flags = match kind {
            Kind::Header | Kind::Tombstone => 0,
            Kind::Page | Kind::Lost if ignored => 0,
            Kind::Page | Kind::Lost if sealed => {
                word & (VALID | DIRTY) | mutant("page-log-seal-forgets", VALID)
            }
            Kind::Lost => VALID | DIRTY,
            Kind::Page => {
                // An older log header repeats what a newer one had as replayed.
                let dirty = header
                    .replayed
                    .is_none_or(|mark| position >= mark && word & (DIRTY | REPLAYED) != 0);
                let dirty = if dirty { DIRTY } else { 0 };
                VALID | dirty & !mutant("page-log-rebuilt-clean", DIRTY)
            }
        };
        // What a log under another policy has since is one epoch.
        let page = match kind {
            Kind::Header if header.replayed.is_none() => 0,
            Kind::Header => page_of(word).min(EPOCHS_MOST),
            Kind::Page | Kind::Tombstone | Kind::Lost => page_of(word),
        };
        self.words.set_crc(slot, crc);
        self.words.set_slot(slot, slot_word(kind, page, flags));
    }

    /// Pages of tombstones at these positions without a later version: the crash may have come before the origin was zero
    /// there. A later version that is gone was ended by a later tombstone.
    fn redo(&self, positions: Range<u64>) -> Vec<Range<u64>> {
        let ended = self.words.ended(positions.clone());
        let valid = |position| {
            let word = self.words.slot(self.log.slot(position));
            let page = page_of(word);
            (word & VALID != 0 && ended.at(page).is_some()).then_some(page)
        };
        let mut newer: Vec<u64> = positions.filter_map(valid).collect();
        newer.sort_unstable();
        let mut redo = ended.without(&newer);
        for ignored in &self.ignored {
            redo = redo.into_iter().flat_map(|pages| outside(pages, ignored)).collect();
        }
        redo
    }

    /// Whether the page was changed past the log.
    fn ignores(&self, page: u64) -> bool {
        ranges::has(&self.ignored, page)
    }
}
