// SPDX-License-Identifier: MIT OR Apache-2.0
//! Heat of the fragments that missed most recently (SCE, sections 3.1 and 3.6).
//!
//! A bounded list, most recent first. A miss moves its fragment to the start of the list and adds one to its heat; a
//! fragment that drops off the end loses its heat. Heat is thus the number of misses while on the list, and it needs no
//! other decay; the paper leaves this open. Of equally hot fragments the more recent one wins.
//!
//! Why a plain vector: a hundred entries are scanned once per miss, and a miss reads slow storage anyway.

use alloc::vec::Vec;

/// The default length of the list (SCE, section 3.1).
pub const DEFAULT_LENGTH: usize = 100;

/// The list.
#[derive(Debug)]
pub struct HeatList {
    length: usize,
    /// (fragment, heat), least recent first.
    entries: Vec<(u64, u32)>,
}

impl HeatList {
    /// An empty list of at most `length` fragments (at least one).
    #[must_use]
    pub fn new(length: usize) -> Self {
        Self { length: length.max(1), entries: Vec::with_capacity(length.clamp(1, 4096)) }
    }

    /// A read of this fragment missed.
    pub fn missed(&mut self, fragment: u64) {
        let heat = match self.entries.iter().rposition(|(f, _)| *f == fragment) {
            Some(at) => self.entries.remove(at).1,
            None => 0,
        };
        if self.entries.len() == self.length {
            self.entries.remove(0);
        }
        self.entries.push((fragment, heat.saturating_add(1)));
    }

    /// Removes and returns the hottest fragment and its heat, if the heat is at least `least`.
    pub fn take_hottest(&mut self, least: u32) -> Option<(u64, u32)> {
        // `max_by_key` returns the last of equal entries, which is the most recent.
        let (at, hottest) = self.entries.iter().enumerate().max_by_key(|(_, (_, heat))| *heat)?;
        if hottest.1 < least {
            return None;
        }
        Some(self.entries.remove(at))
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.entries.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hottest_first_and_ties_to_the_most_recent() {
        let mut list = HeatList::new(DEFAULT_LENGTH);
        for f in [1, 2, 3, 2, 1, 4] {
            list.missed(f);
        }
        assert_eq!(list.take_hottest(3), None);
        assert_eq!(list.take_hottest(1), Some((1, 2)));
        assert_eq!(list.take_hottest(1), Some((2, 2)));
        assert_eq!(list.take_hottest(1), Some((4, 1)));
        assert_eq!(list.take_hottest(1), Some((3, 1)));
        assert_eq!(list.take_hottest(1), None);
    }

    #[test]
    fn a_fragment_that_drops_off_the_end_loses_its_heat() {
        let mut list = HeatList::new(3);
        for f in [9, 9, 9, 1, 2, 3, 9] {
            list.missed(f);
        }
        assert_eq!(list.take_hottest(1), Some((9, 1)));
    }
}
