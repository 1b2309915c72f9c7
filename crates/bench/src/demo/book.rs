// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which version of every page the volume must hold.
//!
//! Purpose: the replay's connections share it. A write takes the next version of each of its pages
//! before it is sent; a read remembers what was there when it was sent and is checked against all
//! that was or came to be there until it was answered.
//!
//! Invariants: a page has at most one write in flight, so its versions have one order, and a read
//! that was sent when version `f` was the last completed may bring `f` or any later one that was
//! begun before its answer, and nothing else.
//!
//! Why a write waits for an overlapping one: either may come last, and no reader could tell which
//! is right. Programs do the same: PostgreSQL locks a page while it writes it.

use std::ops::RangeInclusive;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::workload::Step;

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

fn range(step: &Step) -> std::ops::Range<usize> {
    step.page as usize..(step.page + step.pages) as usize
}

impl Book {
    /// A volume of so many pages, each at version 0, the initial fill.
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
    pub fn begin_write(&self, step: &Step) -> Option<Vec<u32>> {
        let entries = &mut self.entries()[range(step)];
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
    pub fn end_write(&self, step: &Step) {
        self.entries()[range(step)].iter_mut().for_each(|e| e.writing = false);
        self.freed.notify_all();
    }

    /// A read is sent: the oldest lawful version of each of its pages.
    #[must_use]
    pub fn begin_read(&self, step: &Step) -> Vec<u32> {
        self.entries()[range(step)].iter().map(|e| e.completed()).collect()
    }

    /// The read was answered: the lawful versions of each of its pages.
    #[must_use]
    pub fn end_read(&self, step: &Step, oldest: &[u32]) -> Vec<RangeInclusive<u32>> {
        let entries = self.entries();
        oldest.iter().zip(&entries[range(step)]).map(|(old, e)| *old..=e.latest).collect()
    }

    /// Waits until some write ended, or for `most`.
    pub fn wait(&self, most: Duration) {
        let entries = self.entries();
        drop(self.freed.wait_timeout(entries, most));
    }

    /// The versions that pages `first..first + count` hold for certain; those of writes in flight
    /// do not count.
    #[must_use]
    pub fn completed(&self, first: usize, count: usize) -> Vec<u32> {
        self.entries()[first..first + count].iter().map(|e| e.completed()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::workload::Verb;
    use super::*;

    fn step(page: u32, pages: u32) -> Step {
        Step { verb: Verb::Write, page, pages }
    }

    #[test]
    fn a_read_may_see_what_was_there_and_what_came_meanwhile() {
        let book = Book::new(4);
        let read = step(0, 2);
        assert_eq!(book.begin_write(&step(0, 1)), Some(vec![1]));
        let during = book.begin_read(&read);
        assert_eq!(book.end_read(&read, &during), [0..=1, 0..=0]);
        book.end_write(&step(0, 1));
        let after = book.begin_read(&read);
        assert_eq!(book.end_read(&read, &after), [1..=1, 0..=0]);
        // One that began before the second write and ended after the third.
        for version in [2, 3] {
            assert_eq!(book.begin_write(&step(0, 1)), Some(vec![version]));
            book.end_write(&step(0, 1));
        }
        assert_eq!(book.end_read(&read, &after), [1..=3, 0..=0]);
        assert_eq!(book.completed(0, 4), [3, 0, 0, 0]);
    }

    #[test]
    fn overlapping_writes_take_turns() {
        let book = Book::new(4);
        assert_eq!(book.begin_write(&step(0, 3)), Some(vec![1, 1, 1]));
        assert_eq!(book.begin_write(&step(2, 2)), None);
        assert_eq!(book.completed(0, 4), [0; 4]);
        book.end_write(&step(0, 3));
        assert_eq!(book.begin_write(&step(2, 2)), Some(vec![2, 1]));
    }
}
