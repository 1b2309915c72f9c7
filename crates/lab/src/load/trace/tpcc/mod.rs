// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a database under TPC-C asks of its device: the stream below the buffer pool, for which a
//! flash cache is bought, and with which FaCE was measured (section 6.2).
//!
//! # What is modelled
//! - The five transactions (`business`) in the standard's mix, with its laws of access (NURand), each a list
//!   of accesses to pages; what they append (orders, lines, history) and what grows (indexes).
//! - The place (`schema`) of each row and index entry.
//! - A buffer pool (`pool`, `frames`) under LRU, which answers most accesses. A page that is read from the device was evicted
//!   from the pool before, so it comes back late if at all.
//! - Writes as PostgreSQL makes them: by the client that needs the frame of a changed page; by a cleaner,
//!   which every 200 ms looks at those frames that will be needed within 400 ms at the present
//!   rate and writes up to [`Spec::cleaner_pages`] of them (its `bgwriter_lru_multiplier` 2,
//!   `bgwriter_delay` and `bgwriter_lru_maxpages`); and by a checkpoint every
//!   [`Spec::checkpoint`], which writes what was changed when it began, in order of place, spread
//!   over half of the time to the next one (`checkpoint_completion_target` of its release 8.4).
//! - Several clients at once, each of which waits for the pages that it reads and for nothing else.
//!
//! # What is not
//! The log, which has a device of its own (FaCE, section 5); full-page images; locks, and so who waits for
//! whom; versions of rows (a change stays on its page), and with them vacuum; splits of indexes
//! other than at their end; the file system; read-ahead; terminals that stay with their warehouse.
//! A checkpoint of release 8.4 wrote in order of frames; in order of place is later practice.
//!
//! The trace begins when the pool is full, or after twenty accesses a frame if it never is.
//!
//! Invariants: no page is read that is in the pool, nor twice while it stays there; what is
//! written was changed since it was last read, made or written.

pub(crate) mod business;
pub(crate) mod frames;
pub(crate) mod page_map;
pub(crate) mod pool;
pub(crate) mod schema;

use std::collections::VecDeque;

use hashbrown::HashMap;
use larder_core::exec::{MILLISECOND, Nanos};
use larder_trace::{DEVICE_BYTES, Record};

use self::business::{Access, Business};
use self::pool::Pool;
use super::{Pace, Turns, record};

/// From one round of the cleaner to the next.
const CLEANER_PERIOD: Nanos = 200 * MILLISECOND;
/// So many accesses a frame are enough to be warm.
const WARM: u64 = 20;

/// The database and who uses it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spec {
    /// Warehouses, at least one and at most [`MOST_WAREHOUSES`].
    pub warehouses: u32,
    /// Bytes of a page, a power of two from 4 KiB to 64 KiB.
    pub page_bytes: u64,
    /// Bytes of the pool.
    pub pool_bytes: u64,
    /// Pages that the cleaner may write in a round; 0 for no cleaner.
    pub cleaner_pages: u32,
    /// From the begin of a checkpoint to that of the next one.
    pub checkpoint: Nanos,
    /// When transactions come, and how long a read takes.
    pub pace: Pace,
}

impl Spec {
    /// Memory that a generator takes: its frames, and orders that are not delivered.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        let frames = self.pool_bytes / self.page_bytes;
        frames.saturating_mul(FRAME_BYTES) + u64::from(self.warehouses) * WAREHOUSE_BYTES
    }
}

/// Memory of a frame: page and links, and its part of the hash table.
const FRAME_BYTES: u64 = 64;
/// Memory of a warehouse at worst, when every customer has ordered, with the numbers of its pages' frames.
const WAREHOUSE_BYTES: u64 = 810 << 10;
/// Half a terabyte of data.
pub const MOST_WAREHOUSES: u32 = 5_000;

/// The generator, see the module.
pub struct TpccTrace {
    spec: Spec,
    business: Business,
    pool: Pool,
    turns: Turns,
    under_way: HashMap<u64, VecDeque<Access>>,
    /// The next round of the cleaner, and frames that were needed since the last one.
    cleaner_at: Nanos,
    needed: usize,
    checkpoint: Checkpoint,
    ready: VecDeque<Record>,
    /// When the trace began.
    begin: Nanos,
}

