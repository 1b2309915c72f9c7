// SPDX-License-Identifier: MIT OR Apache-2.0
//! The content of a disk's write cache, the order in which it drains, and the requests that wait for it.
//!
//! Dirty ranges drain as a one-way elevator: upwards from where the last drain ended, then again from the lowest;
//! neighbouring ranges drain together. A range that is written again before it drains stays one range.
//!
//! A *barrier* (a flush, or a write with FUA) completes once all data that was dirty at its arrival has drained. Each
//! barrier closes an *epoch*. Ranges carry the epoch in which they became dirty, and a count for each open epoch shows
//! how many remain, without a search.
//!
//! Invariants: the ranges are disjoint; the counts add up to the ranges held plus the ranges draining; a range that is
//! written again keeps its older epoch, so a barrier never completes early. Writes that keep the elevator busy cannot
//! delay a barrier indefinitely: room freed by drains is available only when no barrier waits, or when one completes,
//! so the room at its arrival bounds the data accepted meanwhile.
//!
//! Why not drain the barrier's ranges first: that would take two passes over the platter instead of one.

use std::collections::{BTreeMap, VecDeque};

use super::spec::WriteCacheSpec;
use crate::Nanos;
use crate::completions::Order;

/// Numbers the intervals between barriers.
pub(crate) type Epoch = u64;

/// A request that waits until all epochs up to its own have drained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Barrier {
    pub(crate) id: u64,
    pub(crate) order: Order,
    /// It does not complete before this time, when its command and data have arrived.
    pub(crate) earliest: Nanos,
}

struct Dirty {
    end: u64,
    epoch: Epoch,
}

pub(crate) struct WriteCache {
    spec: WriteCacheSpec,
    ranges: BTreeMap<u64, Dirty>,
    /// Bytes dirty, draining, or drained but not yet available.
    used_bytes: u64,
    /// Of these, bytes drained while a barrier waited.
    withheld_bytes: u64,
    draining: Vec<Epoch>,
    draining_bytes: u64,
    /// Where the last drain ended.
    elevator: u64,
    /// Ranges left of epoch `oldest`, of the following one, and so on to the current one.
    counts: VecDeque<u64>,
    oldest: Epoch,
    barriers: VecDeque<(Epoch, Barrier)>,
}

impl WriteCache {
    pub(crate) fn new(spec: WriteCacheSpec) -> Self {
        Self {
            spec,
            ranges: BTreeMap::new(),
            used_bytes: 0,
            withheld_bytes: 0,
            draining: Vec::new(),
            draining_bytes: 0,
            elevator: 0,
            counts: VecDeque::from([0]),
            oldest: 0,
            barriers: VecDeque::new(),
        }
    }

    /// Whether it loses its content without power, so that barriers have an effect.
    pub(crate) fn is_volatile(&self) -> bool {
        !self.spec.battery_backed
    }

    /// Whether it can accept a write of this length. An empty cache accepts one larger than itself.
    pub(crate) fn has_room(&self, len: u64) -> bool {
        self.used_bytes == 0 || self.used_bytes.saturating_add(len) <= self.spec.size_bytes
    }

    /// Whether there is something to drain.
    pub(crate) fn is_dirty(&self) -> bool {
        !self.ranges.is_empty()
    }

    /// Whether a barrier waits.
    pub(crate) fn has_barrier(&self) -> bool {
        !self.barriers.is_empty()
    }

    /// Whether a range is completely dirty, so that a read needs no head.
    pub(crate) fn covers(&self, offset: u64, end: u64) -> bool {
        let mut reached = offset;
        while reached < end {
            match self.ranges.range(..=reached).next_back() {
                Some((_, dirty)) if dirty.end > reached => reached = dirty.end,
                _ => return false,
            }
        }
        offset < end
    }

    /// Makes a range dirty; parts that are dirty already are unchanged.
    pub(crate) fn insert(&mut self, offset: u64, end: u64) {
        let before = self.ranges.range(..=offset).next_back();
        let mut from = before.map_or(offset, |(_, dirty)| dirty.end.max(offset));
        while from < end {
            let next = self.ranges.range(from..end).next();
            let (gap_end, resume) = next.map_or((end, end), |(&at, dirty)| (at, dirty.end));
            if from < gap_end {
                self.insert_gap(from, gap_end);
            }
            from = resume;
        }
    }

    fn insert_gap(&mut self, offset: u64, end: u64) {
        let epoch = self.current();
        self.ranges.insert(offset, Dirty { end, epoch });
        self.used_bytes += end - offset;
        self.count(epoch, 1);
    }

    /// Adds a barrier for all data that is dirty now.
    pub(crate) fn add_barrier(&mut self, barrier: Barrier) {
        self.barriers.push_back((self.current(), barrier));
        self.counts.push_back(0);
        self.close_empty_epochs();
    }

    /// Returns a barrier that is complete.
    pub(crate) fn pop_barrier(&mut self) -> Option<Barrier> {
        let (epoch, barrier) = *self.barriers.front()?;
        if epoch >= self.oldest {
            return None;
        }
        self.barriers.pop_front();
        self.used_bytes -= self.withheld_bytes;
        self.withheld_bytes = 0;
        Some(barrier)
    }

