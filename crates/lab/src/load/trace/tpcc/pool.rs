// SPDX-License-Identifier: MIT OR Apache-2.0
//! The pool of the trace generator: what of the database's accesses reaches the device.
//!
//! The frames are those of every pool of TPC-C (`frames.rs`). A page that was changed is written when it is evicted, or
//! before that by a cleaner that looks at those that are evicted next, or by a checkpoint.
//!
//! Invariant: an access is answered at once, so that a frame is ready as soon as it is entered.

use std::cell::{Cell, RefCell};

use super::frames::Frames;

/// What an access does to a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// It looks.
    Read,
    /// It changes what is there.
    Change,
    /// It makes the page, which therefore need not be read.
    Make,
}

/// What an access needs of the device, in this order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// A changed page has to leave and is written.
    pub write: Option<u64>,
    /// The page is not there and is read.
    pub read: bool,
}

/// The pool, see the module. The state of a frame is whether its page was changed.
pub struct Pool(Frames<bool>);

impl Pool {
    /// An empty pool of so many pages, at least one.
    pub fn new(pages: u32) -> Self {
        Self(Frames::new(pages))
    }

    /// Whether a page has to leave for the next one that enters.
    pub fn is_full(&self) -> bool {
        self.0.is_full()
    }

    /// An access.
    pub fn access(&mut self, page: u64, how: How) -> Needs {
        let changes = how != How::Read;
        if let Some(frame) = self.0.find(page) {
            self.0.used(frame);
            *self.0.state(frame) |= changes;
            return Needs::default();
        }
        let write = if self.0.is_full() { self.evict() } else { None };
        if let Some(frame) = self.0.take() {
            self.0.enter(frame, page, changes);
            self.0.ready(frame);
        }
        Needs { write, read: how != How::Make }
    }

    /// Evicts a page, and returns it if it must be written.
    fn evict(&mut self) -> Option<u64> {
        let frame = self.0.coldest(|_, _| true)?;
        let (page, dirty) = self.0.evict(frame);
        dirty.then_some(page)
    }

    /// Changed pages among the `look` that leave next, at most `most`; from now on they are clean.
    pub fn clean_coldest(&mut self, look: usize, most: usize) -> Vec<u64> {
        let (seen, found) = (Cell::new(0), RefCell::new(Vec::new()));
        self.0.coldest(|frame, dirty| {
            let mut found = found.borrow_mut();
            if seen.get() == look || found.len() == most {
                return true;
            }
            seen.set(seen.get() + 1);
            if *dirty {
                found.push(frame);
            }
            false
        });
        let clean = |frame: u32| {
            *self.0.state(frame) = false;
            self.0.get(frame).0
        };
        found.into_inner().into_iter().map(clean).collect()
    }

    /// All changed pages, in order of place.
    pub fn dirty(&self) -> Vec<u64> {
        self.0.pages(|dirty| *dirty)
    }

    /// Makes a page clean; whether it was there and changed.
    pub fn clean(&mut self, page: u64) -> bool {
        self.0.find(page).is_some_and(|frame| std::mem::replace(self.0.state(frame), false))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HIT: Needs = Needs { write: None, read: false };
    const MISS: Needs = Needs { write: None, read: true };

    #[test]
    fn who_was_not_used_for_longest_leaves_and_is_written_if_changed() {
        let mut pool = Pool::new(3);
        assert_eq!(pool.access(1, How::Read), MISS);
        assert_eq!(pool.access(2, How::Change), MISS);
        assert_eq!(pool.access(3, How::Make), HIT);
        assert!(pool.is_full());
        assert_eq!(pool.access(1, How::Read), HIT);
        assert_eq!(pool.access(4, How::Read), Needs { write: Some(2), read: true });
        assert_eq!(pool.access(5, How::Make), Needs { write: Some(3), read: false });
        assert_eq!(pool.access(1, How::Change), HIT);
        assert_eq!(pool.access(2, How::Read), MISS, "4 was clean");
        assert_eq!(pool.dirty(), [1, 5]);
    }

    #[test]
    fn cleaned_pages_leave_without_a_write() {
        let mut pool = Pool::new(4);
        assert!((1..=4).all(|page| pool.access(page, How::Change) == MISS));
        assert_eq!(pool.clean_coldest(1, 9), [1]);
        assert_eq!(pool.clean_coldest(9, 1), [2]);
        assert!(pool.clean(3) && !pool.clean(3) && !pool.clean(7));
        assert_eq!(pool.dirty(), [4]);
        assert_eq!(pool.access(5, How::Read), MISS);
        assert_eq!(pool.clean_coldest(9, 9), [4]);
        assert_eq!(pool.clean_coldest(9, 9), [0; 0]);
    }
}
