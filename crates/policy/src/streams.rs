// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sequential streams of requests: each request of a stream begins where the one before ended.
//!
//! A table has the place at which each of the most recent streams continues, and a state for each. The caller chooses the
//! unit of a place: bytes, or units of a cache.
//!
//! Invariants: a table holds at most as many streams as it was made for. When it is full, a new stream replaces the one
//! that was continued least recently. The counters state how many streams continue at the places of each hash.
//!
//! Why counters: every read of a client asks, also those that hit, and most belong to no stream. A counter of zero answers
//! without a search of the table.

use alloc::boxed::Box;
use alloc::collections::VecDeque;

/// Counters of a table. Few of them are above zero.
const COUNTERS: usize = 1024;

/// The most recent streams, see the module.
#[derive(Debug)]
pub(crate) struct Streams<T> {
    most: usize,
    /// The place at which each continues, and its state.
    streams: VecDeque<(u64, T)>,
    counters: Box<[u8; COUNTERS]>,
}

/// The counter of a place (Fibonacci hashing).
fn counter(at: u64) -> usize {
    (at.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (u64::BITS - COUNTERS.ilog2())) as usize
}

impl<T: Copy> Streams<T> {
    /// A table of so many streams.
    pub(crate) fn new(most: usize) -> Self {
        debug_assert!(most <= usize::from(u8::MAX), "a counter has eight bits");
        Self { most, streams: VecDeque::with_capacity(most), counters: Box::new([0; COUNTERS]) }
    }

    /// Removes the stream that continues at this place, and returns its state.
    pub(crate) fn take(&mut self, at: u64) -> Option<T> {
        let counter = &mut self.counters[counter(at)];
        if *counter == 0 {
            return None;
        }
        let place = self.streams.iter().position(|(next, _)| *next == at)?;
        *counter -= 1;
        self.streams.remove(place).map(|(_, state)| state)
    }

    /// Adds a stream that continues at `next`.
    pub(crate) fn put(&mut self, next: u64, state: T) {
        if self.streams.len() == self.most {
            let oldest = self.streams.pop_front();
            oldest.into_iter().for_each(|(next, _)| self.counters[counter(next)] -= 1);
        }
        self.counters[counter(next)] += 1;
        self.streams.push_back((next, state));
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.streams.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_finds_what_a_search_of_all_finds() {
        let (mut table, mut model) = (Streams::new(8), VecDeque::new());
        let mut seed = 7_u64;
        for n in 0..50_000 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let at = (seed >> 33) % 24 * 3000;
            let known = model.iter().position(|(next, _)| *next == at);
            let known = known.and_then(|place| model.remove(place)).map(|(_, state)| state);
            assert_eq!(table.take(at), known);
            if model.len() == 8 {
                model.pop_front();
            }
            model.push_back((at, n));
            table.put(at, n);
        }
    }

    #[test]
    fn the_stream_that_was_continued_least_recently_is_forgotten() {
        let mut table = Streams::new(3);
        (1..=3).for_each(|n| table.put(n * 100, n));
        assert_eq!(table.take(100), Some(1));
        table.put(101, 1);
        table.put(400, 4);
        assert_eq!([table.take(200), table.take(300), table.take(101)], [None, Some(3), Some(1)]);
        assert_eq!(table.take(101), None, "it was taken");
    }
}
