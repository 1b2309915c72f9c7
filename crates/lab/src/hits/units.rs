// SPDX-License-Identifier: MIT OR Apache-2.0
//! A 32-bit cell for every unit that was ever asked for, whatever the units' numbers.
//!
//! Sixteen neighbours share an entry of a hash table, and their cells one line of the processor's
//! cache: block traces are dense in places, and then the table is a sixteenth as large. At worst,
//! with one unit of each sixteen, a unit takes some 90 bytes: so above 256 MiB the cells of units
//! that are not resident are dropped, and only whether they were asked for is kept, in some bits each.

use hashbrown::HashMap;
use roaring::RoaringTreemap;

const GROUP: u64 = 16;
/// The size at which cells are dropped, or twice what the resident ones take if that is more.
const MOST_BYTES: usize = 256 << 20;

/// The cells, see the module.
pub struct Units {
    /// The number of each group, in the order of their first access.
    groups: HashMap<u64, u32>,
    /// A group's cells one after the other; [`Units::NEW`] until they are written.
    pub(super) cells: Vec<u32>,
    /// Units that were asked for before cells were last dropped.
    before: RoaringTreemap,
    most_bytes: usize,
}

impl Default for Units {
    fn default() -> Self {
        let before = RoaringTreemap::new();
        Self { groups: HashMap::new(), cells: Vec::new(), before, most_bytes: MOST_BYTES }
    }
}

impl Units {
    /// What stands in the cell of a unit that was not asked for before.
    pub(super) const NEW: u32 = u32::MAX;

    /// Where the unit's cell is.
    #[inline]
    pub(super) fn cell(&mut self, unit: u64) -> usize {
        let group = match self.groups.get(&(unit / GROUP)) {
            Some(group) => *group,
            None => self.new_group(unit / GROUP),
        };
        group as usize * GROUP as usize + (unit % GROUP) as usize
    }

    #[cold]
    fn new_group(&mut self, number: u64) -> u32 {
        let group = (self.cells.len() / GROUP as usize) as u32;
        self.groups.insert(number, group);
        self.cells.resize(self.cells.len() + GROUP as usize, Self::NEW);
        group
    }

    /// Whether the unit of this cell was never asked for.
    #[inline]
    pub(super) fn is_new(&self, unit: u64, cell: usize) -> bool {
        self.cells[cell] == Self::NEW && (self.before.is_empty() || !self.before.contains(unit))
    }

    /// Marks a unit as seen; whether it was new.
    pub fn first(&mut self, unit: u64) -> bool {
        if self.is_large() {
            self.shrink(0, |_, _| ());
        }
        let cell = self.cell(unit);
        let new = self.is_new(unit, cell);
        self.cells[cell] = 0;
        new
    }

    fn bytes(&self) -> usize {
        self.groups.capacity() * (size_of::<(u64, u32)>() + 1) + self.cells.capacity() * 4
    }

    /// Whether it is time to shrink.
    #[inline]
    pub(super) fn is_large(&self) -> bool {
        self.bytes() > self.most_bytes
    }

    /// Drops the cells that do not hold a number below `resident`. The others move: `moved` receives
    /// the number and the new place of its cell.
    #[cold]
    pub(super) fn shrink(&mut self, resident: u32, mut moved: impl FnMut(u32, usize)) {
        let (groups, cells) = (std::mem::take(&mut self.groups), std::mem::take(&mut self.cells));
        for (group, number) in groups {
            let first = number as usize * GROUP as usize;
            for (i, value) in (0..GROUP).zip(&cells[first..first + GROUP as usize]) {
                let unit = group * GROUP + i;
                if *value != Self::NEW {
                    self.before.insert(unit);
                }
                if *value < resident {
                    let cell = self.cell(unit);
                    self.cells[cell] = *value;
                    moved(*value, cell);
                }
            }
        }
        self.most_bytes = self.most_bytes.max(2 * self.bytes());
    }
}

#[cfg(test)]
impl Units {
    /// Cells that are dropped as soon as they take so many bytes.
    pub(super) fn of_most(most_bytes: usize) -> Self {
        Self { most_bytes, ..Self::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_was_forgotten_is_not_new() {
        let (mut small, mut large) = (Units::of_most(1), Units::default());
        for n in 0..5000u64 {
            let unit = n * n % 3001 * 17;
            assert_eq!(small.first(unit), large.first(unit), "{n}");
        }
        assert!(small.cells.len() < large.cells.len());
    }
}
