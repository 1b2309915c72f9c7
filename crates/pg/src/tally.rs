// SPDX-License-Identifier: MIT OR Apache-2.0
//! Statistics beside the counters of `area.rs`: how long devices take, and reads by extent.
//!
//! A **histogram** counts the calls of an operation by their time, in buckets that are powers of two from 1 us to 17 s. The
//! percentiles of a month and of a minute both follow from differences of the same counters.
//! The **reads of an extent** are counted at its entry in the table of names, and begin with zero when the entry gets another
//! extent. A process that counts at that moment may count for the wrong extent: these are statistics.
//!
//! Why not one counter for each relation: a page has the number of its extent, and the server's catalog, which maps files to
//! relations, cannot be read within a file access.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use crate::names;

/// An operation whose calls are measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Operation {
    /// Pages are read from flash, by reads of the server and by evictions.
    FlashRead,
    /// A batch of pages, or metadata, is written to flash.
    FlashWrite,
    /// Flash is flushed.
    FlashFlush,
    /// Pages that flash lacks are read from the disk into shared buffers.
    DiskRead,
}

impl Operation {
    /// All of them, in the order of their words.
    pub const ALL: [Self; 4] =
        [Self::FlashRead, Self::FlashWrite, Self::FlashFlush, Self::DiskRead];

    /// As the views have it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::FlashRead => "flash_read",
            Self::FlashWrite => "flash_write",
            Self::FlashFlush => "flash_flush",
            Self::DiskRead => "disk_read",
        }
    }
}

/// The first bucket has the calls of up to 2^10 ns.
const FIRST: u32 = 10;
/// Buckets with an upper limit, the last of 2^34 ns; one more has the rest.
pub const LIMITS: usize = 25;
/// Words of an operation: the buckets, bytes, nanoseconds.
const OPERATION_WORDS: usize = LIMITS + 3;
const BYTES: usize = LIMITS + 1;
const TIME: usize = LIMITS + 2;
const READS_AT: usize = Operation::ALL.len() * OPERATION_WORDS;
/// All words.
pub const WORDS: usize = READS_AT + 2 * names::ENTRIES;

/// The calls of an operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Calls {
    /// By time; the last bucket has no limit.
    pub buckets: [u64; LIMITS + 1],
    /// Bytes of all calls.
    pub bytes: u64,
    /// Time of all calls.
    pub ns: u64,
}

/// The statistics.
#[derive(Clone, Copy)]
pub struct Tally<'a>(&'a [AtomicU64]);

/// The upper limit of a bucket.
#[must_use]
pub fn limit_ns(bucket: usize) -> Option<u64> {
    (bucket < LIMITS).then(|| 1 << (FIRST + bucket as u32))
}

fn bucket_of(ns: u64) -> usize {
    // The limit belongs to its bucket.
    let bits = u64::BITS - ns.saturating_sub(1).leading_zeros();
    (bits.saturating_sub(FIRST) as usize).min(LIMITS)
}

impl<'a> Tally<'a> {
    /// Over these words.
    #[must_use]
    pub fn new(words: &'a [AtomicU64]) -> Self {
        assert_eq!(words.len(), WORDS);
        Self(words)
    }

    fn of(&self, operation: Operation) -> &'a [AtomicU64] {
        &self.0[operation as usize * OPERATION_WORDS..][..OPERATION_WORDS]
    }

    /// A call took this long.
    pub fn took(&self, operation: Operation, bytes: u64, time: Duration) {
        let words = self.of(operation);
        let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        words[bucket_of(ns)].fetch_add(1, Relaxed);
        words[BYTES].fetch_add(bytes, Relaxed);
        words[TIME].fetch_add(ns, Relaxed);
    }

    /// The calls of an operation.
    #[must_use]
    pub fn calls(&self, operation: Operation) -> Calls {
        let words = self.of(operation);
        let get = |word: usize| words[word].load(Relaxed);
        Calls { buckets: std::array::from_fn(get), bytes: get(BYTES), ns: get(TIME) }
    }

    fn entry(&self, entry: usize) -> &'a [AtomicU64] {
        &self.0[READS_AT + 2 * entry..][..2]
    }

    /// A page of the extent at this entry is read into shared buffers.
    pub fn read(&self, entry: usize) {
        self.entry(entry)[0].fetch_add(1, Relaxed);
    }

    /// Flash had it.
    pub fn hit(&self, entry: usize) {
        self.entry(entry)[1].fetch_add(1, Relaxed);
    }

    /// Reads and hits of the extent at an entry.
    #[must_use]
    pub fn reads(&self, entry: usize) -> [u64; 2] {
        [0, 1].map(|word| self.entry(entry)[word].load(Relaxed))
    }

    /// The entry has another extent.
    pub fn begin(&self, entry: usize) {
        self.entry(entry).iter().for_each(|word| word.store(0, Relaxed));
    }

    /// All of them begin with zero.
    pub fn reset(&self) {
        // Most words are zero, and reading them allocates no memory.
        let used = |word: &&AtomicU64| word.load(Relaxed) != 0;
        self.0.iter().filter(used).for_each(|word| word.store(0, Relaxed));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_in_the_first_bucket_whose_limit_it_keeps() {
        let words: Vec<AtomicU64> = (0..WORDS).map(|_| AtomicU64::new(0)).collect();
        let tally = Tally::new(&words);
        for bucket in 0..LIMITS {
            let limit = limit_ns(bucket).unwrap();
            assert_eq!((bucket_of(limit), bucket_of(limit + 1)), (bucket, bucket + 1));
        }
        assert_eq!((bucket_of(0), bucket_of(u64::MAX), limit_ns(LIMITS)), (0, LIMITS, None));
        tally.took(Operation::DiskRead, 8192, Duration::from_nanos(1500));
        tally.took(Operation::DiskRead, 16384, Duration::from_secs(60));
        let calls = tally.calls(Operation::DiskRead);
        assert_eq!((calls.buckets[1], calls.buckets[LIMITS], calls.bytes), (1, 1, 24576));
        assert_eq!(calls.ns, 60_000_001_500);
        assert_eq!(tally.calls(Operation::FlashFlush), Calls::default());
        tally.read(names::ENTRIES - 1);
        tally.hit(names::ENTRIES - 1);
        assert_eq!(tally.reads(names::ENTRIES - 1), [1, 1]);
        tally.begin(names::ENTRIES - 1);
        assert_eq!(tally.reads(names::ENTRIES - 1), [0, 0]);
        tally.reset();
        assert!(words.iter().all(|word| word.load(Relaxed) == 0));
    }
}
