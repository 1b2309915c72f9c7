// SPDX-License-Identifier: MIT OR Apache-2.0
//! Time limits for a server.

use std::time::Duration;

/// Time limits for a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerBounds {
    /// A request without a reply for this long is sent again on another connection. For a flush `give_up_after`
    /// applies.
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
