// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sequential streams of requests: each request of a stream begins where the one before ended.
//!
//! A table has the place at which each of the most recent streams continues, and a state for each. The caller chooses the
//! unit of a place: bytes, or units of a cache.
//!
//! Invariant: a table holds at most as many streams as it was made for. When it is full, a new stream replaces the one
//! that was continued least recently.

use alloc::collections::VecDeque;

/// The most recent streams, see the module.
#[derive(Debug)]
pub(crate) struct Streams<T> {
    most: usize,
    /// The place at which each continues, and its state.
    streams: VecDeque<(u64, T)>,
}

impl<T: Copy> Streams<T> {
    /// A table of so many streams.
    pub(crate) fn new(most: usize) -> Self {
        Self { most, streams: VecDeque::with_capacity(most) }
    }

    /// Removes the stream that continues at this place, and returns its state.
    pub(crate) fn take(&mut self, at: u64) -> Option<T> {
        let place = self.streams.iter().position(|(next, _)| *next == at)?;
        self.streams.remove(place).map(|(_, state)| state)
    }

    /// Adds a stream that continues at `next`.
    pub(crate) fn put(&mut self, next: u64, state: T) {
        if self.streams.len() == self.most {
            self.streams.pop_front();
        }
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
