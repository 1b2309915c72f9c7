// SPDX-License-Identifier: MIT OR Apache-2.0
//! What flash has and how much of it is read (`cache/heat.rs`), and which slots a command filled (`by_command.rs`).

use std::cell::RefCell;

/// Bytes that flash has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Warmth {
    /// First byte, in the space of all volumes.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
    /// How much they are read: reads of a slot in a fixed number of reads, or a reference factor; 0 without such a measure.
    pub reads: u32,
}

/// The slots that were filled for the current list of ranges, a bit each; allocated with the first.
#[derive(Default)]
pub(super) struct Warmed(RefCell<Vec<u64>>);

impl Warmed {
    pub fn has(&self, slot: u32) -> bool {
        let words = self.0.borrow();
        words.get(slot as usize / 64).is_some_and(|word| word >> (slot % 64) & 1 == 1)
    }

    /// Marks one of so many slots.
    pub fn set(&self, slot: u32, slots: u32) {
        let mut words = self.0.borrow_mut();
        words.resize(slots.div_ceil(64) as usize, 0);
        if let Some(word) = words.get_mut(slot as usize / 64) {
            *word |= 1 << (slot % 64);
        }
    }

    pub fn clear(&self) {
        self.0.borrow_mut().clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_marked_until_the_next_list() {
        let warmed = Warmed::default();
        assert!(!warmed.has(70));
        warmed.set(70, 100);
        assert!(warmed.has(70) && !warmed.has(6) && !warmed.has(71) && !warmed.has(1000));
        warmed.clear();
        assert!(!warmed.has(70));
    }
}
