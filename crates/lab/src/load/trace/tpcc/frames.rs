// SPDX-License-Identifier: MIT OR Apache-2.0
//! The frames of a buffer pool under LRU: which page is in which, and which is evicted next.
//!
//! This is the one pool of TPC-C. The trace generator (`pool.rs`) has a flag for each frame and answers at once; the database over
//! flash ([`crate::database`]) has tasks that wait for a frame, and more flags. What they have in common is here, so that the
//! stream below the pool is the same in both.
//!
//! Invariants: a page is in one frame at most; a frame is free, or entered, and once it is ready in the order of LRU;
//! a frame that is not ready is not evicted.

use larder_core::policy::replacement::{Lru, Replacement};

use super::page_map::PageMap;

struct Frame<T> {
    page: u64,
    state: T,
}

/// The frames, each with a state, see the module.
pub(crate) struct Frames<T> {
    lru: Lru,
    frames: Vec<Frame<T>>,
    of: PageMap,
    free: Vec<u32>,
    most: u32,
}

impl<T: Default> Frames<T> {
    /// So many empty ones, at least one.
    pub(crate) fn new(count: u32) -> Self {
        let most = count.max(1);
        let (frames, free) = (Vec::new(), Vec::new());
        Self { lru: Lru::new(most, most), frames, of: PageMap::default(), free, most }
    }

    /// Whether a page must be evicted for the next one.
    pub(crate) fn is_full(&self) -> bool {
        self.free.is_empty() && self.frames.len() == self.most as usize
    }

    /// The frame of a page.
    pub(crate) fn find(&self, page: u64) -> Option<u32> {
        self.of.get(page)
    }

    /// The page of a frame that was entered, and its state.
    pub(crate) fn get(&self, at: u32) -> (u64, &T) {
        let frame = &self.frames[at as usize];
        (frame.page, &frame.state)
    }

    /// The state of a frame.
    pub(crate) fn state(&mut self, at: u32) -> &mut T {
        &mut self.frames[at as usize].state
    }

    /// A free frame, which is the caller's.
    pub(crate) fn take(&mut self) -> Option<u32> {
        if let Some(at) = self.free.pop() {
            return Some(at);
        }
        let next = self.frames.len() as u32;
        (next < self.most).then(|| {
            self.frames.push(Frame { page: 0, state: T::default() });
            next
        })
    }

    /// A frame that was taken is free again.
    pub(crate) fn give(&mut self, at: u32) {
        self.free.push(at);
    }

    /// A page has a frame that was taken.
    pub(crate) fn enter(&mut self, at: u32, page: u64, state: T) {
        self.of.insert(page, at);
        self.frames[at as usize] = Frame { page, state };
    }

    /// The page of a frame may be used, and evicted.
    pub(crate) fn ready(&mut self, at: u32) {
        let page = self.frames[at as usize].page;
        self.lru.inserted(at, page);
    }

    /// A page is used.
    pub(crate) fn used(&mut self, at: u32) {
        self.lru.accessed(at);
    }

    /// The first frame in the order of eviction that suits.
    pub(crate) fn coldest(&mut self, suits: impl Fn(u32, &T) -> bool) -> Option<u32> {
        let frames = &self.frames;
        self.lru.victim(0, 0, &|at| suits(at, &frames[at as usize].state))
    }

    /// Evicts the page of a frame, which is free then.
    pub(crate) fn evict(&mut self, at: u32) -> (u64, T) {
        let frame = &mut self.frames[at as usize];
        self.of.remove(frame.page);
        self.lru.removed(at);
        self.free.push(at);
        (frame.page, std::mem::take(&mut frame.state))
    }

    /// Pages whose state suits, in order of place.
    pub(crate) fn pages(&self, suits: impl Fn(&T) -> bool) -> Vec<u64> {
        let pages = self.frames.iter().filter(|frame| suits(&frame.state)).map(|f| f.page);
        let mut pages: Vec<u64> = pages.collect();
        pages.sort_unstable();
        pages
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_used_longest_ago_is_evicted_unless_it_is_not_ready_or_does_not_suit() {
        let mut frames = Frames::<bool>::new(3);
        for page in [10, 20, 30] {
            let at = frames.take().unwrap();
            frames.enter(at, page, page == 20);
            if page != 10 {
                frames.ready(at);
            }
        }
        assert!(frames.is_full() && frames.take().is_none());
        let coldest = frames.coldest(|_, _| true).unwrap();
        assert_eq!(frames.get(coldest), (20, &true), "10 is not ready");
        let other = frames.coldest(|_, state| !state).unwrap();
        assert_eq!(frames.get(other).0, 30);
        frames.used(coldest);
        assert_eq!(frames.coldest(|_, _| true), Some(other));
        assert_eq!(frames.evict(other), (30, false));
        assert_eq!((frames.find(30), frames.take()), (None, Some(other)));
        frames.give(other);
        assert!(!frames.is_full());
        assert_eq!(frames.pages(|state| *state), [20]);
    }
}
