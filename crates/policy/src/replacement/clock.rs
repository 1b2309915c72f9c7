// SPDX-License-Identifier: MIT OR Apache-2.0
//! CLOCK, second chance: FIFO, but who was used since it was last looked at goes to the back
//! once more. One bit a slot, beside the queue.

use super::Replacement;
use super::list::Marked;

/// The policy, see the module.
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
        may_leave: &dyn Fn(u32) -> bool,
    ) -> Option<u32> {
        // Twice around: the first may only take marks away.
        for _ in 0..2 * self.0.queue.len() {
            let slot = self.0.queue.oldest()?;
            if self.0.leaves(slot, may_leave) {
                return Some(slot);
            }
            let Marked { links, queue, .. } = &mut self.0;
            queue.remove(links, slot);
            queue.push(links, slot);
        }
        None
    }
}
