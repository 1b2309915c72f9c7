// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a log was, read from flash after a stop or a crash (FaCE 5.2; holes 2 to 4 of paper-tables 4.5).
//!
//! 1. The newest header that is whole says up to where segments are durable, and which generation wrote
//!    since when.
//! 2. The last of those segments says where a batch begins; from there the chain of heads is followed to
//!    its end, at most two segments of it. The newest head says where the front is.
//! 3. What no durable mark covers counts only if every page has its checksum: a batch that a power cut
//!    tore ends the log.
//! 4. Segments give what lies between the front and the chain; where one is damaged, the chain of heads is
//!    followed from the first that is still there instead.
//! 5. A log that was sealed needs none of this: its segments say all, also what is valid and what dirty.
//! 6. The slots are replayed in order of position; what is valid then counts as dirty and unreferenced, unless the log was sealed.
//!
//! Nothing is written here, so it may be done any number of times.

use std::ops::{Deref, Range};
use std::sync::atomic::AtomicU64;

use super::error::OpenError;
use super::format::{Entry, Head, Header, decode_segment};
use super::geometry::{Geometry, HEADS};
use super::host::Host;
use super::words::{BUFFERS, DIRTY, Kind, VALID, Words, kind_of, page_of, slot_word};
use crate::buf::{Buf, PAGE};
use crate::checksum::crc32c;
use crate::mutant;

/// What was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The header that counts.
    pub(super) header: Header,
    /// Where the front is ...
    pub front: u64,
    /// ... and the rear.
    pub rear: u64,
    /// Whether what it held counts.
    pub warm: bool,
    /// Pages of the origin to be made zero once more.
    pub redo: Vec<Range<u64>>,
    /// Blocks behind the rear that were written and do not count: the first batch of them is torn, or rots.
    pub torn: u64,
    /// Bytes that were read.
    pub read_bytes: u64,
}

impl Found {
    /// How far the log had come, as [`LogStatus::reached`](super::LogStatus::reached): an earlier copy of it has
    /// come less far.
    #[must_use]
    pub fn reached(&self) -> (u64, u64) {
        (self.header.generation, self.rear)
    }
}

/// A log on flash that is being read.
pub(super) struct Reader<'a, H, M> {
    pub host: &'a H,
    pub words: &'a Words<M>,
    pub log: &'a Geometry,
    pub read_bytes: u64,
    pub torn: u64,
}

/// A batch of the chain.
struct Link {
    /// Where the batch before ended; the end of the ring may lie between.
    after: u64,
    start: u64,
    durable: u64,
    entries: Vec<Entry>,
}

/// Batches, one after the other.
struct Chain {
    links: Vec<Link>,
    end: u64,
    front: u64,
    durable: u64,
}

