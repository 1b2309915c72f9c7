// SPDX-License-Identifier: MIT OR Apache-2.0
//! The volumes that share a cache (SCE 3.4, 3.6): one flash, one table and one replacement over several origins.
//!
//! The space of a cache is one range of bytes. Each volume is a part of it, and has an origin of its own. A volume begins at
//! a multiple of a stripe, so a unit, and a piece of a request, belong to one volume. The bytes between the end of a volume and the begin of the next are
//! its *padding*: no device has them, they read as zeroes, and no client reaches them.
//!
//! The engine addresses the origins by their place in this space; the driver finds the device. A flush has the range of its
//! volume.
//!
//! Why not a cache for each volume: what one volume does not use of its part is of no use to the others. How much that matters
//! depends on how long loads take turns (`larder sim crates/lab/scenarios/shared-flash.toml`).

use std::ops::Range;
use std::sync::Arc;

/// The most volumes that share a cache.
pub const MOST_VOLUMES: usize = 64;

/// The volumes, in the order of their place.
#[derive(Clone, Debug, PartialEq)]
pub struct Volumes(Arc<[Volume]>);

/// A volume in the space of its cache.
#[derive(Clone, Debug, PartialEq)]
struct Volume {
    range: Range<u64>,
    share: Share,
}

/// How many of the slots a volume may have, as shares of all. Single pages in mixed slots are not counted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Share {
    /// No other volume takes these from it.
    pub least: f64,
    /// It takes no more than these.
    pub most: f64,
}

impl Default for Share {
    /// Any number: replacement alone decides.
    fn default() -> Self {
        Self { least: 0.0, most: 1.0 }
    }
}

/// Some of the volumes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VolumeSet(u64);

impl Volumes {
    /// One volume of so many bytes, which has the cache to itself.
    #[must_use]
    pub fn one(bytes: u64) -> Self {
        Self(Arc::new([Volume { range: 0..bytes, share: Share::default() }]))
    }

    /// Volumes of these sizes, in bytes: 1 to [`MOST_VOLUMES`]. Each begins at a multiple of a stripe.
    #[must_use]
    pub fn placed(sizes: &[u64], stripe_bytes: u64) -> Self {
        assert!((1..=MOST_VOLUMES).contains(&sizes.len()), "the configuration checks this");
        assert!(sizes.iter().all(|bytes| *bytes > 0), "a volume has bytes");
        let mut start = 0;
        let place = |bytes: &u64| {
            let range = start..start + bytes;
            start = range.end.next_multiple_of(stripe_bytes);
            Volume { range, share: Share::default() }
        };
        Self(sizes.iter().map(place).collect())
    }

    /// The same volumes with these shares, one for each. The sum of what they have at least is at most 1, and no `least` is
    /// above its `most`.
    #[must_use]
    pub fn sharing(&self, shares: &[Share]) -> Self {
        assert_eq!(shares.len(), self.0.len(), "a share for each volume");
        let pairs = self.0.iter().zip(shares);
        Self(pairs.map(|(of, share)| Volume { range: of.range.clone(), share: *share }).collect())
    }

    /// The share of each, in order.
    pub(crate) fn shares(&self) -> impl Iterator<Item = Share> + '_ {
        self.0.iter().map(|volume| volume.share)
    }

    /// Bytes of the space.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.0.last().map_or(0, |last| last.range.end)
    }

    /// Number of volumes.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.0.len() as u32
    }

    /// The range of each, in order.
    pub fn ranges(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        self.0.iter().map(|volume| volume.range.clone())
    }

    /// The range of one.
    #[must_use]
    pub fn range(&self, volume: u32) -> Range<u64> {
        self.0[volume as usize].range.clone()
    }

    /// The volume that has the byte at an offset, or whose padding it is in.
    #[must_use]
    #[inline]
    pub fn at(&self, offset: u64) -> u32 {
        match self.0.len() {
            1 => 0,
            _ => self.0.partition_point(|of| of.range.start <= offset).saturating_sub(1) as u32,
        }
    }

    /// Whether a volume ends at this offset.
    pub(crate) fn ends_at(&self, end: u64) -> bool {
        self.range(self.at(end - 1)).end == end
    }
}

impl VolumeSet {
    /// The set with another volume.
    pub(crate) fn with(self, volume: u32) -> Self {
        Self(self.0 | 1 << volume)
    }

    pub(crate) fn iter(self) -> impl Iterator<Item = u32> {
        (0..MOST_VOLUMES as u32).filter(move |volume| self.has(*volume))
    }

    /// Whether they have a volume in common.
    pub(crate) fn meets(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// The volumes of both.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub(crate) fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Whether none is in it.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether a volume is in it.
    #[must_use]
    pub fn has(self, volume: u32) -> bool {
        self.0 >> volume & 1 == 1
    }
}

impl FromIterator<u32> for VolumeSet {
    fn from_iter<I: IntoIterator<Item = u32>>(volumes: I) -> Self {
        Self(volumes.into_iter().fold(0, |set, volume| set | 1 << volume))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_has_one_volume_and_every_unit_too() {
        let volumes = Volumes::placed(&[10_000, 4096, 512], 4096);
        assert_eq!(
            volumes.ranges().collect::<Vec<_>>(),
            [0..10_000, 12_288..16_384, 16_384..16_896]
        );
        let found =
            [0, 9_999, 10_000, 12_287, 12_288, 16_383, 16_384, 16_895].map(|at| volumes.at(at));
        assert_eq!(found, [0, 0, 0, 0, 1, 1, 2, 2]);
        assert_eq!((volumes.bytes(), volumes.count()), (16_896, 3));
        assert!(volumes.ends_at(10_000) && volumes.ends_at(16_384) && !volumes.ends_at(12_288));
    }

    #[test]
    fn a_set_has_its_volumes() {
        let set: VolumeSet = [0, 63].into_iter().collect();
        assert!(set.has(0) && set.has(63) && !set.has(1));
        assert!(VolumeSet::default().with(5).has(5) && VolumeSet::default().is_empty());
        let other: VolumeSet = [63, 5].into_iter().collect();
        assert!(set.meets(other) && set.and(other).has(5) && !set.without(other).meets(other));
    }
}
