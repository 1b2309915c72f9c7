// SPDX-License-Identifier: MIT OR Apache-2.0
//! The volume of a history: what it is made of, and where things lie on its flash.

use larder_core::config::{Choices, Durability, Limits};
use larder_core::exec::{DevId, Nanos};
use larder_core::format::{FlashPlan, Keeps, MetadataPlan};
use larder_core::journal::layout::Layout;
use larder_core::pagelog::Geometry;
use larder_core::shape::Shape;

use super::promise::{Promise, Trouble};

/// Bytes of a log: the smallest that there is, so that it fills.
const LOG_BYTES: u64 = 16 << 10;
/// The flash device's number.
pub(super) const FLASH: DevId = DevId(1);

/// The volume, and the engine's settings.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Name of the preset.
    pub preset: &'static str,
    /// Its choices, with impatient settings.
    pub choices: Choices,
    /// Limits, impatient too.
    pub limits: Limits,
    /// The volume.
    pub shape: Shape,
    /// Slots on flash.
    pub slots: u64,
    /// Block size of flash.
    pub block_bytes: u32,
    /// Client requests in flight, at most.
    pub in_flight: usize,
    /// The longest that an operation on the origin takes.
    pub origin_slowest: Nanos,
    /// The longest that one on flash takes.
    pub flash_slowest: Nanos,
    /// Which copy of the metadata rots.
    pub copy: u8,
    /// What goes wrong.
    pub trouble: Trouble,
    /// Bytes of each shard's page log; 0 for a cache of units.
    pub log_bytes: u64,
}

impl Setup {
    /// Whether metadata survives.
    #[must_use]
    pub fn is_journaled(&self) -> bool {
        self.choices.durability == Durability::Journal
    }

    /// What metadata says besides.
    fn keeps(&self) -> Keeps {
        Keeps::of(&self.choices)
    }

    /// Whether flash owns what it holds.
    #[must_use]
    pub fn flash_owns(&self) -> bool {
        self.choices.write.flash_owns()
    }

    /// What is promised under the trouble of the plan.
    #[must_use]
    pub fn promise(&self) -> Promise {
        match self.trouble {
            // It is the only one to ask.
            Trouble::FlashErrors if self.flash_owns() => Promise::ErrorsPass,
            // A page of a log has a checksum.
            Trouble::DataRot if self.log_bytes > 0 => Promise::Invisible,
            trouble => trouble.promise(),
        }
    }

    /// Bytes of the metadata, before the first slot.
    #[must_use]
    pub fn metadata_bytes(&self) -> u64 {
        match self.is_journaled() {
            true => Layout::total_bytes(&self.shape, self.slots, LOG_BYTES, self.keeps()),
            false => 0,
        }
    }

    /// Bytes of the flash device.
    #[must_use]
    pub fn flash_bytes(&self) -> u64 {
        if self.log_bytes > 0 {
            return u64::from(self.shape.shards) * self.log_bytes;
        }
        self.metadata_bytes() + self.slots * self.shape.unit_bytes
    }

    /// The places of the shards' page logs, where there are any.
    #[must_use]
    pub fn logs(&self, volume: u64) -> Vec<Geometry> {
        let batch = self.choices.on_exit().batch_pages;
        let logs = 0..if self.log_bytes > 0 { u64::from(self.shape.shards) } else { 0 };
        let bytes = self.log_bytes;
        logs.filter_map(|n| Geometry::fit(n * bytes, bytes, batch, volume)).collect()
    }

    /// The cache's place on flash.
    #[must_use]
    pub fn flash(&self, volume: u64) -> FlashPlan {
        let place = MetadataPlan { base: 0, volume, log_bytes: LOG_BYTES, keeps: self.keeps() };
        let journal = self.is_journaled().then_some(place);
        let (slots, block_bytes) = (self.slots, self.block_bytes);
        FlashPlan { dev: FLASH, base: self.metadata_bytes(), slots, block_bytes, journal }
    }
}
