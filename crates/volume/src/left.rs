// SPDX-License-Identifier: MIT OR Apache-2.0
//! The state that a worker leaves when it ends.

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
