// SPDX-License-Identifier: MIT OR Apache-2.0
//! A number for each of some pages.
//!
//! Pages of a database are numbered without gaps, so this is a table by number: a look-up is one access to
//! memory, which is what most of a run's time goes to.
//!
//! Invariant: no number is [`u32::MAX`], which stands for none.

const NONE: u32 = u32::MAX;

/// The table, see the module.
#[derive(Default)]
pub(crate) struct PageMap(Vec<u32>);

impl PageMap {
    pub(crate) fn get(&self, page: u64) -> Option<u32> {
        self.0.get(page as usize).copied().filter(|number| *number != NONE)
    }

    pub(crate) fn has(&self, page: u64) -> bool {
        self.get(page).is_some()
    }

    pub(crate) fn insert(&mut self, page: u64, number: u32) {
        debug_assert_ne!(number, NONE);
        let at = page as usize;
        if self.0.len() <= at {
            self.0.resize(at + 1, NONE);
        }
        self.0[at] = number;
    }

    pub(crate) fn remove(&mut self, page: u64) {
        if let Some(number) = self.0.get_mut(page as usize) {
            *number = NONE;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_have_the_number_that_was_given_last_or_none() {
        let mut map = PageMap::default();
        map.insert(5, 1);
        map.insert(2, 7);
        map.insert(5, 3);
        map.insert(9, 0);
        map.remove(9);
        map.remove(100);
        assert_eq!([2, 5, 9, 100].map(|page| map.get(page)), [Some(7), Some(3), None, None]);
        assert!(map.has(2) && !map.has(0));
    }
}
