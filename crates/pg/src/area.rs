// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the server's processes share beside the log: words of its memory.
//!
//! `marks and counters | epochs | names | dirty | durable | unflushed | tally | pins | frames`
//!
//! An **epoch** counts the changes of a page: a counter that pages share by their hash, and one for all of them. It is
//! raised before anything else happens to a page, so bytes that were read before are recognised as old.
//! **Dirty** is, for each number, the position to which the log must be drained so that the disk has all pages of the extent.
//! **Durable** is the state of each name in `larder.names` (`journal.rs`). **Unflushed** are segments that the library wrote
//! without the server (`unflushed.rs`).
//! **Tally** and **pins** are in `tally.rs` and `pins.rs`.
//! A **frame** is a place in shared buffers. Its record has the page that was read into it, the epoch of the read, and the
//! hash of the bytes. Only the process that fills a frame changes its record: the server's locks ensure this.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::time::Duration;

use larder_shared::{FlashCall, Memory};

use crate::extent::Extents;
use crate::names::{self, Names, Number};
use crate::pins::{self, Pins};
use crate::tally::{self, Operation, Tally};

/// Marks and counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Mark {
    /// Hash of `pg_control` as it was written last.
    Control,
    /// Hash of the `pg_control` that a process is about to write.
    ControlNext,
    /// The flash file's number in its file system.
    FlashFile,
    /// Hash of the boot in which the memory was created.
    Boot,
    /// Counts changes of all epochs.
    Epoch,
    /// The errno of the failure that ended caching; 0 while the cache works.
    Failed,
    /// Whether changed pages are written only to flash at the moment, see `Pool::absorbs`.
    Absorbing,
    /// Starts of the server's shared memory with this area.
    Starts,
    /// Extents that were dropped, emptied or rewritten.
    Retired,
    /// Counts changes of names; the count that `larder.names` has, the end of its rows and their stamp.
    NamesChanged,
    NamesDurable,
    JournalStamp,
    JournalRows,
    /// Whether it was reported that an extent has no number, for either reason.
    ToldCrowded,
    ToldWornOut,
    /// Whether flash is used, and whether it takes changes, see `switch.rs`.
    Switch,
    Changes,
    /// Whether the server recovers after a crash, and from where; whether it recovers from an archive or is a standby
    /// (`policy/state.rs`).
    Recovers,
    RecoversFrom,
    Follows,
    /// Which pages enter flash (`admits.rs`).
    Admits,
    /// When counters began with zero, in milliseconds since 1970; and what the log's own counters were then.
    ResetAt,
    ResetPut,
    ResetBatches,
    ResetAgain,
    ResetLeft,
    /// Whether any relation is pinned.
    Pinned,
    /// The layout of the numbers of pages and of the table of names, see [`LAYOUT`].
    Layout,
    // Counters, apart from what each access reads: a cache line that one process writes costs the others a miss.
    /// Pages read into shared buffers.
    Reads = 40,
    /// Pages read into shared buffers that flash had.
    Hits,
    /// Of these, the pages that were read from the kernel's page cache, because the disk has the same version.
    Near,
    /// Clean pages that shared buffers evicted and the log admitted.
    CleanEntered,
    /// Clean pages that were not admitted because the log had them.
    CleanKept,
    /// Clean pages that were not admitted because they were written, truncated or changed after they were read.
    CleanChanged,
    /// Clean pages that were not admitted because there was no room.
    CleanNoRoom,
    /// Clean pages that were not admitted because they were read through a ring.
    CleanScanned,
    /// Pages written by the server.
    Writes = 48,
    /// Writes that were admitted to the log.
    WritesEntered,
    /// Writes that flash took instead of the disk.
    Absorbed,
    /// Pages that were written back from flash to the disk.
    WrittenBack,
    /// The highest LSN of all pages that flash took.
    Lsn,
    /// Bytes written to flash.
    FlashBytes,
    /// Counts the frames that were filled, by all processes.
    Fills = 56,
    /// The last write to the server's log (`wal.rs`): segment, end, bytes and hash; and the same of the write that is next.
    WalTimeline = 64,
    WalNumber,
    WalEnd,
    WalBytes,
    WalHash,
    WalNextTimeline,
    WalNextNumber,
    WalNextEnd,
    WalNextBytes,
    WalNextHash,
}

