// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where slots and their metadata lie on a flash device.

use crate::config::Choices;
use crate::exec::DevId;

/// A flash device of slots, as the engine sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlashPlan {
    /// The driver's number of the device.
    pub dev: DevId,
    /// First byte of slot 0.
    pub base: u64,
    /// Slots on the device, over all shards.
    pub slots: u64,
    /// Offsets and lengths of operations are multiples of this many bytes.
    pub block_bytes: u32,
    /// Where metadata is kept, if it is.
    pub journal: Option<MetadataPlan>,
}

impl FlashPlan {
    /// The volume that the metadata belongs to; 0 without.
    pub(crate) fn volume(&self) -> u64 {
        self.journal.map_or(0, |journal| journal.volume)
    }
}

/// Where the metadata of all shards lies on a flash device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetadataPlan {
    /// Its first byte.
    pub base: u64,
    /// The volume that it belongs to; a new one with every formatting.
    pub volume: u64,
    /// Bytes of one shard's log, of which there are two with two copies each.
    pub log_bytes: u64,
    /// What it says besides which pages are valid where.
    pub keeps: Keeps,
}

/// What metadata says besides which pages are valid where.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Keeps {
    /// Which regions of a unit are dirty.
    pub dirty: bool,
    /// The reference factor of every origin unit.
    pub factors: bool,
}

impl Keeps {
    /// What these choices need.
    #[must_use]
    pub fn of(choices: &Choices) -> Self {
        Self { dirty: choices.write.flash_keeps(), factors: choices.admission.is_periodic() }
    }
}