impl<H: Host, M: Deref<Target = [AtomicU64]>> Reader<'_, H, M> {
    /// Reads a sealed log into its memory, which is all zero; nothing if it is not sealed, or its seal is damaged.
    pub async fn sealed(&mut self, header: Header) -> Result<Option<Found>, OpenError> {
        let Some(seal) = header.sealed else { return Ok(None) };
        if self.load_segments(&header, header.front..seal.rear).await? {
            return Ok(Some(self.warm(header, header.front, seal.rear)));
        }
        (0..self.log.blocks).for_each(|slot| self.words.set_slot(slot, 0));
        Ok(None)
    }

    /// Reads what a crash left into memory that is all zero.
    pub async fn replay(&mut self, header: Header) -> Result<Found, OpenError> {
        let mut chain = match self.batch_behind_segments(&header).await? {
            Some(start) => self.follow(&header, start).await?,
            None => self.whole_chain(&header).await?,
        };
        self.look_behind(&header, &chain).await?;
        if header.sealed.is_none() && !mutant::is_active("page-log-torn-batch") {
            self.cut_torn(&mut chain).await?;
        }
        let least = Self::least(&header);
        if chain.end < least.max(chain.durable) {
            let (end, least) = (chain.end, least.max(chain.durable));
            return Err(OpenError::Missing { end, durable: least });
        }
        let first = chain.links.first().map_or(chain.end, |link| link.start);
        if chain.front < first && !self.load_segments(&header, chain.front..first).await? {
            let whole = self.whole_chain(&header).await?;
            let from = whole.links.first().map_or(whole.end, |link| link.start);
            if from > self.log.batch_start(chain.front) || whole.end < first {
                return Err(OpenError::Missing { end: whole.end, durable: first });
            }
            whole.links.iter().filter(|link| link.start < first).for_each(|link| self.load(link));
        }
        chain.links.iter().for_each(|link| self.load(link));
        Ok(self.warm(header, chain.front, chain.end))
    }

    /// All that was there counts.
    fn warm(&self, header: Header, front: u64, rear: u64) -> Found {
        self.words.rebuild(front..rear);
        let redo = self.redo(front..rear);
        let (torn, read_bytes) = (self.torn, self.read_bytes);
        Found { header, front, rear, warm: true, redo, torn, read_bytes }
    }

    /// What it held does not count; positions that were ever used are not used again.
    pub fn cold(&self, header: Header) -> Found {
        let used = header.front.max(header.segments).max(header.begin);
        let next = used + 3 * u64::from(self.log.blocks);
        let rear = next.next_multiple_of(self.log.segment());
        Found {
            header,
            front: rear,
            rear,
            warm: false,
            redo: Vec::new(),
            torn: 0,
            read_bytes: self.read_bytes,
        }
    }

    async fn read(&mut self, offset: u64, len: u64) -> Result<Buf, OpenError> {
        self.read_bytes += len;
        let buf = Buf::with_len(len as usize);
        self.host.read_flash(offset, buf).await.map_err(|errno| OpenError::Device { offset, errno })
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

    /// Where a batch begins from which the chain covers all that segments do not; nothing if the segment that
    /// says so is damaged.
    async fn batch_behind_segments(&mut self, header: &Header) -> Result<Option<u64>, OpenError> {
        let segment = self.log.segment();
        if header.segments < segment || header.segments <= header.front {
            return Ok(Some(header.front));
        }
        let first = header.segments - segment;
        let bytes = self.read(self.log.segment_at(first), self.log.segment_bytes()).await?;
        let entries = decode_segment(&bytes, first, self.log);
        let entries = entries.filter(|(e, _)| e.len() as u64 == segment);
        let Some((entries, _)) = entries else { return Ok(None) };
        // The last batch that begins there; the first entries may be the end of a head.
        let is_head = |i: &usize| kind_of(entries[*i].0) == Kind::Head;
        let starts = |i: &usize| is_head(i) && !is_head(&(i - 1));
        let start = (1..entries.len()).rev().find(starts).map_or(0, |i| first + i as u64);
        Ok(Some(start.max(header.front)))
    }

    /// The chain from the first batch that is not written over yet: what lies before has left. A head that an older
    /// lap left behind has no chain that comes as far as what is durable.
    async fn whole_chain(&mut self, header: &Header) -> Result<Chain, OpenError> {
        let mut start = header.front;
        let mut longest = self.follow(header, start).await?;
        while longest.end < Self::least(header) && start < header.front + u64::from(self.log.blocks)
        {
            start += 1;
            let bytes = self.read(self.log.block(start), self.log.page()).await?;
            let head = Head::decode(&bytes, self.log).filter(|h| self.counts(header, h, h.start));
            // The first copy may be the one that is damaged.
            let here = head.filter(|h| h.start >= header.front && h.start <= start);
            if let Some(head) = here.filter(|h| start - h.start < u64::from(HEADS)) {
                let chain = self.follow(header, head.start).await?;
                if chain.end > longest.end {
                    longest = chain;
                }
            }
        }
        Ok(longest)
    }

    /// All before was durable, as the header says.
    fn least(header: &Header) -> u64 {
        header.segments.max(header.begin).max(header.sealed.map_or(0, |seal| seal.rear))
    }

    /// Follows the chain of heads from a batch's position.
    async fn follow(&mut self, header: &Header, from: u64) -> Result<Chain, OpenError> {
        let mut chain = Chain { links: Vec::new(), end: from, front: header.front, durable: 0 };
        while chain.end - from <= u64::from(self.log.blocks) {
            let start = self.log.batch_start(chain.end);
            let Some(head) = self.head(header, start).await? else { break };
            chain.front = chain.front.max(head.front);
            chain.durable = chain.durable.max(head.durable);
            let (after, durable) = (chain.end, head.durable);
            chain.end = start + u64::from(HEADS) + head.entries.len() as u64;
            chain.links.push(Link { after, start, durable, entries: head.entries });
        }
        Ok(chain)
    }

    /// The head that counts at a position, from either copy. A crash may have left that of an earlier generation
    /// in one of them, whose batch ended the log and was written over.
    async fn head(&mut self, header: &Header, start: u64) -> Result<Option<Head>, OpenError> {
        let bytes = self.read(self.log.block(start), u64::from(HEADS) * self.log.page()).await?;
        let heads = bytes
            .chunks_exact(self.log.page() as usize)
            .filter_map(|copy| Head::decode(copy, self.log));
        let mut heads = heads.filter(|head| self.counts(header, head, start));
        if mutant::is_active("page-log-older-head") {
            return Ok(heads.next());
        }
        Ok(heads.max_by_key(|head| head.generation))
    }

    /// Rule L3: its own place, its own generation.
    fn counts(&self, header: &Header, head: &Head, start: u64) -> bool {
        let generation = match start >= header.begin {
            true => head.generation == header.generation,
            false => head.generation < header.generation,
        };
        let range = self.log.batch_range(start);
        let fits = range.start + u64::from(HEADS) + head.entries.len() as u64 <= range.end;
        // One mutant takes whatever lies there, as a rear that is found by page LSN alone does.
        let here = head.start == start || mutant::is_active("page-log-any-lap");
        generation && here && fits
    }

    /// Where the chain ends, nothing behind may say that more than that was durable (rule L7).
    async fn look_behind(&mut self, header: &Header, chain: &Chain) -> Result<(), OpenError> {
        let ahead = BUFFERS as u64 * u64::from(self.log.batch_blocks());
        for start in chain.end + 1..=chain.end + ahead {
            let bytes = self.read(self.log.block(start), self.log.page()).await?;
            let head = Head::decode(&bytes, self.log).filter(|h| self.counts(header, h, h.start));
            // Either copy may be the one that is whole.
            let beyond = head.filter(|h| h.start > chain.end && start - h.start < u64::from(HEADS));
            if let Some(durable) = beyond.map(|h| h.durable).filter(|d| *d > chain.end) {
                return Err(OpenError::Missing { end: chain.end, durable });
            }
        }
        Ok(())
    }

    /// The first batch behind the durable mark that has a page without its checksum ends the log.
    async fn cut_torn(&mut self, chain: &mut Chain) -> Result<(), OpenError> {
        for i in 0..chain.links.len() {
            let link = &chain.links[i];
            let (start, count, link_after) = (link.start, link.entries.len(), link.after);
            if start < chain.durable {
                continue;
            }
            let first = start + u64::from(HEADS);
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

    /// Loads what segments say of these positions; whether they were all whole.
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
            let Some((entries, _)) = entries else { return Ok(false) };
            for (position, entry) in (first..).zip(entries) {
                if range.contains(&position) {
                    self.set(position, entry, header.sealed.is_some());
                }
            }
            first += segment;
        }
        Ok(true)
    }

    fn load(&self, link: &Link) {
        let first = link.start + u64::from(HEADS);
        (link.start..first).for_each(|p| self.set(p, (slot_word(Kind::Head, 0, 0), 0), false));
        (first..)
            .zip(&link.entries)
            .for_each(|(position, entry)| self.set(position, *entry, false));
    }

    /// A sealed log says what is valid and what is dirty; else it is not known, and all counts as both.
    fn set(&self, position: u64, (word, crc): Entry, sealed: bool) {
        let slot = self.log.slot(position);
        let kind = kind_of(word);
        let mutant = |name, flag| if mutant::is_active(name) { flag } else { 0 };
        let flags = match kind {
            Kind::Head | Kind::Tombstone => 0,
            Kind::Page | Kind::Lost if sealed => {
                word & (VALID | DIRTY) | mutant("page-log-seal-forgets", VALID)
            }
            Kind::Page | Kind::Lost => VALID | DIRTY & !mutant("page-log-rebuilt-clean", DIRTY),
        };
        self.words.set_crc(slot, crc);
        self.words.set_slot(slot, slot_word(kind, page_of(word), flags));
    }

    /// Pages that a tombstone names and no later version brought back: a crash may have come before
    /// the origin was zero there.
    fn redo(&self, positions: Range<u64>) -> Vec<Range<u64>> {
        let mut redo = Vec::new();
        for position in positions.clone() {
            let slot = self.log.slot(position);
            if kind_of(self.words.slot(slot)) != Kind::Tombstone {
                continue;
            }
            let first = page_of(self.words.slot(slot));
            for page in first..first + u64::from(self.words.crc(slot)) {
                // Whatever came later and is gone again was ended by a later tombstone.
                if self.words.find(page).is_none() {
                    redo.push(page..page + 1);
                }
            }
        }
        redo.sort_by_key(|r| r.start);
        redo.dedup();
        redo
    }
}
