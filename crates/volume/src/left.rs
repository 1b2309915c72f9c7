// SPDX-License-Identifier: MIT OR Apache-2.0
//! The state that a worker leaves when it ends.

use larder_core::shard::Shard;
use larder_core::volumes::VolumeSet;

/// The state that a worker leaves.
pub(crate) struct Left {
    /// Client requests and connections that were aborted.
    pub given_up: u64,
    /// Its flash; none if none is attached.
    pub flash: Option<FlashLeft>,
    /// Its page log holds dirty data, and is not closed.
    pub unsettled: bool,
}

/// The state of a worker's flash.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FlashLeft {
    /// The volumes of which flash holds dirty data.
    pub dirty: VolumeSet,
    /// The progress of the journal, see `StateRecord`.
    pub reached: (u64, u64),
}

impl FlashLeft {
    /// That of a shard of so many volumes; none if no flash is attached.
    pub fn of(shard: &Shard, volumes: u32) -> Option<Self> {
        let reached = shard.cache_status()?.reached;
        let is_dirty = |volume: &u32| shard.units_of(*volume).1 > 0;
        Some(Self { dirty: (0..volumes).filter(is_dirty).collect(), reached })
    }
}
