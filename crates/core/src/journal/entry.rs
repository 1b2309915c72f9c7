// SPDX-License-Identifier: MIT OR Apache-2.0
//! A slot's entry in a payload: the unit plus one (u32, 0 for none), and a bitmap that depends on the kind of cache.

use crate::bytes::{u32_at, u64_at};
use crate::cache::units::directory::Single;
use crate::cache::units::singles::Logged;
use crate::cache::units::warm::{Content, Held};
use crate::mutant;
use crate::pages::Regions;

/// The bitmap of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// Valid pages, a bit each: of a clean cache.
    Valid,
    /// Dirty regions, a bit each (u64): of a write-back cache, whose units are cached wholly.
    Dirty,
}

/// Bytes of the unit.
const UNIT: usize = 4;

/// The unit number of a mixed slot. Its bitmap has a bit per place, and its directory lists the pages.
pub const SINGLES: u32 = u32::MAX - 1;

/// The unit number in the entry and the state record of a slot.
pub(super) fn number(logged: Logged) -> u32 {
    match logged {
        Logged::Unit(unit) => unit,
        Logged::Singles => SINGLES,
    }
}

impl Entry {
    /// Bytes of an entry, for units of `pages` pages.
    #[must_use]
    pub fn bytes(self, pages: u32) -> usize {
        match self {
            Self::Valid => UNIT + pages.div_ceil(8) as usize,
            Self::Dirty => UNIT + size_of::<u64>(),
        }
    }

    /// Bytes of the bitmap in a state record.
    #[must_use]
    pub fn state_bytes(self, pages: u32) -> usize {
        match self {
            Self::Valid => self.bytes(pages) - UNIT,
            Self::Dirty => 0,
        }
    }

    /// The state of the slot, if it is in use; `directory`: the pages of a mixed slot.
    pub(super) fn held<'a>(
        self,
        slot: u32,
        entry: &'a [u8],
        directory: &'a [Single],
    ) -> Option<Held<'a>> {
        let unit = u32_at(entry, 0)?.checked_sub(1)?;
        Some(match self {
            Self::Valid => {
                let content = match unit {
                    SINGLES => Content::Singles(directory),
                    unit => Content::Unit(unit),
                };
                Held { slot, content, valid: Some(entry.get(UNIT..)?), dirty: 0 }
            }
            Self::Dirty => {
                let content = Content::Unit(unit);
                Held { slot, content, valid: None, dirty: u64_at(entry, UNIT)? }
            }
        })
    }

    /// Whether the entry is that of a mixed slot.
    pub(super) fn is_mixed(self, entry: &[u8]) -> bool {
        self == Self::Valid && u32_at(entry, 0) == Some(SINGLES + 1)
    }

    /// Sets the unit and its valid pages; nothing is dirty.
    pub(super) fn set(self, entry: &mut [u8], unit: u32, valid: &[u8]) {
        entry[..UNIT].copy_from_slice(&(unit + 1).to_le_bytes());
        match self {
            Self::Valid => entry[UNIT..].copy_from_slice(valid),
            Self::Dirty => entry[UNIT..].fill(0),
        }
    }

    /// Makes the regions of a touched record invalid or, under write-back, dirty.
    pub(super) fn touch(self, entry: &mut [u8], mask: u64, pages: u32) {
        match self {
            Self::Valid if mutant::is_active("touched-survives") => {}
            Self::Valid => clear_regions(&mut entry[UNIT..], mask, Regions::of(pages), pages),
            Self::Dirty => {
                let dirty = entry[UNIT..].iter_mut().zip(mask.to_le_bytes());
                dirty.for_each(|(old, new)| *old |= new);
            }
        }
    }

    /// Whether dropping all entries loses no data.
    pub(super) fn is_expendable(self) -> bool {
        self == Self::Valid
    }

    /// Its code in a header.
    pub(super) fn code(self) -> u8 {
        match self {
            Self::Valid => 0,
            Self::Dirty => 1,
        }
    }
}

/// Clears the bits of the pages of these regions.
pub(super) fn clear_regions(bits: &mut [u8], mask: u64, regions: Regions, pages: u32) {
    let (per, mut left) = (regions.pages_each, mask);
    while left != 0 {
        let first = left.trailing_zeros() * per;
        left &= left - 1;
        for page in first..(first + per).min(pages) {
            bits[page as usize / 8] &= !(1 << (page % 8));
        }
    }
}
