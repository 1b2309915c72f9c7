// SPDX-License-Identifier: MIT OR Apache-2.0
//! CLOCK (second chance): FIFO, except that a slot that was used since it was last examined becomes the newest again
//! instead of being evicted. Each slot has a mark beside the queue.

use super::Replacement;
use super::list::Marked;

/// State of CLOCK.
#[derive(Debug)]
pub struct Clock(Marked);

impl Clock {
    /// A clock over `slots` slots.
    #[must_use]
    pub fn new(slots: u32) -> Self {
        Self(Marked::new(slots))
    }
}

impl Replacement for Clock {
    fn inserted(&mut self, slot: u32, _unit: u64) {
        self.0.insert(slot);
    }

    fn accessed(&mut self, slot: u32) {
        self.0.mark(slot);
    }

    fn removed(&mut self, slot: u32) {
        self.0.remove(slot);
    }

    fn victim(
        &mut self,
        _incoming: u64,
        _set: u32,
        may_evict: &dyn Fn(u32) -> bool,
    ) -> Option<u32> {
        // Two passes over the queue: the first may do no more than clear marks.
        for _ in 0..2 * self.0.queue.len() {
            let slot = self.0.queue.oldest()?;
            if self.0.evicts(slot, may_evict) {
                return Some(slot);
            }
            let Marked { links, queue, .. } = &mut self.0;
            queue.remove(links, slot);
            queue.push(links, slot);
        }
        None
    }
}