struct Checkpoint {
    /// When the next one begins.
    begins_at: Nanos,
    /// What this one has yet to write, and when and how often it does.
    left: VecDeque<u64>,
    write_at: Nanos,
    every: Nanos,
}

impl TpccTrace {
    /// A trace that ends only where the database outgrows 16 TiB. Makes the pool warm, which takes
    /// a while if it is large.
    #[must_use]
    pub fn new(spec: Spec, seed: u64) -> Self {
        let frames = u32::try_from(spec.pool_bytes / spec.page_bytes).unwrap_or(u32::MAX);
        let mut trace = Self {
            business: Business::new(spec.warehouses, spec.page_bytes, seed),
            pool: Pool::new(frames),
            turns: Turns::new(spec.pace, seed),
            under_way: HashMap::new(),
            cleaner_at: CLEANER_PERIOD,
            needed: 0,
            checkpoint: Checkpoint {
                begins_at: spec.checkpoint,
                left: VecDeque::new(),
                write_at: Nanos::MAX,
                every: 0,
            },
            ready: VecDeque::new(),
            begin: 0,
            spec,
        };
        let mut accesses = 0;
        while !trace.pool.is_full() && accesses < WARM * u64::from(frames) && !trace.is_over() {
            accesses += trace.step();
            trace.ready.clear();
        }
        trace.begin = trace.next_at();
        trace
    }

    /// Whether the database has become too large for a trace.
    fn is_over(&self) -> bool {
        self.business.is_full()
            || self.business.schema.space.end * self.spec.page_bytes > DEVICE_BYTES
    }

    /// When something comes next.
    fn next_at(&self) -> Nanos {
        let checkpoint_at = self.checkpoint.begins_at.min(self.checkpoint.write_at);
        self.turns.next_at().min(self.cleaner_at).min(checkpoint_at)
    }

    /// Whatever comes next; how many accesses were made.
    fn step(&mut self) -> u64 {
        match self.next_at() {
            now if now == self.cleaner_at => self.clean(now),
            now if now == self.checkpoint.begins_at => self.begin_checkpoint(now),
            now if now == self.checkpoint.write_at => self.go_on_with_checkpoint(now),
            _ => return self.turn(),
        }
        0
    }

    /// A client continues until it needs a page from the device, or to the end of its transaction.
    fn turn(&mut self) -> u64 {
        let (now, who) = self.turns.take();
        let accesses = self.under_way.entry(who).or_insert_with(|| self.business.transaction().1);
        let mut made = 0;
        while let Some(Access { page, how }) = accesses.pop_front() {
            made += 1;
            let needs = self.pool.access(page, how);
            self.needed += usize::from(needs.read || how == pool::How::Make);
            let begin = self.begin;
            let mut ask = |writes, page| {
                let bytes = self.spec.page_bytes;
                self.ready.extend(record(now - begin, writes, page * bytes, bytes));
            };
            needs.write.into_iter().for_each(|page| ask(true, page));
            if needs.read {
                ask(false, page);
                self.turns.asked(now, who);
                return made;
            }
        }
        self.under_way.remove(&who);
        self.turns.ended(now, who);
        made
    }

    fn write(&mut self, now: Nanos, page: u64) {
        let bytes = self.spec.page_bytes;
        self.ready.extend(record(now - self.begin, true, page * bytes, bytes));
    }

    /// A round of the cleaner.
    fn clean(&mut self, now: Nanos) {
        let look = 2 * std::mem::take(&mut self.needed);
        let pages = self.pool.clean_coldest(look, self.spec.cleaner_pages as usize);
        pages.into_iter().for_each(|page| self.write(now, page));
        self.cleaner_at = now + CLEANER_PERIOD;
    }

    fn begin_checkpoint(&mut self, now: Nanos) {
        let left: VecDeque<u64> = self.pool.dirty().into();
        let every = self.spec.checkpoint / 2 / (left.len() as u64).max(1);
        let write_at = if left.is_empty() { Nanos::MAX } else { now };
        let begins_at = now + self.spec.checkpoint;
        self.checkpoint = Checkpoint { begins_at, left, write_at, every };
    }

