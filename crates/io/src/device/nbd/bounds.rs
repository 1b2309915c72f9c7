// SPDX-License-Identifier: MIT OR Apache-2.0
//! How long a server may take.

use std::time::Duration;

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerBounds {
    /// A request that takes longer is sent again on another connection; a flush has all of
    /// `give_up_after`.
    pub answer_within: Duration,
    /// An operation that takes longer fails.
    pub give_up_after: Duration,
    pub(crate) writes: bool,
}

impl ServerBounds {
    /// These bounds.
    #[must_use]
    pub fn new(answer_within: Duration, give_up_after: Duration) -> Self {
        Self { answer_within, give_up_after, writes: true }
    }
}

impl Default for ServerBounds {
    fn default() -> Self {
        Self::new(Duration::from_secs(30), Duration::from_secs(60))
    }
}
