// SPDX-License-Identifier: MIT OR Apache-2.0
//! A 32-bit cell for every unit that was ever asked for, whatever the units' numbers.
//!
//! Sixteen neighbours share an entry of a hash table, and their cells one line of the processor's
//! cache: block traces are dense in places, and then the table is a sixteenth as large. At worst,
//! with one unit of each sixteen, a unit takes some 90 bytes.

use hashbrown::HashMap;

const GROUP: u64 = 16;

/// The cells, see the module.
#[derive(Default)]
pub struct Units {
    /// The number of each group, in the order of their first access.
    groups: HashMap<u64, u32>,
    /// A group's cells one after the other; [`Units::NEW`] until they are written.
    pub(super) cells: Vec<u32>,
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

    /// Marks a unit as seen; whether it was new.
    pub fn first(&mut self, unit: u64) -> bool {
        let cell = self.cell(unit);
        std::mem::replace(&mut self.cells[cell], 0) == Self::NEW
    }
}
