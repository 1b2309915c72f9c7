// SPDX-License-Identifier: MIT OR Apache-2.0
//! The size of a flash device, the place of its first section, and the errors for small devices.

use super::label::HEADER_BYTES;
use crate::mutant;
use crate::size::Size;

/// The sizes of a flash device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceSize {
    /// Bytes.
    pub bytes: u64,
    /// Bytes of a block.
    pub block_bytes: u32,
}

/// The first byte of the first section, and the alignment of the slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    pub(super) first: u64,
    pub(super) grain: u64,
}

impl Frame {
    /// Of a formatted device: the label comes first.
    pub const DEVICE: Self = Self { first: HEADER_BYTES, grain: HEADER_BYTES };
    /// Of a modelled device: no label, no alignment.
    pub const BARE: Self = Self::packed(0);

    /// No alignment, from byte `first` on.
    #[must_use]
    pub const fn packed(first: u64) -> Self {
        Self { first, grain: 1 }
    }
}

/// Whether what flash has of an origin of `was` bytes is valid when it has `is` bytes: as many, or more. `grain`: the bytes that are
/// valid as a whole, of which flash has nothing behind the end of an origin that ends within them. Both ends are at multiples
/// of it, so that every size since the formatting was one, whatever a state record that is lost or restored had.
pub(super) fn is_same_or_grew(was: u64, is: u64, grain: u64) -> bool {
    let whole = was.is_multiple_of(grain) && is.is_multiple_of(grain);
    was == is || was > 0 && was < is && (whole || mutant::is_active("grown-within-a-unit"))
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

/// A device is too small for a cache of these choices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TooSmall {
    /// No slot fits.
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
    /// No slot fits besides the metadata.
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
    /// The page logs of all shards do not fit.
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

/// Slots of a cache without metadata on a device of `bytes`.
///
/// # Errors
/// If there is none.
pub fn slots_in(bytes: u64, unit_bytes: u64) -> Result<u64, TooSmall> {
    match bytes.saturating_sub(HEADER_BYTES) / unit_bytes {
        0 => Err(TooSmall::Slots { bytes, least: HEADER_BYTES + unit_bytes }),
        slots => Ok(slots),
    }
}