    /// Removes the next range to drain: neighbours up to `bytes_max`, or that much of one.
    pub(crate) fn begin_drain(&mut self, bytes_max: u64) -> Option<(u64, u64)> {
        let above = self.ranges.range(self.elevator..).next();
        let offset = *above.or_else(|| self.ranges.iter().next())?.0;
        let mut end = offset;
        while let Some(dirty) = self.ranges.remove(&end) {
            let room = bytes_max.max(1) - (end - offset);
            let Dirty { end: dirty_end, epoch } = dirty;
            let part_end = dirty_end.min(end.saturating_add(room));
            self.draining.push(epoch);
            end = part_end;
            if part_end < dirty_end {
                self.ranges.insert(part_end, Dirty { end: dirty_end, epoch });
                self.count(epoch, 1);
            }
            if end - offset >= bytes_max {
                break;
            }
        }
        self.draining_bytes = end - offset;
        self.elevator = end;
        Some((offset, end))
    }

    /// The range that was drained is on the medium. Does nothing if there is none.
    pub(crate) fn end_drain(&mut self) {
        while let Some(epoch) = self.draining.pop() {
            self.count(epoch, -1);
        }
        if self.barriers.is_empty() {
            self.used_bytes -= self.draining_bytes;
        } else {
            self.withheld_bytes += self.draining_bytes;
        }
        self.draining_bytes = 0;
        self.close_empty_epochs();
    }

    fn current(&self) -> Epoch {
        self.oldest + self.counts.len() as u64 - 1
    }

    fn count(&mut self, epoch: Epoch, change: i64) {
        let count = &mut self.counts[(epoch - self.oldest) as usize];
        *count = count.wrapping_add_signed(change);
    }

    fn close_empty_epochs(&mut self) {
        while self.counts.len() > 1 && self.counts[0] == 0 {
            self.counts.pop_front();
            self.oldest += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Barrier, WriteCache};
    use crate::disk::WriteCacheSpec;
    use crate::random::SplitMix64;

    fn cache(size_bytes: u64) -> WriteCache {
        WriteCache::new(WriteCacheSpec { size_bytes, battery_backed: false })
    }

    fn barrier(id: u64) -> Barrier {
        Barrier { id, order: id, earliest: 0 }
    }

    #[test]
    fn drains_upwards_with_neighbours_and_wraps() {
        let mut cache = cache(1000);
        for (offset, end) in [(50, 60), (10, 20), (60, 65), (90, 95)] {
            cache.insert(offset, end);
        }
        let mut drained = Vec::new();
        cache.elevator = 40;
        while let Some(range) = cache.begin_drain(100) {
            cache.end_drain();
            drained.push(range);
        }
        assert_eq!(drained, [(50, 65), (90, 95), (10, 20)]);
        assert_eq!(cache.used_bytes, 0);
    }

    #[test]
    fn overlaps_count_once_and_reads_are_covered() {
        let mut cache = cache(1000);
        cache.insert(10, 20);
        cache.insert(30, 40);
        cache.insert(5, 50);
        assert_eq!(cache.used_bytes, 45);
        assert_eq!(cache.ranges.len(), 5);
        assert!(cache.covers(5, 50) && cache.covers(12, 33));
        assert!(!cache.covers(4, 6) && !cache.covers(49, 51) && !cache.covers(7, 7));
    }

    #[test]
    fn long_ranges_drain_in_parts() {
        let mut cache = cache(1000);
        cache.insert(0, 250);
        cache.add_barrier(barrier(1));
        let mut parts = 0;
        while cache.begin_drain(100).is_some() {
            assert_eq!(cache.pop_barrier(), None);
            cache.end_drain();
            parts += 1;
        }
        assert_eq!(parts, 3);
        assert_eq!(cache.pop_barrier(), Some(barrier(1)));
        assert_eq!(cache.used_bytes, 0);
    }

    #[test]
    fn a_barrier_waits_for_the_older_of_two_writes() {
        let mut cache = cache(1000);
        cache.insert(10, 20);
        cache.add_barrier(barrier(1));
        cache.insert(10, 20);
        cache.insert(90, 91);
        assert_eq!(cache.pop_barrier(), None);
        cache.begin_drain(100);
        cache.insert(10, 20);
        assert_eq!(cache.pop_barrier(), None);
        cache.end_drain();
        assert_eq!(cache.pop_barrier(), Some(barrier(1)));
        assert_eq!(cache.pop_barrier(), None);
        assert!(cache.is_dirty());
    }

    #[test]
    fn room_is_withheld_while_a_barrier_waits() {
        let mut cache = cache(100);
        cache.insert(0, 50);
        cache.insert(60, 110);
        cache.add_barrier(barrier(1));
        assert!(!cache.has_room(1));
        cache.begin_drain(100);
        cache.end_drain();
        assert!(!cache.has_room(1));
        cache.begin_drain(100);
        cache.end_drain();
        assert!(cache.pop_barrier().is_some());
        assert!(cache.has_room(100));
    }

    #[test]
    fn counts_are_consistent_under_a_random_mix() {
        let mut cache = cache(1 << 20);
        let mut random = SplitMix64::new(3);
        let (mut added, mut popped) = (0, 0);
        for _ in 0..20_000 {
            match random.below(8) {
                0..5 => {
                    let offset = random.below(2000);
                    cache.insert(offset, offset + 1 + random.below(30));
                }
                5..7 => {
                    cache.begin_drain(64);
                    cache.end_drain();
                }
                _ => {
                    cache.add_barrier(barrier(added));
                    added += 1;
                }
            }
            while let Some(barrier) = cache.pop_barrier() {
                assert_eq!(barrier.id, popped);
                popped += 1;
            }
            let held: u64 = cache.ranges.iter().map(|(from, dirty)| dirty.end - from).sum();
            assert_eq!(held + cache.withheld_bytes, cache.used_bytes);
            assert_eq!(cache.counts.iter().sum::<u64>(), cache.ranges.len() as u64);
        }
        assert!(popped > 100);
    }
}
