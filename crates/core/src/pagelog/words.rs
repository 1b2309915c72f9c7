// SPDX-License-Identifier: MIT OR Apache-2.0
//! The log's memory: a flat run of atomic words, without pointers.
//!
//! First the marks and counters named here, then those of the batches in memory, then two words a slot and
//! half a word for the hash table: 20 bytes a slot. Words are atomic because processes may share them;
//! their order between holders is the lock's business, so loads are relaxed. Stores are not, though nobody pairs
//! with them: a holder may be killed between any two, and what it did until then is to be what it says here.
//!
//! A slot's first word: the page (58 bits), its kind (2 bits), and whether it is valid, dirty, and
//! referenced. The second: the page's checksum, and the slot after it in its chain.

use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed, Ordering::Release};

/// Pages have numbers below this.
pub const PAGES_MOST: u64 = 1 << 58;
/// Batches in memory: one is filled while others are on their way.
pub const BUFFERS: usize = 4;

/// A mark or counter. Those before `Valid` are positions unless they say otherwise.
#[derive(Clone, Copy, Debug)]
#[repr(usize)]
pub enum Mark {
    /// Pages before have left for good.
    Front,
    /// Pages before have been looked at by the front.
    Left,
    /// What must be durable before the front may come to `Left`.
    Need,
    /// Counts writes to the origin, ...
    OriginWrites,
    /// ... and says how many of them were flushed for the front's sake.
    OriginFlushed,
    /// The next position.
    Rear,
    /// The rear after the last page that was put.
    Last,
    /// The rear after the last tombstone that was put.
    Tombstone,
    /// Batches before are written ...
    Written,
    /// ... and the last of them says that this is the front.
    WrittenFront,
    /// Batches before are durable ...
    Durable,
    /// ... and it is durable that this is the front: a batch or both headers say so.
    DurableFront,
    /// The front as the newest header says it.
    HeaderFront,
    /// Segments before are durable.
    Segments,
    /// Dirty pages before were brought to the origin (policy `Bounded`).
    Drained,
    /// Counts starts.
    Generation,
    /// Where this one began.
    Begin,
    /// The headers written.
    Headers,
    /// Batches that were opened, and batches that are written; they are numbered so.
    Opened,
    Closed,
    /// Who makes room (a name).
    Keeper,
    /// Somebody waits for room (0 or 1).
    Wanted,
    /// The header says that all is durable (2), or is about to or about not to (1): nothing is put before it says otherwise.
    Sealed,
    /// The error that the log failed with (0 none).
    Failed,
    /// Errors in a row of what keeps the log going.
    Stumbles,
    /// Attempts to seal it.
    Seals,
    /// Who writes a header (a name).
    Scribe,
    /// Counts changes of what is valid.
    Turn,
    /// Valid slots, and those of them that are dirty.
    Valid,
    Dirty,
    /// Pages put; pages entered once more; pages that left.
    Put,
    Again,
    Gone,
}

const MARKS: usize = Mark::Gone as usize + 1;
/// Words that describe a batch in memory.
const BATCH_WORDS: usize = 6;

/// What is known of a batch in memory.
#[derive(Clone, Copy, Debug)]
#[repr(usize)]
pub enum BatchMark {
    /// Position of its head.
    Start,
    /// The rear when it was closed.
    End,
    /// See `queue::State`.
    State,
    /// Who writes it.
    Writer,
    /// The front when it was closed.
    Front,
    /// How often that failed.
    Failures,
}

pub const VALID: u64 = 1 << 60;
pub const DIRTY: u64 = 1 << 61;
pub const REFERENCED: u64 = 1 << 62;
const KIND_SHIFT: u32 = 58;

/// What a block holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A head, or nothing.
    Head,
    /// A page.
    Page,
    /// That some pages (as many as the checksum says) are gone: the origin is, or is made, zero there.
    Tombstone,
    /// That the page's only copy was found damaged.
    Lost,
}

/// The first word of a slot.
pub fn slot_word(kind: Kind, page: u64, flags: u64) -> u64 {
    debug_assert!(page < PAGES_MOST);
    page | (kind as u64) << KIND_SHIFT | flags
}

