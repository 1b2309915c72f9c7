// SPDX-License-Identifier: MIT OR Apache-2.0
//! The directory of a mixed slot on flash: which page of the volume is in each place.
//!
//! It lies in the last pages of its slot, which are no places. It is written once, when the slot receives no more pages,
//! and is durable before a state record of the slot is. Which places are valid is in the journal, as it is for the pages of
//! a unit.
//!
//! Little-endian: magic, CRC-32C of the directory with this field zero (u32), places (u32), the volume (u64), the slot (u32),
//! zero (u32); then for each place the shard's own number of the unit, and the page (u32 each).
//!
//! Why not in the metadata region: an entry there is 36 bytes for a unit of 1 MiB, and a directory 2 KiB. Every checkpoint
//! would write it again.

use crate::buf::PAGE;
use crate::bytes::{u32_at, u64_at};
use crate::checksum::crc32c;
use crate::pages::Pages;

const MAGIC: [u8; 8] = *b"LARDRMIX";
const HEADER: usize = 32;
const PLACE: usize = 8;

/// The unit of a page that has left its place.
pub(super) const LEFT: u32 = u32::MAX;

/// A page in a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Single {
    /// The shard's own number of the unit.
    pub unit: u32,
    /// The page of the unit.
    pub page: u32,
}

impl Single {
    /// The content of a place whose page has left it.
    pub(super) const NONE: Self = Self { unit: LEFT, page: 0 };

    /// Whether the place has a page.
    pub(crate) fn is_there(self) -> bool {
        self.unit != LEFT
    }
}

/// Places of a mixed slot of so many pages; the pages behind them hold the directory.
pub(crate) fn places_of(slot_pages: u32) -> u32 {
    let fits = |pages: &u32| {
        let places = slot_pages.saturating_sub(*pages) as usize;
        HEADER + places * PLACE <= *pages as usize * PAGE
    };
    slot_pages - (1..slot_pages).find(fits).unwrap_or(slot_pages)
}

/// The pages of the directory within a slot.
pub(crate) fn pages_within(slot_pages: u32) -> Pages {
    places_of(slot_pages)..slot_pages
}

/// The bytes of a directory.
pub(crate) fn encode(singles: &[Single], volume: u64, slot: u32, slot_pages: u32) -> Vec<u8> {
    let mut bytes = vec![0; pages_within(slot_pages).len() * PAGE];
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[12..16].copy_from_slice(&(singles.len() as u32).to_le_bytes());
    bytes[16..24].copy_from_slice(&volume.to_le_bytes());
    bytes[24..28].copy_from_slice(&slot.to_le_bytes());
    for (place, single) in bytes[HEADER..].chunks_exact_mut(PLACE).zip(singles) {
        place[..4].copy_from_slice(&single.unit.to_le_bytes());
        place[4..].copy_from_slice(&single.page.to_le_bytes());
    }
    let crc = crc32c(&bytes);
    bytes[8..12].copy_from_slice(&crc.to_le_bytes());
    bytes
}

/// The places of a slot; `None` if these bytes are not the directory of this slot of this volume.
pub(crate) fn decode(bytes: &[u8], volume: u64, slot: u32, slot_pages: u32) -> Option<Vec<Single>> {
    let mut zeroed = bytes.to_vec();
    zeroed.get_mut(8..12)?.fill(0);
    let places = places_of(slot_pages);
    let own = bytes.get(..8)? == MAGIC
        && u32_at(bytes, 8)? == crc32c(&zeroed)
        && u32_at(bytes, 12)? == places
        && u64_at(bytes, 16)? == volume
        && u32_at(bytes, 24)? == slot;
    let single = |place: u32| {
        let at = HEADER + place as usize * PLACE;
        Some(Single { unit: u32_at(bytes, at)?, page: u32_at(bytes, at + 4)? })
    };
    own.then(|| (0..places).map(single).collect()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_fits_behind_its_places() {
        assert_eq!([1, 2, 16, 256, 1024].map(places_of), [0, 1, 15, 255, 1021]);
    }

    #[test]
    fn only_the_intact_directory_of_the_slot_is_read() {
        let mut singles = vec![Single { unit: 7, page: 3 }; 14];
        singles.push(Single::NONE);
        let bytes = encode(&singles, 5, 2, 16);
        assert_eq!(bytes.len(), PAGE);
        assert_eq!(decode(&bytes, 5, 2, 16), Some(singles));
        assert!(decode(&bytes, 6, 2, 16).is_none() && decode(&bytes, 5, 1, 16).is_none());
        let mut damaged = bytes.clone();
        damaged[HEADER + 1] ^= 1;
        assert!(decode(&damaged, 5, 2, 16).is_none());
        assert!(decode(&bytes[..16], 5, 2, 16).is_none() && decode(&[], 5, 2, 16).is_none());
    }
}
