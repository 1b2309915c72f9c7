// SPDX-License-Identifier: MIT OR Apache-2.0
//! The place and the form of checksums on a flash device.
//!
//! The areas of all shards lie one after the other, before the slots. An area has one or two copies of its blocks; a block has
//! the checksums of [`EACH`] neighbouring pages of the shard's slots. It is 8 sectors, each of which proves itself, so that a
//! write of it that is torn leaves each sector as it was or as it became.
//!
//! A sector, little-endian: CRC-32C of the sector with this field zero (u32), version (u32), volume id plus the sector's first
//! byte on the device (u64, modulo 2 to the power of 64); then the checksums of 124 pages (u32 each). A checksum is the CRC-32C of
//! the page, XOR the low half of the page's number on the volume (its first byte / 4096), so that what another page has never matches,
//! whatever metadata lists for its slot; 1 stands for a checksum of 0, and 0 for a page without one.

use std::ops::Range;

use super::flash_plan::FlashPlan;
use crate::buf::{Buf, PAGE, SECTOR};
use crate::bytes::{u32_at, u64_at};
use crate::checksum::crc32c;
use crate::shape::Shape;

const HEADER: usize = 16;
/// Checksums of a sector.
pub const IN_SECTOR: usize = (SECTOR - HEADER) / 4;
/// Sectors of a block.
pub const SECTORS: usize = PAGE / SECTOR;
/// Checksums of a block.
pub const EACH: u64 = (SECTORS * IN_SECTOR) as u64;
/// A page without a checksum.
pub const NONE: u32 = 0;

/// The checksum of a page with this number on the volume.
#[must_use]
pub fn sum_of(page: &[u8], number: u64) -> u32 {
    sum_from(crc32c(page), number)
}

/// The same, from the CRC-32C of the page.
pub(crate) fn sum_from(crc: u32, number: u64) -> u32 {
    match crc ^ number as u32 {
        NONE => 1,
        sum => sum,
    }
}

/// The newest checksums of a block, from the copies that were read.
pub struct Newest {
    /// Of each page, or [`NONE`].
    pub sums: Box<[u32]>,
    /// The version of each sector that was found.
    pub versions: [Option<u32>; SECTORS],
}

impl Default for Newest {
    fn default() -> Self {
        Self { sums: vec![NONE; EACH as usize].into_boxed_slice(), versions: [None; SECTORS] }
    }
}

impl Newest {
    /// Takes from the copy at this place what is newer than what was found before, of versions that are accepted.
    pub fn take(
        &mut self,
        area: &SumsArea,
        (at, bytes): (u64, &[u8]),
        accepts: impl Fn(u32) -> bool,
    ) {
        for sector in 0..SECTORS {
            let Some((version, sums)) = area.decode(bytes, (at, sector)) else { continue };
            if accepts(version) && self.versions[sector].is_none_or(|found| found < version) {
                self.versions[sector] = Some(version);
                let own = self.sums[sector * IN_SECTOR..].iter_mut();
                own.zip(sums).for_each(|(own, sum)| *own = sum);
            }
        }
    }
}

/// Where the checksums of a shard lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SumsArea {
    /// Its first byte.
    pub at: u64,
    /// Blocks of a copy.
    pub blocks: u32,
    /// Copies of each block.
    pub copies: u32,
    volume: u64,
    shape: Shape,
    slots_at: u64,
}

impl SumsArea {
    /// The area of the shard of this shape, if the device has checksums.
    #[must_use]
    pub(crate) fn of(plan: &FlashPlan, shape: &Shape) -> Option<Self> {
        let sums = plan.sums?;
        let shape = &plan.formatted(shape);
        let copies = sums.copies;
        let (slots_at, volume) = (plan.base, sums.volume);
        let (blocks, each) = (blocks(shape, plan.room), bytes_each(shape, plan.room, copies));
        let at = sums.base + u64::from(shape.shard) * each;
        Some(Self { at, blocks: blocks as u32, copies, volume, shape: *shape, slots_at })
    }

    /// The shard's own numbers of the pages in a range of the device, which lies in one slot.
    #[must_use]
    pub fn pages(&self, offset: u64, len: u64) -> Range<u64> {
        let (unit, page) = (self.shape.unit_bytes, PAGE as u64);
        let within = offset - self.slots_at;
        let slot = within / unit / u64::from(self.shape.shards);
        let first = slot * (unit / page) + within % unit / page;
        first..first + (within % page + len).div_ceil(page)
    }

    /// The first page of a slot of the shard.
    #[must_use]
    pub fn first_of(&self, slot: u32) -> u64 {
        u64::from(slot) * (self.shape.unit_bytes / PAGE as u64)
    }

    /// The block of a page, and its place there.
    #[must_use]
    pub fn block_of(page: u64) -> (u32, usize) {
        ((page / EACH) as u32, (page % EACH) as usize)
    }

    /// The blocks of these pages, each with its pages.
    pub fn blocks_of(pages: Range<u64>) -> impl Iterator<Item = (u32, Range<u64>)> {
        (pages.start / EACH..pages.end.div_ceil(EACH)).map(move |block| {
            let own = block * EACH..(block + 1) * EACH;
            (block as u32, own.start.max(pages.start)..own.end.min(pages.end))
        })
    }

    /// The places of the copies of a block.
    pub fn places_of(&self, block: u32) -> impl Iterator<Item = u64> + use<> {
        let Self { at, blocks, copies, .. } = *self;
        (0..copies).map(move |copy| {
            at + (u64::from(copy) * u64::from(blocks) + u64::from(block)) * PAGE as u64
        })
    }

