// SPDX-License-Identifier: MIT OR Apache-2.0
//! How large a flash device is, where its first section begins, and what is too small.

use super::label::HEADER_BYTES;
use crate::size::Size;

/// The sizes of a flash device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceSize {
    /// Bytes.
    pub bytes: u64,
    /// Bytes of a block.
    pub block_bytes: u32,
}

/// Where the first section begins, and at multiples of what the slots do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    pub(super) first: u64,
    pub(super) grain: u64,
}

impl Frame {
    /// Of a device that is formatted: the label comes first.
    pub const DEVICE: Self = Self { first: HEADER_BYTES, grain: HEADER_BYTES };
    /// Without a label, and without gaps: of a modelled device.
    pub const BARE: Self = Self::packed(0);

    /// Without gaps, from a byte on.
    #[must_use]
    pub const fn packed(first: u64) -> Self {
        Self { first, grain: 1 }
    }
}

/// A flash that may hold dirty data has larger blocks than the origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "has blocks of {flash} bytes, the origin of {origin}; accepted with write-back: at most as large as the origin's"
)]
pub struct LargeBlocks {
    /// Bytes of a block of the flash.
    pub flash: u32,
    /// Bytes of a block of the origin.
    pub origin: u32,
}

/// A device holds no cache of these choices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TooSmall {
    /// Not a single slot.
    #[error(
        "{} is too small for a cache; accepted: at least {} (1 MiB of header and one unit)",
        Size(*bytes),
        Size(*least)
    )]
    Slots {
        /// Bytes that may be used.
        bytes: u64,
        /// Bytes that are needed.
        least: u64,
    },
    /// No slot beside the metadata.
    #[error(
        "{} is too small for a cache with a journal; accepted: at least {}, or --durability volatile",
        Size(*bytes),
        Size(*least)
    )]
    Journal {
        /// Bytes that may be used.
        bytes: u64,
        /// Bytes that are needed.
        least: u64,
    },
    /// No page log for each shard.
    #[error(
        "{} is too small for page logs of {shards} worker(s) with batches of {batch_pages} pages; accepted: at least {}, fewer --workers, or smaller --batch-pages",
        Size(*bytes),
        Size(*least)
    )]
    Logs {
        /// Bytes that may be used.
        bytes: u64,
        /// Bytes that are needed.
        least: u64,
        /// Shards.
        shards: u32,
        /// Pages of a batch.
        batch_pages: u32,
    },
}

/// Slots of a cache without metadata that so many bytes of a device have room for.
///
/// # Errors
/// If there is none.
pub fn slots_in(bytes: u64, unit_bytes: u64) -> Result<u64, TooSmall> {
    match bytes.saturating_sub(HEADER_BYTES) / unit_bytes {
        0 => Err(TooSmall::Slots { bytes, least: HEADER_BYTES + unit_bytes }),
        slots => Ok(slots),
    }
}
