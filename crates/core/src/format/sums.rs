// SPDX-License-Identifier: MIT OR Apache-2.0
//! The place and the form of checksums on a flash device.
//!
//! The areas of all shards lie one after the other, before the slots. An area has one or two copies of its blocks; a block has
//! the checksums of [`EACH`] neighbouring pages of the shard's slots.
//!
//! A block, little-endian: magic, CRC-32C of the block with this field zero (u32), volume id (u64), first byte of this copy on
//! the device (u64), version (u32), zero (u32); then the checksums (u32 each). A checksum is the CRC-32C of the page; 1 stands
//! for a CRC of 0, and 0 for a page without a checksum.

use std::ops::Range;

use super::flash_plan::FlashPlan;
use crate::buf::{Buf, PAGE};
use crate::bytes::{u32_at, u64_at};
use crate::checksum::crc32c;
use crate::config::Contents;
use crate::mutant;
use crate::shape::Shape;

const MAGIC: [u8; 4] = *b"LSum";
const HEADER: usize = 32;
/// Checksums of a block.
pub const EACH: u64 = ((PAGE - HEADER) / 4) as u64;
/// A page without a checksum.
pub const NONE: u32 = 0;

/// The checksum of a page.
#[must_use]
pub fn sum_of(page: &[u8]) -> u32 {
    match crc32c(page) {
        NONE => 1,
        sum => sum,
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
    pub(crate) fn of(plan: &FlashPlan, shape: &Shape, contents: Contents) -> Option<Self> {
        let sums = plan.sums?;
        let copies = copies(contents == Contents::Dirty);
        let (slots_at, volume) = (plan.base, sums.volume);
        let (blocks, each) = (blocks(shape, plan.slots), bytes_each(shape, plan.slots, copies));
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

    /// The copy of a block at this place.
    #[must_use]
    pub fn encode(&self, sums: &[u32], at: u64, version: u32) -> Buf {
        let mut bytes = Buf::zeroed(PAGE);
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[8..16].copy_from_slice(&self.volume.to_le_bytes());
        bytes[16..24].copy_from_slice(&at.to_le_bytes());
        bytes[24..28].copy_from_slice(&version.to_le_bytes());
        for (to, sum) in bytes[HEADER..].chunks_exact_mut(4).zip(sums) {
            to.copy_from_slice(&sum.to_le_bytes());
        }
        let crc = crc32c(&bytes);
        bytes[4..8].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// The checksums and the version of the copy at this place; `None` if these bytes are not that copy.
    #[must_use]
    pub fn decode(&self, bytes: &[u8], at: u64) -> Option<(Box<[u32]>, u32)> {
        let mut zeroed = bytes.get(..PAGE)?.to_vec();
        zeroed[4..8].fill(0);
        let own = bytes[..4] == MAGIC
            && u32_at(bytes, 4)? == crc32c(&zeroed)
            && u64_at(bytes, 8)? == self.volume
            && u64_at(bytes, 16)? == at
            || mutant::is_active("sums-unchecked");
        let sums = bytes[HEADER..PAGE].chunks_exact(4).map(|sum| u32_at(sum, 0));
        own.then(|| Some((sums.collect::<Option<_>>()?, u32_at(bytes, 24)?))).flatten()
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
        let sums = Some(SumsPlan { base: 8192, volume: 7 });
        let plan = FlashPlan {
            dev: DevId(0),
            base: 1 << 20,
            slots: 9,
            block_bytes: 512,
            journal: None,
            sums,
        };
        let shape = Shape::new(1 << 30, 1 << 20, 2).of_shard(shard);
        SumsArea::of(&plan, &shape, Contents::Dirty).expect("it has checksums")
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
    fn only_the_intact_copy_of_the_place_is_read() {
        let area = area(0);
        let sums: Vec<u32> = (0..EACH as u32).collect();
        let bytes = area.encode(&sums, 8192, 3);
        let found = area.decode(&bytes, 8192).expect("intact");
        assert_eq!((&found.0[..], found.1), (&sums[..], 3));
        assert!(area.decode(&bytes, 12_288).is_none() && area.decode(&bytes[..99], 8192).is_none());
        for at in [0, 5, 9, 25, 33, PAGE - 1] {
            let mut damaged = bytes.to_vec();
            damaged[at] ^= 4;
            assert!(area.decode(&damaged, 8192).is_none(), "byte {at}");
        }
    }

    #[test]
    fn no_page_has_the_checksum_that_stands_for_none() {
        assert!(sum_of(&[0; PAGE]) != NONE && sum_of(&[]) == 1);
    }
}