/// The kind that it names.
pub fn kind_of(word: u64) -> Kind {
    match word >> KIND_SHIFT & 3 {
        1 => Kind::Page,
        2 => Kind::Tombstone,
        3 => Kind::Lost,
        _ => Kind::Head,
    }
}

/// The page that it names.
pub fn page_of(word: u64) -> u64 {
    word & (PAGES_MOST - 1)
}

/// Words of memory that a log of so many blocks takes.
#[must_use]
pub fn words_needed(blocks: u32) -> usize {
    MARKS + BUFFERS * BATCH_WORDS + 2 * blocks as usize + (blocks as usize).div_ceil(2)
}

/// See the module.
pub struct Words<M> {
    memory: M,
    pub blocks: u32,
}

impl<M: Deref<Target = [AtomicU64]>> Words<M> {
    pub fn new(memory: M, blocks: u32) -> Self {
        assert!(memory.len() >= words_needed(blocks), "the log's memory is too small");
        Self { memory, blocks }
    }

    pub fn get(&self, mark: Mark) -> u64 {
        self.memory[mark as usize].load(Relaxed)
    }

    pub fn set(&self, mark: Mark, value: u64) {
        self.memory[mark as usize].store(value, Release);
    }

    /// Moves a mark on, never back.
    pub fn raise(&self, mark: Mark, value: u64) {
        self.set(mark, value.max(self.get(mark)));
    }

    pub fn add(&self, mark: Mark, more: u64) {
        self.set(mark, self.get(mark).wrapping_add(more));
    }

    fn batch_at(&self, buffer: usize, mark: BatchMark) -> &AtomicU64 {
        &self.memory[MARKS + buffer * BATCH_WORDS + mark as usize]
    }

    pub fn batch(&self, buffer: usize, mark: BatchMark) -> u64 {
        self.batch_at(buffer, mark).load(Relaxed)
    }

    pub fn set_batch(&self, buffer: usize, mark: BatchMark, value: u64) {
        self.batch_at(buffer, mark).store(value, Release);
    }

    fn slots_at(&self) -> usize {
        MARKS + BUFFERS * BATCH_WORDS
    }

    fn second_at(&self, slot: u32) -> &AtomicU64 {
        &self.memory[self.slots_at() + 2 * slot as usize + 1]
    }

    /// The slot's first word.
    pub fn slot(&self, slot: u32) -> u64 {
        self.memory[self.slots_at() + 2 * slot as usize].load(Relaxed)
    }

    pub fn set_slot(&self, slot: u32, word: u64) {
        self.memory[self.slots_at() + 2 * slot as usize].store(word, Release);
    }

    /// The slot's checksum.
    pub fn crc(&self, slot: u32) -> u32 {
        self.second_at(slot).load(Relaxed) as u32
    }

    pub fn set_crc(&self, slot: u32, crc: u32) {
        let next = self.second_at(slot).load(Relaxed) >> 32 << 32;
        self.second_at(slot).store(next | u64::from(crc), Release);
    }

    /// The slot after it in its chain, plus one.
    pub fn next(&self, slot: u32) -> u32 {
        (self.second_at(slot).load(Relaxed) >> 32) as u32
    }

    pub fn set_next(&self, slot: u32, next: u32) {
        let crc = self.crc(slot);
        self.second_at(slot).store(u64::from(next) << 32 | u64::from(crc), Release);
    }

    /// The first slot of a chain, plus one.
    pub fn chain(&self, chain: u32) -> u32 {
        let at = self.slots_at() + 2 * self.blocks as usize + chain as usize / 2;
        (self.memory[at].load(Relaxed) >> (chain % 2 * 32)) as u32
    }

    pub fn set_chain(&self, chain: u32, slot: u32) {
        let at = self.slots_at() + 2 * self.blocks as usize + chain as usize / 2;
        let shift = chain % 2 * 32;
        let other = self.memory[at].load(Relaxed) & !(u64::from(u32::MAX) << shift);
        self.memory[at].store(other | u64::from(slot) << shift, Release);
    }
}
