// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the server's processes share beside the log: words of its memory.
//!
//! `marks and counters | epochs | names | dirty | durable | unflushed | frames`
//!
//! An **epoch** counts the changes of a page: a counter that pages share by their hash, and one for all of them. It is
//! raised before anything else happens to a page, so whatever was read before is known to be old.
//! **Dirty** says of each number how far the log must be drained for the disk to have all of the fork.
//! **Durable** is each name's state as `larder.names` has it (`journal.rs`), **unflushed** are segments that were written
//! past the server (`unflushed.rs`).
//! A **frame** is a place in shared buffers; its record says which page was read into it, in which epoch, and the hash
//! of what was read. Nobody but the process that fills a frame touches its record (the server sees to it).

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use larder_shared::Memory;

use crate::names::{self, Names, Number};

/// Marks and counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Mark {
    /// Hash of `pg_control` as it was written last.
    Control,
    /// ... and as somebody was about to write it.
    ControlNext,
    /// What was written to the server's log last (`wal.rs`): segment, end, bytes and hash; and what was about to be.
    WalTimeline,
    WalNumber,
    WalEnd,
    WalBytes,
    WalHash,
    WalNextTimeline,
    WalNextNumber,
    WalNextEnd,
    WalNextBytes,
    WalNextHash,
    /// The flash file's number in its file system.
    FlashFile,
    /// Hash of the boot that the memory is of.
    Boot,
    /// Counts what changes all epochs.
    Epoch,
    /// Why nothing is cached any more (an errno; 0: it is).
    Failed,
    /// Whether changed pages go to flash alone at the moment, see `Pool::absorbs`.
    Absorbing,
    /// Starts of the server's shared memory with this area.
    Starts,
    /// Pages read into shared buffers, ...
    Reads,
    /// ... and those of them that flash had.
    Hits,
    /// Pages written by the server.
    Writes,
    /// Writes that entered the log.
    WritesEntered,
    /// Writes that flash took instead of the disk.
    Absorbed,
    /// Pages that went from there to the disk.
    WrittenBack,
    /// Pages that left shared buffers clean and entered the log.
    CleanEntered,
    /// ... or did not, since the log had them,
    CleanKept,
    /// since they had been written, truncated or changed since they were read,
    CleanChanged,
    /// or since there was no room.
    CleanNoRoom,
    /// Forks that were dropped, emptied or rewritten.
    Retired,
    /// Counts what changes names; how far of that `larder.names` knows, and where its rows of which stamp end.
    NamesChanged,
    NamesDurable,
    JournalStamp,
    JournalRows,
    /// The highest LSN of all pages that flash took.
    Lsn,
}

const MARKS: usize = 64;
const EPOCHS: usize = 1 << 16;
const FRAME_WORDS: usize = 4;
/// Segments that can be in [`Area::unflushed`].
const UNFLUSHED: usize = 4096;
const DIRTY_AT: usize = MARKS + EPOCHS + names::WORDS;
const DURABLE_AT: usize = DIRTY_AT + names::ENTRIES;
const UNFLUSHED_AT: usize = DURABLE_AT + names::ENTRIES;
const FRAMES_AT: usize = UNFLUSHED_AT + UNFLUSHED;

/// The shared words.
#[derive(Clone)]
pub struct Area(Arc<Memory>);

/// What a frame was filled with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// Page of the log.
    pub page: u64,
    /// See [`Area::epoch`].
    pub epoch: u64,
    /// Of its bytes but the checksum.
    pub hash: u64,
    /// The server's checksum in its bytes.
    pub checksum: u16,
}

impl Area {
    /// Words for so many frames.
    #[must_use]
    pub fn words(frames: usize) -> usize {
        FRAMES_AT + frames * FRAME_WORDS
    }

    /// The area in a memory.
    #[must_use]
    pub fn of(memory: &Arc<Memory>) -> Self {
        Self(Arc::clone(memory))
    }

    fn mark(&self, mark: Mark) -> &AtomicU64 {
        &self.0.user_words()[mark as usize]
    }

    /// A mark or counter.
    #[must_use]
    pub fn get(&self, mark: Mark) -> u64 {
        self.mark(mark).load(Acquire)
    }

    /// Sets a mark.
    pub fn set(&self, mark: Mark, value: u64) {
        self.mark(mark).store(value, Release);
    }

    /// Sets a mark; what it was.
    pub fn swap(&self, mark: Mark, value: u64) -> u64 {
        self.mark(mark).swap(value, AcqRel)
    }

