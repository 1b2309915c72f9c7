// SPDX-License-Identifier: MIT OR Apache-2.0
//! SIEVE (Zhang et al., NSDI 2024): FIFO with a hand that moves from the oldest slot to the newest and skips slots that
//! were used, without moving them. New units are examined soon, and used ones stay.

use super::Replacement;
use super::list::{Marked, NONE};

/// State of SIEVE.
#[derive(Debug)]
pub struct Sieve {
    marked: Marked,
    hand: u32,
}

impl Sieve {
    /// A sieve over `slots` slots.
    #[must_use]
    pub fn new(slots: u32) -> Self {
        Self { marked: Marked::new(slots), hand: NONE }
    }

    fn after(&self, slot: u32) -> u32 {
        self.marked.links.newer(slot).unwrap_or(NONE)
    }
}

impl Replacement for Sieve {
    fn inserted(&mut self, slot: u32, _unit: u64) {
        self.marked.insert(slot);
    }

    fn accessed(&mut self, slot: u32) {
        self.marked.mark(slot);
    }

    fn removed(&mut self, slot: u32) {
        if self.hand == slot {
            self.hand = self.after(slot);
        }
        self.marked.remove(slot);
    }

    fn victim(
        &mut self,
        _incoming: u64,
        _set: u32,
        may_evict: &dyn Fn(u32) -> bool,
    ) -> Option<u32> {
        for _ in 0..2 * self.marked.queue.len() {
            let slot = if self.hand == NONE { self.marked.queue.oldest()? } else { self.hand };
            if self.marked.evicts(slot, may_evict) {
                self.hand = slot;
                return Some(slot);
            }
            self.hand = self.after(slot);
        }
        None
    }
}