/// The layout that this library uses. Memory of another one is not used.
pub const LAYOUT: u64 = 4;

/// Words of marks and counters.
pub const MARKS: usize = 80;
const EPOCHS: usize = 1 << 16;
const FRAME_WORDS: usize = 4;
/// Segments that can be in [`Area::unflushed`].
const UNFLUSHED: usize = 4096;
const DIRTY_AT: usize = MARKS + EPOCHS + names::WORDS;
const DURABLE_AT: usize = DIRTY_AT + names::ENTRIES;
const UNFLUSHED_AT: usize = DURABLE_AT + names::ENTRIES;
const TALLY_AT: usize = UNFLUSHED_AT + UNFLUSHED;
const PINS_AT: usize = TALLY_AT + tally::WORDS;
const FRAMES_AT: usize = PINS_AT + pins::WORDS;

/// The shared words.
#[derive(Clone)]
pub struct Area(Arc<Memory>);

/// The page in a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// Page of the log.
    pub page: u64,
    /// See [`Area::epoch`].
    pub epoch: u64,
    /// The hash of its bytes without the checksum; none if the page was read through a ring, so that it is not admitted.
    pub hash: Option<u64>,
    /// The server's checksum in its bytes.
    pub checksum: u16,
    /// How many frames were filled before it.
    pub fill: u64,
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

    /// A call of flash took this long.
    pub fn flash_took(&self, call: FlashCall, bytes: u64, time: Duration) {
        let operation = match call {
            FlashCall::Read => Operation::FlashRead,
            FlashCall::Write => Operation::FlashWrite,
            FlashCall::Flush => Operation::FlashFlush,
        };
        if call == FlashCall::Write {
            self.add(Mark::FlashBytes, bytes);
        }
        self.tally().took(operation, bytes, time);
    }

    /// Sets a mark; returns its previous value.
    pub fn swap(&self, mark: Mark, value: u64) -> u64 {
        self.mark(mark).swap(value, AcqRel)
    }

    /// Sets a mark if it has the value `from`; returns whether it had.
    pub fn exchange(&self, mark: Mark, from: u64, to: u64) -> bool {
        self.mark(mark).compare_exchange(from, to, AcqRel, Acquire).is_ok()
    }

    /// Raises a mark.
    pub fn raise_mark(&self, mark: Mark, value: u64) {
        self.mark(mark).fetch_max(value, AcqRel);
    }

    /// Counts.
    pub fn count(&self, mark: Mark) {
        self.add(mark, 1);
    }

    /// Counts several.
    pub fn add(&self, mark: Mark, many: u64) {
        self.mark(mark).fetch_add(many, Relaxed);
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

    /// Raises the epoch of a page that is about to change; returns the new epoch.
    pub fn raise(&self, page: u64) -> u64 {
        self.epoch_word(page).fetch_add(1, AcqRel);
        self.epoch(page)
    }

    /// Raises the epochs of all pages.
    pub fn raise_all(&self) {
        self.mark(Mark::Epoch).fetch_add(1, AcqRel);
    }

    /// The numbers of extents.
    #[must_use]
    pub fn names(&self) -> Names<'_> {
        let at = MARKS + EPOCHS;
        Names::new(&self.0.user_words()[at..at + names::WORDS])
    }

    fn dirty_word(&self, number: Number) -> &AtomicU64 {
        &self.0.user_words()[DIRTY_AT + number.entry()]
    }

    /// Records that the log has a changed page of the extent at a position.
    pub fn made_dirty(&self, number: Number, position: u64) {
        self.dirty_word(number).fetch_max(position, AcqRel);
    }

    /// The position to which the log must be drained so that the disk has all of the extent.
    #[must_use]
    pub fn dirty_until(&self, number: Number) -> u64 {
        self.dirty_word(number).load(Acquire)
    }

    /// Records that any extent may have dirty pages up to this position.
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
        &self.0.user_words()[UNFLUSHED_AT..TALLY_AT]
    }

    /// Statistics of devices and extents.
    #[must_use]
    pub fn tally(&self) -> Tally<'_> {
        Tally::new(&self.0.user_words()[TALLY_AT..PINS_AT])
    }

    /// Pinned relations.
    #[must_use]
    pub fn pins(&self) -> Pins<'_> {
        Pins::new(&self.0.user_words()[PINS_AT..FRAMES_AT])
    }

    /// Whether the page is of a pinned relation, whose file still exists.
    #[must_use]
    pub fn is_pinned(&self, extents: Extents, page: u64) -> bool {
        if self.get(Mark::Pinned) == 0 {
            return false;
        }
        let (number, block) = Number::of_page(page);
        let Some(extent) = self.names().extent_of(number) else { return false };
        let (segment, first) = extents.place(&extent);
        let block = segment * extents.segment_blocks() + first + block;
        block < self.pins().pages(&extent.fork)
    }

    fn frame(&self, frame: usize) -> Option<&[AtomicU64]> {
        let at = FRAMES_AT + frame * FRAME_WORDS;
        self.0.user_words().get(at..at + FRAME_WORDS)
    }

    /// The page in a frame.
    #[must_use]
    pub fn record(&self, frame: usize) -> Option<Record> {
        let [page, epoch, hash, rest] = self.frame(frame)? else { return None };
        let page = page.load(Acquire).checked_sub(1)?;
        let (epoch, hash, rest) = (epoch.load(Relaxed), hash.load(Relaxed), rest.load(Relaxed));
        // A hash of 0 is not told from none: such a page is not admitted.
        let hash = Some(hash).filter(|hash| *hash != 0);
        Some(Record { page, epoch, hash, checksum: rest as u16, fill: rest >> 16 })
    }

    /// Records the page in a frame, or that it is unknown.
    pub fn set_record(&self, frame: usize, record: Option<Record>) {
        let Some(words) = self.frame(frame) else { return };
        // A process that dies here leaves no record instead of half of one.
        words[0].store(0, Release);
        if let Some(record) = record {
            words[1].store(record.epoch, Release);
            words[2].store(record.hash.unwrap_or(0), Release);
            words[3].store(record.fill << 16 | u64::from(record.checksum), Release);
            words[0].store(record.page + 1, Release);
        }
    }

    /// How many frames there are.
    #[must_use]
    pub fn frames(&self) -> u64 {
        ((self.0.user_words().len() - FRAMES_AT) / FRAME_WORDS) as u64
    }

    /// Counts the fill of a frame; returns how many were before it.
    #[must_use]
    pub fn fill(&self) -> u64 {
        self.mark(Mark::Fills).fetch_add(1, Relaxed)
    }

    /// The server has new shared buffers.
    pub fn forget_frames(&self) {
        for words in self.0.user_words()[FRAMES_AT..].chunks(FRAME_WORDS) {
            // Most were never written, and reading them allocates no memory.
            if words[0].load(Relaxed) != 0 {
                words[0].store(0, Release);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use larder_core::pagelog::{Geometry, LogPolicy, LogSettings};
    use larder_shared::Shape;

    use super::*;

    #[test]
    fn memory_is_what_the_document_says() {
        // docs/postgresql.md: 32 bytes a frame, 8 MiB for the rest with what members and mutexes take.
        assert_eq!(8 * (Area::words(1_000) - Area::words(0)), 32 * 1_000);
        assert!((7 << 20..8 << 20).contains(&(8 * Area::words(0))));
        let log = |blocks| 8 * larder_core::pagelog::words_needed(blocks);
        assert_eq!(log(2_000_000) - log(1_000_000), 20 * 1_000_000);
        // Beside them requests and four batches.
        let geometry =
            Geometry { base: 4096, blocks: 0, page_bytes: 8192, batch_pages: 64, volume: 1 };
        let settings = LogSettings { policy: LogPolicy::Through, second_chance: true };
        let log = geometry.grown_to(1 << 30).unwrap();
        let shape = Shape { log, settings, user_words: Area::words(0) };
        let rest = Memory::bytes(&shape) - 8 * larder_core::pagelog::words_needed(log.blocks);
        assert!((11 << 20..12 << 20).contains(&rest), "{rest}");
    }
}