    /// Raises a mark.
    pub fn raise_mark(&self, mark: Mark, value: u64) {
        self.mark(mark).fetch_max(value, AcqRel);
    }

    /// Counts.
    pub fn count(&self, mark: Mark) {
        self.mark(mark).fetch_add(1, Relaxed);
    }

    fn epoch_word(&self, page: u64) -> &AtomicU64 {
        let hash = page.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (64 - EPOCHS.ilog2());
        &self.0.user_words()[MARKS + hash as usize]
    }

    /// The page's epoch.
    #[must_use]
    pub fn epoch(&self, page: u64) -> u64 {
        let all = self.mark(Mark::Epoch).load(Acquire);
        all << 32 | self.epoch_word(page).load(Acquire) & u64::from(u32::MAX)
    }

    /// The page is about to change; its new epoch.
    pub fn raise(&self, page: u64) -> u64 {
        self.epoch_word(page).fetch_add(1, AcqRel);
        self.epoch(page)
    }

    /// Any page may be about to change.
    pub fn raise_all(&self) {
        self.mark(Mark::Epoch).fetch_add(1, AcqRel);
    }

    /// The numbers of forks.
    #[must_use]
    pub fn names(&self) -> Names<'_> {
        let at = MARKS + EPOCHS;
        Names::new(&self.0.user_words()[at..at + names::WORDS])
    }

    fn dirty_word(&self, number: Number) -> &AtomicU64 {
        &self.0.user_words()[DIRTY_AT + number.entry()]
    }

    /// The log took a changed page of the fork at a position.
    pub fn made_dirty(&self, number: Number, position: u64) {
        self.dirty_word(number).fetch_max(position, AcqRel);
    }

    /// How far the log must be drained for the disk to have all of the fork.
    #[must_use]
    pub fn dirty_until(&self, number: Number) -> u64 {
        self.dirty_word(number).load(Acquire)
    }

    /// Any fork may have pages that the disk lacks, up to this position.
    pub fn made_all_dirty(&self, position: u64) {
        for entry in self.names().taken() {
            self.0.user_words()[DIRTY_AT + entry].fetch_max(position, AcqRel);
        }
    }

    /// States of names, as they are durable.
    #[must_use]
    pub fn durable(&self) -> &[AtomicU64] {
        &self.0.user_words()[DURABLE_AT..UNFLUSHED_AT]
    }

    /// See `unflushed.rs`.
    #[must_use]
    pub fn unflushed(&self) -> &[AtomicU64] {
        &self.0.user_words()[UNFLUSHED_AT..FRAMES_AT]
    }

    fn frame(&self, frame: usize) -> Option<&[AtomicU64]> {
        let at = FRAMES_AT + frame * FRAME_WORDS;
        self.0.user_words().get(at..at + FRAME_WORDS)
    }

    /// What a frame was filled with.
    #[must_use]
    pub fn record(&self, frame: usize) -> Option<Record> {
        let [page, epoch, hash, checksum] = self.frame(frame)? else { return None };
        let page = page.load(Acquire).checked_sub(1)?;
        let (epoch, hash) = (epoch.load(Relaxed), hash.load(Relaxed));
        Some(Record { page, epoch, hash, checksum: checksum.load(Relaxed) as u16 })
    }

    /// A frame is filled, or with nothing that is known.
    pub fn set_record(&self, frame: usize, record: Option<Record>) {
        let Some(words) = self.frame(frame) else { return };
        // Who dies here leaves no record rather than half of one.
        words[0].store(0, Release);
        if let Some(record) = record {
            words[1].store(record.epoch, Release);
            words[2].store(record.hash, Release);
            words[3].store(u64::from(record.checksum), Release);
            words[0].store(record.page + 1, Release);
        }
    }

    /// The server has new shared buffers.
    pub fn forget_frames(&self) {
        for words in self.0.user_words()[FRAMES_AT..].chunks(FRAME_WORDS) {
            // Most were never touched, and reading gives them no memory.
            if words[0].load(Relaxed) != 0 {
                words[0].store(0, Release);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_what_the_document_says() {
        // docs/postgresql.md: 32 bytes a frame, 6 MiB for the rest with what members and mutexes take.
        assert_eq!(8 * (Area::words(1_000) - Area::words(0)), 32 * 1_000);
        assert!((5 << 20..6 << 20).contains(&(8 * Area::words(0))));
        let log = |blocks| 8 * larder_core::pagelog::words_needed(blocks);
        assert_eq!(log(2_000_000) - log(1_000_000), 20 * 1_000_000);
    }
}
