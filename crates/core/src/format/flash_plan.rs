// SPDX-License-Identifier: MIT OR Apache-2.0
//! Slots and metadata on a flash device, as the engine sees them.

use super::label::Keeps;
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