    /// Where a copy lies.
    #[must_use]
    pub fn copy(&self, copy: u32) -> Option<Range<u64>> {
        let bytes = u64::from(self.blocks) * PAGE as u64;
        let at = self.at + u64::from(copy) * bytes;
        (copy < self.copies).then_some(at..at + bytes)
    }

    /// The copy of a block at this place.
    #[must_use]
    pub fn encode(&self, sums: &[u32], at: u64, version: u32) -> Buf {
        let mut bytes = Buf::zeroed(PAGE);
        let places = (at..).step_by(SECTOR);
        let own = bytes.chunks_exact_mut(SECTOR).zip(sums.chunks(IN_SECTOR)).zip(places);
        for ((sector, sums), at) in own {
            sector[4..8].copy_from_slice(&version.to_le_bytes());
            sector[8..16].copy_from_slice(&self.volume.wrapping_add(at).to_le_bytes());
            for (to, sum) in sector[HEADER..].chunks_exact_mut(4).zip(sums) {
                to.copy_from_slice(&sum.to_le_bytes());
            }
            let crc = crc32c(sector);
            sector[..4].copy_from_slice(&crc.to_le_bytes());
        }
        bytes
    }

    /// The version of a sector of the copy at this place, and its checksums; `None` if these bytes are not that sector.
    pub fn decode<'a>(
        &self,
        bytes: &'a [u8],
        (at, sector): (u64, usize),
    ) -> Option<(u32, impl Iterator<Item = u32> + use<'a>)> {
        let bytes = bytes.get(sector * SECTOR..(sector + 1) * SECTOR)?;
        let mut zeroed = [0; SECTOR];
        zeroed[4..].copy_from_slice(&bytes[4..]);
        let identity = self.volume.wrapping_add(at + (sector * SECTOR) as u64);
        let own = u32_at(bytes, 0)? == crc32c(&zeroed) && u64_at(bytes, 8)? == identity;
        let sums = bytes[HEADER..].chunks_exact(4).map(|sum| u32_at(sum, 0).unwrap_or(NONE));
        own.then_some((u32_at(bytes, 4)?, sums))
    }
}

/// Copies of each block: two where no other device has the data.
pub(super) fn copies(may_be_dirty: bool) -> u32 {
    if may_be_dirty { 2 } else { 1 }
}

/// Blocks of the shard with the most slots, of `slots` on the device.
fn blocks(shape: &Shape, slots: u64) -> u64 {
    let own = slots.div_ceil(u64::from(shape.shards.max(1)));
    (own * (shape.unit_bytes / PAGE as u64)).div_ceil(EACH)
}

/// Bytes of a shard's area.
fn bytes_each(shape: &Shape, slots: u64, copies: u32) -> u64 {
    blocks(shape, slots) * PAGE as u64 * u64::from(copies)
}

/// Bytes of the areas of all shards.
pub(super) fn total_bytes(shape: &Shape, slots: u64, copies: u32) -> u64 {
    bytes_each(shape, slots, copies) * u64::from(shape.shards)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exec::DevId;
    use crate::format::SumsPlan;

    fn area(shard: u32) -> SumsArea {
        let sums = Some(SumsPlan { base: 8192, volume: 7, copies: 2 });
        let plan = FlashPlan {
            dev: DevId(0),
            base: 1 << 20,
            slots: 9,
            room: 9,
            block_bytes: 512,
            journal: None,
            sums,
        };
        let shape = Shape::new(1 << 30, 1 << 20, 2).of_shard(shard);
        SumsArea::of(&plan, &shape).expect("it has checksums")
    }

    #[test]
    fn every_block_has_a_place_of_its_own() {
        let (first, second) = (area(0), area(1));
        assert_eq!(u64::from(first.blocks), (5 * 256_u64).div_ceil(EACH));
        let places = |area: SumsArea| (0..area.blocks).flat_map(move |block| area.places_of(block));
        let mut all: Vec<u64> = places(first).chain(places(second)).collect();
        all.sort_unstable();
        let expected: Vec<u64> = (2..2 + all.len() as u64).map(|page| page * PAGE as u64).collect();
        assert_eq!((all.len(), all), (8, expected));
    }

    #[test]
    fn pages_of_a_shard_are_numbered_by_its_slots() {
        // Slot 3 of the device is slot 1 of shard 1.
        let at = (1 << 20) + (3 << 20) + 5 * PAGE as u64;
        assert_eq!(area(1).pages(at, 2 * PAGE as u64), 256 + 5..256 + 7);
        assert_eq!(area(1).first_of(1), 256);
    }

    #[test]
    fn only_intact_sectors_of_the_place_are_read() {
        let area = area(0);
        let sums: Vec<u32> = (0..EACH as u32).collect();
        let bytes = area.encode(&sums, 8192, 3);
        for (sector, sums) in sums.chunks(IN_SECTOR).enumerate() {
            let found = area.decode(&bytes, (8192, sector)).map(|(v, found)| (v, found.collect()));
            assert_eq!(found, Some((3, sums.to_vec())));
            assert!(area.decode(&bytes, (12_288, sector)).is_none());
        }
        assert!(area.decode(&bytes, (8192, 8)).is_none() && area.decode(&[], (8192, 0)).is_none());
        for at in [0, 5, 9, 25, 33, SECTOR - 1] {
            let mut damaged = bytes.to_vec();
            damaged[SECTOR + at] ^= 4;
            assert!(area.decode(&damaged, (8192, 1)).is_none(), "byte {at}");
            assert!(area.decode(&damaged, (8192, 0)).is_some());
        }
    }

    #[test]
    fn no_page_has_the_checksum_that_stands_for_none() {
        assert!(sum_of(&[0; PAGE], 0) != NONE && sum_of(&[], 0) == 1);
        assert!(sum_of(&[0; PAGE], 5) != sum_of(&[0; PAGE], 6));
    }
}
