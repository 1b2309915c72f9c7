// SPDX-License-Identifier: MIT OR Apache-2.0
//! Maps of units on the flash of a shard in memory.

use larder_core::config::Choices;
use larder_core::format::{FlashPlan, Keeps, MetadataPlan};
use larder_core::journal::layout::Layout;
use larder_core::journal::recover::{Recovered, Unusable, recover};
use larder_core::request::Errno;
use larder_core::shape::Shape;

use crate::memory::FLASH;

/// The place of metadata and slots on the flash of a shard.
#[must_use]
pub fn place(
    shape: &Shape,
    choices: &Choices,
    at: (u64, u64),
    slots: u64,
    block: u32,
) -> FlashPlan {
    let (volume, base) = at;
    let (keeps, log_bytes) = (Keeps::of(choices), 16 << 10);
    let journal = MetadataPlan { base, volume, log_bytes, keeps };
    let metadata = Layout::total_bytes(shape, slots, log_bytes, keeps);
    let base = base + metadata;
    FlashPlan { dev: FLASH, base, slots, block_bytes: block, journal: Some(journal) }
}

/// What the metadata in these bytes of a flash says; whatever it reads lies within `bytes`.
pub fn recover_from(bytes: &[u8], layout: &Layout, volume: u64) -> Result<Recovered, Unusable> {
    let read = |at: u64, len: u64| bytes.get(at as usize..(at + len) as usize);
    recover(layout, volume, &mut |at, len| read(at, len).map(<[u8]>::to_vec).ok_or(Errno::EIO))
}
