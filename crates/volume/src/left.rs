// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a worker leaves behind when it ends.

use larder_core::request::Errno;

/// What a worker leaves behind.
pub(crate) struct Left {
    /// Client requests and connections that were not ended.
    pub given_up: u64,
    /// What it leaves on flash; nothing where none is attached.
    pub flash: Option<FlashLeft>,
    /// Its page log holds what the origin does not, and is not closed.
    pub unsettled: bool,
    /// How a flush of the origin failed, if one ever did.
    pub flush_failed: Option<Errno>,
}

/// What a worker leaves on flash.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FlashLeft {
    /// Whether flash alone has something.
    pub dirty: bool,
    /// How far the journal has come, see `StateRecord`.
    pub reached: (u64, u64),
}
