// SPDX-License-Identifier: MIT OR Apache-2.0
//! Queues of slots: doubly linked lists that share one array, 8 bytes a slot.
//!
//! Invariant: a slot is in at most one queue of a set of links at a time.

use alloc::vec;
use alloc::vec::Vec;

/// No slot.
pub(super) const NONE: u32 = u32::MAX;

/// The links of all slots. Both links of a slot are adjacent because they are read together.
#[derive(Debug)]
pub(super) struct Links(Vec<Pair>);

#[derive(Clone, Copy, Debug)]
struct Pair {
    older: u32,
    newer: u32,
}

/// One queue over the links; the newest slot was pushed last.
#[derive(Debug)]
pub(super) struct Queue {
    oldest: u32,
    newest: u32,
    len: u32,
}

impl Default for Queue {
    fn default() -> Self {
        Self { oldest: NONE, newest: NONE, len: 0 }
    }
}

impl Links {
    pub(super) fn new(slots: u32) -> Self {
        Self(vec![Pair { older: NONE, newer: NONE }; slots as usize])
    }

    /// The slot that was pushed to the same queue just after this one.
    pub(super) fn newer(&self, slot: u32) -> Option<u32> {
        Some(self.0[slot as usize].newer).filter(|s| *s != NONE)
    }
}

impl Queue {
    pub(super) fn len(&self) -> u32 {
        self.len
    }

    pub(super) fn oldest(&self) -> Option<u32> {
        Some(self.oldest).filter(|s| *s != NONE)
    }

    /// The slots, oldest first.
    pub(super) fn iter<'a>(&self, links: &'a Links) -> impl Iterator<Item = u32> + 'a {
        core::iter::successors(self.oldest(), |slot| links.newer(*slot))
    }

    pub(super) fn push(&mut self, links: &mut Links, slot: u32) {
        links.0[slot as usize] = Pair { older: self.newest, newer: NONE };
        match self.newest {
            NONE => self.oldest = slot,
            newest => links.0[newest as usize].newer = slot,
        }
        self.newest = slot;
        self.len += 1;
    }

    /// Makes a slot of this queue its newest.
    pub(super) fn renew(&mut self, links: &mut Links, slot: u32) {
        if self.newest != slot {
            self.remove(links, slot);
            self.push(links, slot);
        }
    }

    pub(super) fn remove(&mut self, links: &mut Links, slot: u32) {
        let Pair { older, newer } = links.0[slot as usize];
        match older {
            NONE => self.oldest = newer,
            older => links.0[older as usize].newer = newer,
        }
        match newer {
            NONE => self.newest = older,
            newer => links.0[newer as usize].older = older,
        }
        self.len -= 1;
    }
}

impl Queue {
    /// Puts `new`, which is in no queue, in the place of `old`.
    pub(super) fn replace(&mut self, links: &mut Links, old: u32, new: u32) {
        let Pair { older, newer } = links.0[old as usize];
        links.0[new as usize] = Pair { older, newer };
        match older {
            NONE => self.oldest = new,
            older => links.0[older as usize].newer = new,
        }
        match newer {
            NONE => self.newest = new,
            newer => links.0[newer as usize].older = new,
        }
    }
}

/// A queue of slots, each with a mark that it was used; CLOCK and SIEVE share it.
#[derive(Debug)]
pub(super) struct Marked {
    pub(super) links: Links,
    pub(super) queue: Queue,
    used: Vec<bool>,
}

impl Marked {
    pub(super) fn new(slots: u32) -> Self {
        let used = vec![false; slots as usize];
        Self { links: Links::new(slots), queue: Queue::default(), used }
    }

    /// Pushes the slot as the newest, unmarked.
    pub(super) fn insert(&mut self, slot: u32) {
        self.used[slot as usize] = false;
        self.queue.push(&mut self.links, slot);
    }

    pub(super) fn mark(&mut self, slot: u32) {
        self.used[slot as usize] = true;
    }

    pub(super) fn remove(&mut self, slot: u32) {
        self.queue.remove(&mut self.links, slot);
    }

    /// Whether this slot is the victim: evictable and unmarked. Clears the mark of an evictable slot.
    pub(super) fn evicts(&mut self, slot: u32, may_evict: &dyn Fn(u32) -> bool) -> bool {
        let may = may_evict(slot);
        let used = &mut self.used[slot as usize];
        let evicts = may && !*used;
        *used &= !may;
        evicts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_keep_the_order_of_insertion() {
        let (mut links, mut queue) = (Links::new(5), Queue::default());
        (0..5).for_each(|s| queue.push(&mut links, s));
        queue.remove(&mut links, 2);
        queue.remove(&mut links, 0);
        queue.push(&mut links, 0);
        assert_eq!(queue.iter(&links).collect::<Vec<_>>(), [1, 3, 4, 0]);
        queue.renew(&mut links, 0);
        assert_eq!((queue.newest, queue.len()), (0, 4));
        queue.replace(&mut links, 3, 2);
        queue.replace(&mut links, 0, 3);
        assert_eq!(queue.iter(&links).collect::<Vec<_>>(), [1, 2, 4, 3]);
        for slot in [2, 1, 4, 3] {
            queue.remove(&mut links, slot);
        }
        assert_eq!((queue.len(), queue.oldest()), (0, None));
    }
}
