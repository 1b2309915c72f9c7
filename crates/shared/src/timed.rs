// SPDX-License-Identifier: MIT OR Apache-2.0
//! Calls of the flash device that the user of a log measures, see [`Origin::took`](crate::Origin::took).

/// A call of the flash device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlashCall {
    /// Pages are read.
    Read,
    /// A batch, a segment or a header is written.
    Write,
    /// What was written is made durable.
    Flush,
}
