// SPDX-License-Identifier: MIT OR Apache-2.0
//! The log's memory: a flat run of atomic words, without pointers.
//!
//! Marks and counters, then the marks of the batches in memory, then two words a slot and half a word for the hash table:
//! 20 bytes a slot. Words are atomic because processes may share them. The lock orders accesses of different holders, so
//! loads are relaxed. Stores are release, although no load pairs with them: a holder may be killed between two stores, and
//! the memory must then contain exactly the earlier ones.
//!
//! A slot's first word: the page (58 bits), its kind (2 bits), and whether it is valid, dirty, referenced, and replayed. The second:
//! the page's checksum, and the next slot in its chain.

use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed, Ordering::Release};

/// Pages have numbers below this.
pub const PAGES_MOST: u64 = 1 << 58;
/// Epochs on flash are at most this, so that those of a later start are numbers of pages too.
pub const EPOCHS_MOST: u64 = PAGES_MOST / 2;
/// Positions, and numbers of headers and generations, are below this, so that no sum of them overflows. A log to
/// which a million blocks a second are appended reaches it after 146,000 years.
pub const POSITIONS_MOST: u64 = 1 << 62;
/// Batches in memory: one is filled while others are written.
pub const BUFFERS: usize = 4;

/// A mark or counter. Those before `Valid` are positions unless stated otherwise.
#[derive(Clone, Copy, Debug)]
#[repr(usize)]
pub enum Mark {
    /// The tail of the log.
    Tail,
    /// Pages before are evicted; the tail follows.
    Evicted,
    /// The tail may move to `Evicted` when positions before this are durable.
    Need,
    /// Number of writes to the origin, ...
    OriginWrites,
    /// ... and how many of them a flush for the tail covered.
    OriginFlushed,
    /// The head of the log: the next position.
    Head,
    /// The position after the last page that was put.
    Last,
    /// The position after the last tombstone that was put.
    Tombstone,
    /// Batches before are written ...
    Written,
    /// ... and the last of them contains this tail.
    WrittenTail,
    /// Batches before are durable ...
    Durable,
    /// ... and this tail is durable, in a batch header or in both log headers.
    DurableTail,
    /// The tail in the newest log header.
    HeaderTail,
    /// Segments before are durable.
    Segments,
    /// Dirty pages before were written to the origin (policy `Bounded`).
    Drained,
    /// The origin durably has every change before (policy `Ordered`).
    Replayed,
    /// Number of starts.
    Generation,
    /// First position of this generation.
    Begin,
    /// Number of log headers written.
    Headers,
    /// Number of batches opened, and number of batches written; a batch is numbered when it is opened.
    Opened,
    Closed,
    /// The keeper, which makes room (a name).
    Keeper,
    /// Whether a task or process waits for room (0 or 1).
    Wanted,
    /// The log header is sealed (2), or its seal is being written or removed (1). A put removes the seal first.
    Sealed,
    /// The error that failed the log (0 none).
    Failed,
    /// Whether it has failed permanently: no task tries again (0 or 1).
    Ended,
    /// Positions before this may be lost although they were written: a flush failed (0 none; `verify.rs`).
    Doubted,
    /// Number of failed flushes, of this log and of others on the device; how many flushes of this log failed in a row.
    Doubts,
    Unflushed,
    /// The task that flushes flash (a name).
    Flusher,
    /// Whether pages that only memory had are on the origin, and it is not recorded that recovery ignores them (0 or 1).
    Evacuating,
    /// Number of versions that were found lost; as many of them, in order, have a newer version that is durable.
    Losses,
    Replaced,
    /// The latest error of a page that could not be written to the origin (0 none).
    Unwritten,
    /// Whether the log is about to begin again: damaged dirty pages become lost, instead of being tried again (0 or 1).
    Renewing,
    /// Consecutive errors of the keeper.
    Stumbles,
    /// How often the replay of an epoch failed, and how often in a row.
    Refusals,
    RefusedInRow,
    /// Attempts to seal it.
    Seals,
    /// The writer of a log header (a name).
    HeaderWriter,
    /// Number of changes of valid or dirty pages.
    Turn,
    /// Valid slots, and those of them that are dirty.
    Valid,
    Dirty,
    /// Pages put; pages appended again; pages evicted.
    Put,
    AppendedAgain,
    Evictions,
}

const MARKS: usize = Mark::Evictions as usize + 1;
/// Words of a batch in memory.
const BATCH_WORDS: usize = 6;

/// A mark of a batch in memory.
#[derive(Clone, Copy, Debug)]
#[repr(usize)]
pub enum BatchMark {
    /// Position of its batch header.
    Start,
    /// The head when it was closed.
    End,
    /// See `queue::State`.
    State,
    /// The writer (a name).
    Writer,
    /// The tail when it was closed.
    Tail,
    /// Failed writes.
    Failures,
}

pub const VALID: u64 = 1 << 60;
pub const DIRTY: u64 = 1 << 61;
pub const REFERENCED: u64 = 1 << 62;
/// It was dirty when it was put, and is clean because it was replayed.
pub const REPLAYED: u64 = 1 << 63;
const KIND_SHIFT: u32 = 58;

/// The content of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A batch header, or nothing. Its page is the epoch of the batch.
    Header,
    /// A page.
    Page,
    /// A tombstone: as many pages as its checksum field contains are zero, on the origin too or soon.
    Tombstone,
    /// The page's only copy is damaged.
    Lost,
}

/// The first word of a slot.
pub fn slot_word(kind: Kind, page: u64, flags: u64) -> u64 {
    debug_assert!(page < PAGES_MOST);
    page | (kind as u64) << KIND_SHIFT | flags
}

/// The kind in a slot's first word.
pub fn kind_of(word: u64) -> Kind {
    match word >> KIND_SHIFT & 3 {
        1 => Kind::Page,
        2 => Kind::Tombstone,
        3 => Kind::Lost,
        _ => Kind::Header,
    }
}

/// The page in a slot's first word.
pub fn page_of(word: u64) -> u64 {
    word & (PAGES_MOST - 1)
}

/// Words of memory of a log of `blocks` blocks.
#[must_use]
pub fn words_needed(blocks: u32) -> usize {
    MARKS + BUFFERS * BATCH_WORDS + 2 * blocks as usize + (blocks as usize).div_ceil(2)
}

/// The memory of a log.
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

    /// Advances a mark, never moves it back.
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

    /// Sets flags of a slot, unless the slot no longer has this word.
    pub fn add_flags(&self, slot: u32, word: u64, flags: u64) {
        if word & flags != flags {
            let at = &self.memory[self.slots_at() + 2 * slot as usize];
            let _ = at.compare_exchange(word, word | flags, Release, Relaxed);
        }
    }

    /// The slot's checksum.
    pub fn crc(&self, slot: u32) -> u32 {
        self.second_at(slot).load(Relaxed) as u32
    }

    pub fn set_crc(&self, slot: u32, crc: u32) {
        let next = self.second_at(slot).load(Relaxed) >> 32 << 32;
        self.second_at(slot).store(next | u64::from(crc), Release);
    }

    /// The next slot in its chain, plus one.
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
