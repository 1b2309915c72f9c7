// SPDX-License-Identifier: MIT OR Apache-2.0
//! The database's buffer pool: what of its accesses reaches the device.
//!
//! LRU, as [`Lru`] of the engine. A page that was changed is written when it has to leave, or
//! before that by a cleaner that looks at those who leave next, or by a checkpoint.

use std::cell::RefCell;

use hashbrown::HashMap;
use larder_core::policy::replacement::{Lru, Replacement};

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

#[derive(Clone, Copy, Debug)]
struct Frame {
    page: u64,
    dirty: bool,
}

/// The pool, see the module.
pub struct Pool {
    lru: Lru,
    frames: Vec<Frame>,
    frame_of: HashMap<u64, u32>,
    most: u32,
}

impl Pool {
    /// An empty pool of so many pages, at least one.
    pub fn new(pages: u32) -> Self {
        let most = pages.max(1);
        Self { lru: Lru::new(most, most), frames: Vec::new(), frame_of: HashMap::new(), most }
    }

    /// Whether a page has to leave for the next one that enters.
    pub fn is_full(&self) -> bool {
        self.frames.len() == self.most as usize
    }

    /// An access.
    pub fn access(&mut self, page: u64, how: How) -> Needs {
        let changes = how != How::Read;
        if let Some(frame) = self.frame_of.get(&page).copied() {
            self.lru.accessed(frame);
            self.frames[frame as usize].dirty |= changes;
            return Needs::default();
        }
        let (frame, write) = self.room();
        let now = Frame { page, dirty: changes };
        match self.frames.get_mut(frame as usize) {
            Some(there) => *there = now,
            None => self.frames.push(now),
        }
        self.frame_of.insert(page, frame);
        self.lru.inserted(frame, page);
        Needs { write, read: how != How::Make }
    }

    /// A frame for a new page, and the page that must be written for it.
    fn room(&mut self) -> (u32, Option<u64>) {
        let next = self.frames.len() as u32;
        if next < self.most {
            return (next, None);
        }
        let frame = self.lru.victim(0, 0, &|_| true).unwrap_or(0);
        self.lru.removed(frame);
        let Frame { page, dirty } = self.frames[frame as usize];
        self.frame_of.remove(&page);
        (frame, dirty.then_some(page))
    }

    /// Changed pages among the `look` that leave next, at most `most`; from now on they are clean.
    pub fn clean_coldest(&mut self, look: usize, most: usize) -> Vec<u64> {
        let (seen, found) = (RefCell::new(0), RefCell::new(Vec::new()));
        let enough = |frame: u32| {
            let (mut seen, mut found) = (seen.borrow_mut(), found.borrow_mut());
            if *seen == look || found.len() == most {
                return true;
            }
            *seen += 1;
            if self.frames[frame as usize].dirty {
                found.push(frame);
            }
            false
        };
        self.lru.victim(0, 0, &enough);
        let clean = |frame: u32| {
            let frame = &mut self.frames[frame as usize];
            frame.dirty = false;
            frame.page
        };
        found.into_inner().into_iter().map(clean).collect()
    }

    /// All changed pages, in order of place.
    pub fn dirty(&self) -> Vec<u64> {
        let mut dirty: Vec<u64> = self.frames.iter().filter(|f| f.dirty).map(|f| f.page).collect();
        dirty.sort_unstable();
        dirty
    }

    /// Makes a page clean; whether it was there and changed.
    pub fn clean(&mut self, page: u64) -> bool {
        let frame = self.frame_of.get(&page).copied();
        let frame = frame.and_then(|frame| self.frames.get_mut(frame as usize));
        frame.is_some_and(|frame| std::mem::replace(&mut frame.dirty, false))
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