    /// The checkpoint's next page; those that were written meanwhile for another reason are left
    /// out.
    fn go_on_with_checkpoint(&mut self, now: Nanos) {
        if let Some(page) = self.checkpoint.left.pop_front()
            && self.pool.clean(page)
        {
            self.write(now, page);
        }
        let over = self.checkpoint.left.is_empty();
        self.checkpoint.write_at = if over { Nanos::MAX } else { now + self.checkpoint.every };
    }
}

impl Iterator for TpccTrace {
    type Item = Record;

    fn next(&mut self) -> Option<Record> {
        while self.ready.is_empty() && !self.is_over() {
            self.step();
        }
        self.ready.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap as Map;

    use larder_core::exec::SECOND;
    use larder_trace::Op;

    use super::super::Begin;
    use super::*;

    fn spec() -> Spec {
        Spec {
            warehouses: 4,
            page_bytes: 4096,
            pool_bytes: 2 << 20,
            cleaner_pages: 100,
            checkpoint: 60 * SECOND,
            pace: Pace {
                begin: Begin::Clients { count: 20, think: MILLISECOND },
                service: 5 * MILLISECOND,
            },
        }
    }

    fn trace(spec: Spec, count: usize) -> Vec<Record> {
        TpccTrace::new(spec, 9).take(count).collect()
    }

    #[test]
    fn nothing_comes_back_before_it_can_have_left_the_pool() {
        let records = trace(spec(), 200_000);
        assert!(records.is_sorted_by_key(|r| r.ts_us));
        let frames = spec().pool_bytes / 4096;
        let (mut reads, mut soon, mut last) = (0_u64, 0_u64, Map::new());
        for record in records.iter().filter(|r| r.op == Op::Read) {
            reads += 1;
            let before = last.insert(record.offset_bytes, reads);
            soon += u64::from(before.is_some_and(|before| reads - before < frames / 2));
        }
        // A page can leave sooner when others that were there already are used again.
        assert!(soon * 50 < reads, "{soon} of {reads}");
        let again = reads - last.len() as u64;
        assert!(again * 4 > reads, "{again} of {reads}");
    }

    #[test]
    fn writes_wait_and_without_cleaner_or_checkpoint_only_until_the_page_leaves() {
        let never = Spec { cleaner_pages: 0, checkpoint: 1_000_000 * SECOND, ..spec() };
        let writes = |records: &[Record]| {
            let writes = records.iter().filter(|r| r.op == Op::Write);
            writes.count() as f64 / records.len() as f64
        };
        let (bare, cleaned) = (trace(never, 100_000), trace(spec(), 100_000));
        // A page that leaves is written when another is read or made, so at the same time.
        let (bare_share, cleaned_share) = (writes(&bare), writes(&cleaned));
        assert!((0.1..0.3).contains(&bare_share), "{bare_share}");
        // Who writes earlier writes more.
        assert!(cleaned_share > bare_share, "{cleaned_share} {bare_share}");
    }

    #[test]
    fn a_checkpoint_goes_over_the_database_in_order_for_half_of_its_time() {
        // Nothing has to leave this pool, so nothing else is written.
        let checkpoint = 4 * SECOND;
        let spec =
            Spec { warehouses: 1, cleaner_pages: 0, pool_bytes: 256 << 20, checkpoint, ..spec() };
        let records = trace(spec, 150_000);
        let writes: Vec<&Record> = records.iter().filter(|r| r.op == Op::Write).collect();
        let rounds: Vec<&[&Record]> =
            writes.chunk_by(|a, b| b.offset_bytes > a.offset_bytes).collect();
        assert!(rounds.len() > 3, "{}", rounds.len());
        for round in &rounds[1..rounds.len() - 1] {
            let took = round.last().unwrap().ts_us - round[0].ts_us;
            assert!((1_900_000..=2_000_000).contains(&took), "{took}");
        }
    }

    #[test]
    fn equal_seeds_give_equal_traces_and_all_that_is_in_the_pool_makes_no_requests() {
        assert_eq!(trace(spec(), 5_000), trace(spec(), 5_000));
        let large = Spec { warehouses: 1, pool_bytes: 1 << 30, checkpoint: SECOND, ..spec() };
        let records = trace(large, 20_000);
        let reads = records.iter().filter(|r| r.op == Op::Read).count();
        assert!(reads < 10_000, "{reads}");
    }
}
