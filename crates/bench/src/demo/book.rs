// SPDX-License-Identifier: MIT OR Apache-2.0
//! The version that a read of each page must return.
//!
//! Purpose: the clients of a load share it. A write takes the next version of each of its pages
//! before it is sent; a read records the version when it was sent and is checked against all
//! versions until it was answered. A page is a page of a volume, or a row of a
//! table.
//!
//! Invariants: a page has at most one write in flight, so its versions have one order, and a read
//! that was sent when version `f` was the last completed may return `f` or any later one that was
//! begun before its answer, and nothing else.
//!
//! Why a write waits for an overlapping one: either may come last, and no reader could know which
//! is right. Programs do the same: PostgreSQL locks a page while it writes it.

use std::ops::{Range, RangeInclusive};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A page's last version that was begun, and whether its write is still in flight.
#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    latest: u32,
    writing: bool,
}

impl Entry {
    fn completed(self) -> u32 {
        self.latest - u32::from(self.writing)
    }
}

/// The versions of all pages, see the module.
#[derive(Debug)]
pub struct Book {
    entries: Mutex<Vec<Entry>>,
    freed: Condvar,
}

fn indices(pages: Range<u32>) -> Range<usize> {
    pages.start as usize..pages.end as usize
}

impl Book {
    /// So many pages, each at version 0, the initial fill.
    #[must_use]
    pub fn new(pages: usize) -> Self {
        Self { entries: Mutex::new(vec![Entry::default(); pages]), freed: Condvar::new() }
    }

    fn entries(&self) -> MutexGuard<'_, Vec<Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a write: the version that each of its pages gets, or `None` while one of them has a
    /// write in flight.
    #[must_use]
    pub fn begin_write(&self, pages: Range<u32>) -> Option<Vec<u32>> {
        let entries = &mut self.entries()[indices(pages)];
        if entries.iter().any(|e| e.writing) {
            return None;
        }
        let begin = |entry: &mut Entry| {
            *entry = Entry { latest: entry.latest + 1, writing: true };
            entry.latest
        };
        Some(entries.iter_mut().map(begin).collect())
    }

    /// A write was answered.
    pub fn end_write(&self, pages: Range<u32>) {
        self.entries()[indices(pages)].iter_mut().for_each(|e| e.writing = false);
        self.freed.notify_all();
    }

    /// A read is sent: the oldest lawful version of each of its pages.
    #[must_use]
    pub fn begin_read(&self, pages: Range<u32>) -> Vec<u32> {
        self.entries()[indices(pages)].iter().map(|e| e.completed()).collect()
    }

    /// The read was answered: the lawful versions of each of its pages.
    #[must_use]
    pub fn end_read(&self, pages: Range<u32>, oldest: &[u32]) -> Vec<RangeInclusive<u32>> {
        let entries = self.entries();
        oldest.iter().zip(&entries[indices(pages)]).map(|(old, e)| *old..=e.latest).collect()
    }

    /// Waits until some write ended, or for `most`.
    pub fn wait(&self, most: Duration) {
        let entries = self.entries();
        drop(self.freed.wait_timeout(entries, most));
    }

    /// The version that a page holds for certain; a write in flight does not count.
    #[must_use]
    pub fn completed(&self, page: u32) -> u32 {
        self.entries()[page as usize].completed()
    }

    /// Pages written so far, by writes that were answered.
    #[must_use]
    pub fn writes(&self) -> u64 {
        self.entries().iter().map(|e| u64::from(e.completed())).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_may_see_what_was_there_and_what_came_meanwhile() {
        let book = Book::new(4);
        assert_eq!(book.begin_write(0..1), Some(vec![1]));
        let during = book.begin_read(0..2);
        assert_eq!(book.end_read(0..2, &during), [0..=1, 0..=0]);
        book.end_write(0..1);
        let after = book.begin_read(0..2);
        assert_eq!(book.end_read(0..2, &after), [1..=1, 0..=0]);
        // One that began before the second write and ended after the third.
        for version in [2, 3] {
            assert_eq!(book.begin_write(0..1), Some(vec![version]));
            book.end_write(0..1);
        }
        assert_eq!(book.end_read(0..2, &after), [1..=3, 0..=0]);
        assert_eq!((book.completed(0), book.completed(1), book.writes()), (3, 0, 3));
    }

    #[test]
    fn overlapping_writes_take_turns() {
        let book = Book::new(4);
        assert_eq!(book.begin_write(0..3), Some(vec![1, 1, 1]));
        assert_eq!(book.begin_write(2..4), None);
        assert_eq!(book.writes(), 0);
        book.end_write(0..3);
        assert_eq!(book.begin_write(2..4), Some(vec![2, 1]));
    }
}
